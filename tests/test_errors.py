# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bad input, by the words of its error: what was met and what to write instead."""

import re
import subprocess
import sys

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf

import sok
from sok import _native, initializers


@pytest.fixture
def table():
    return sok.DynamicVariable(2, name="items")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", kinds.KINDS)
def test_float_ids(run, table, kind, dtype):
    ids = kinds.make("dense" if kind == "masked" else kind, [[1.0, 2.0]], dtype if dtype != "bfloat16" else "float32")
    ids = tf.cast(ids, dtype)
    with pytest.raises(TypeError, match=f'ids have dtype {dtype}.*dtype="int64"'):
        run(lambda ids: sok.lookup_sparse(table, ids), ids)


@pytest.mark.parametrize("ids", [["a"], [["a", "b"]]])
def test_string_ids(run, table, ids):
    with pytest.raises(TypeError, match=r"strings.*to_hash_bucket_fast"):
        run(lambda ids: sok.lookup_sparse(table, ids), tf.constant(ids))
    with pytest.raises(TypeError, match="bool"):
        sok.lookup_sparse(table, [True])


@pytest.mark.parametrize("shape", [[], [2, 3, 4], [1, 1, 1, 1]])
def test_rank_of_ids(run, table, shape):
    ids = tf.zeros(shape, tf.int64)
    for combiner in ("mean", None):
        with pytest.raises(ValueError, match=rf"\[batch, hotness\], got \({', '.join(map(str, shape))}"):
            run(lambda ids: sok.lookup_sparse([table], [ids], combiners=[combiner]), ids)  # noqa: B023


def test_rank_of_ragged_and_sparse_ids(table):
    deep = tf.ragged.constant([[[[1]]]])
    with pytest.raises(ValueError, match="one or two ragged dimensions"):
        sok.lookup_sparse(table, deep)
    with pytest.raises(ValueError, match="sparse ids must have the shape"):
        sok.lookup_sparse(table, tf.sparse.from_dense([[[1]]]))


@pytest.mark.parametrize(
    ("ids", "weights", "words"),
    [
        ([[1, 2]], [[1.0]], r"\(1, 2\) and \(1, 1\)"),
        ([1, 2], [[1.0], [1.0]], r"\(2,\) and \(2, 1\)"),
        (tf.ragged.constant([[1], [2, 3]]), tf.ragged.constant([[1.0, 1.0], [1.0]]), "row_splits"),
        (tf.ragged.constant([[1], [2, 3]]), tf.ragged.constant([[1.0], [1.0]]), "row_splits"),
        (tf.ragged.constant([[1]]), tf.ragged.constant([[[1.0]]]), "1 ragged dimensions.*2"),
        (tf.ragged.constant([[1]]), [[1.0]], "ids are ragged but weights are dense"),
        ([[1]], tf.sparse.from_dense([[1.0]]), "ids are dense but weights are sparse"),
        (tf.sparse.from_dense([[1, 0]]), tf.sparse.from_dense([[0.0, 1.0]]), "indices"),
    ],
)
def test_ids_and_weights_differ(run, table, ids, weights, words):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=words):
        run(lambda ids, weights: sok.lookup_sparse(table, ids, weights), ids, weights)
    assert table.size == [0, 2]


def test_shapes_of_ids_and_weights_known_late(table):
    spec = [tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None, None], tf.float32)]
    lookup = tf.function(lambda i, w: sok.lookup_sparse(table, i, w), input_signature=spec)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)differ in their shape.*\[1 2\].*\[2 1\]"):
        lookup([[1, 2]], [[1.0], [1.0]])
    assert table.size == [0, 2]


def test_integer_weights(table):
    with pytest.raises(TypeError, match="weights must be floats, got int32"):
        sok.lookup_sparse(table, [[1]], [[1]])


def test_batch_sizes_differ(table):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"one batch size: 'sp_ids\[0\]' has 2, 'sp_ids\[1\]' has 3"
    ):
        sok.lookup_sparse([table, table], [[1, 2], [1, 2, 3]])
    spec = [tf.TensorSpec([None], tf.int64), tf.RaggedTensorSpec([None, None], tf.int64)]
    lookup = tf.function(lambda a, b: sok.lookup_sparse([table, table], [a, b]), input_signature=spec)
    ragged = tf.ragged.constant([[1], [], [2]], dtype=tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)one batch size.*sp_ids\[0\].*sp_ids\[1\].*\[2 3\]"):
        lookup([1, 2], ragged)
    assert table.size == [0, 2]


def test_unknown_names(table):
    with pytest.raises(ValueError, match="sum, mean, sqrtn or None, got 'max'"):
        sok.lookup_sparse(table, [[1]], combiners="max")
    with pytest.raises(ValueError, match="sum, mean, sqrtn or None, got 'max'"):
        sok.layers.DistributedEmbedding(4, combiner="max")
    with pytest.raises(ValueError, match="error, zero, clip, got 'wrap'"):
        sok.Variable(shape=(2, 2), out_of_range="wrap")
    with pytest.raises(ValueError, match=r"random, uniform, normal, zeros, ones.*"):
        sok.DynamicVariable(2, initializer="gauss")
    with pytest.raises(ValueError, match="hbm, hybrid, got 'ssd'"):
        sok.DynamicVariable(2, var_type="ssd")
    with pytest.raises(ValueError, match="int32, int64, uint32, uint64, got 'float32'"):
        sok.DynamicVariable(2, key_type="float32")
    with pytest.raises(ValueError, match=r'"distributed", "localized".*"data_parallel", got'):
        sok.DynamicVariable(2, mode="replicated")
    with pytest.raises(ValueError, match="names rank 3, but there are 1 ranks"):
        sok.Variable(shape=(2, 2), mode="localized:3")
    with pytest.raises(ValueError, match="float32, float16, bfloat16, got 'float64'"):
        sok.DynamicVariable(2, dtype="float64")
    with pytest.raises(ValueError, match=r"local.*global"):
        sok.OptimizerWrapper("adam", update="lazy")


def test_initializers_of_a_hash_table():
    with pytest.raises(ValueError, match="cannot fill a hash table row by row"):
        sok.DynamicVariable(2, initializer=keras.initializers.Orthogonal())
    with pytest.raises(ValueError, match="cannot fill a hash table row by row"):
        sok.DynamicVariable(2, initializer=lambda shape, dtype: tf.zeros(shape, dtype))
    assert initializers.resolve(keras.initializers.Orthogonal(), 2) is None


@pytest.mark.parametrize("dimension", [0, -1, 2.5, "4", None, True])
def test_dimension(dimension):
    for make in (sok.DynamicVariable, sok.layers.DistributedEmbedding):
        with pytest.raises(ValueError, match=f"dimension must be a whole number of at least 1, got {dimension!r}"):
            make(dimension)


@pytest.mark.parametrize("argument", ["capacity", "max_capacity"])
@pytest.mark.parametrize("value", [0, -3, 2.5, "many"])
def test_capacities(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be a whole number of at least 1, got {value!r}"):
        sok.DynamicVariable(2, **{argument: value})


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "one"])
def test_max_norm(table, value):
    with pytest.raises(ValueError, match="max_norm must be above 0"):
        sok.lookup_sparse(table, [[1]], max_norm=value)


@pytest.mark.parametrize("seed", ["x", 1.5, 2**63, -(2**63) - 1, True])
def test_seed(seed):
    with pytest.raises(ValueError, match="seed must be"):
        sok.DynamicVariable(2, seed=seed)


@pytest.mark.parametrize("mask", [1.5, "pad", True, [0]])
def test_mask_value(table, mask):
    """Not cast to an id that was not meant."""
    words = "mask_value must be an id, a whole number, or None"
    with pytest.raises(ValueError, match=words):
        sok.lookup_sparse(table, [[1]], mask_value=mask)
    with pytest.raises(ValueError, match=words):
        sok.layers.DistributedEmbedding(2, mask_value=mask)


def test_dimension_whose_bytes_would_not_fit_64_bits():
    for dimension in (2**24 + 1, 2**40, 2**62):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"at most 16777216, got {dimension}"):
            sok.DynamicVariable(dimension)


def test_planes_given_twice(table):
    """As only a forged file would: the widths of the two could differ."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="plane 'x' is given twice"):
        _native.ops.sok_table_import(
            table.handle,
            tf.constant([1], tf.int64),
            [tf.zeros([1, 9]), tf.zeros([1, 2])],
            planes=["x", "x"],
            initials=[0.0, 0.0],
            replace=False,
        )
    assert table.size == [0, 2]


def test_default_row():
    with pytest.raises(ValueError, match='"initial", "zeros" or a vector of 2 numbers'):
        sok.DynamicVariable(2, default="ones")
    with pytest.raises(ValueError, match=r"shape \[2\], got \[3\]"):
        sok.DynamicVariable(2, default=[1.0, 2.0, 3.0])


def test_shape_of_a_static_table():
    with pytest.raises(ValueError, match=r"\[rows, dimension\], got \[3\]"):
        sok.Variable([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"initial_value.*shape"):
        sok.Variable()
    with pytest.raises(ValueError, match=r"rows must be.*at least 0, got -1"):
        sok.Variable(shape=(-1, 2))


def test_mask_value_is_for_dense_ids(table):
    with pytest.raises(ValueError, match="mask_value is for dense ids; these are ragged"):
        sok.lookup_sparse(table, tf.ragged.constant([[1]]), mask_value=0)


def test_lengths_of_lists(table):
    with pytest.raises(ValueError, match="sp_ids has 1 entries for 2 lookups"):
        sok.lookup_sparse([table, table], [[1]])
    with pytest.raises(ValueError, match="sp_ids must be a list of 2"):
        sok.lookup_sparse([table, table], tf.constant([1]))
    with pytest.raises(ValueError, match="combiners has 1 entries for 2 lookups"):
        sok.lookup_sparse([table, table], [[1], [1]], combiners=["sum"])
    with pytest.raises(ValueError, match="at least one"):
        sok.lookup_sparse([], [])


def test_not_a_table():
    for wrong in (tf.Variable([[1.0]]), np.zeros((2, 2)), None):
        with pytest.raises(TypeError, match=r"expected a sok.Variable or sok.DynamicVariable"):
            sok.lookup_sparse(wrong, [[0]])
        with pytest.raises(TypeError, match=r"expected a sok.Variable or sok.DynamicVariable"):
            sok.export(wrong)


def test_what_a_table_is_not(table):
    with pytest.raises(TypeError, match=r"'items' is not a dense tensor.*sok.export"):
        tf.convert_to_tensor(table)
    with pytest.raises(TypeError, match="'items' is not indexed by position"):
        table[0]
    with pytest.raises(TypeError, match=r"'items'.*sok.export"):
        np.asarray(table)
    with pytest.raises(TypeError, match="'items' is not a dense tensor"):
        table + 1.0
    with pytest.raises(ValueError, match="only from its own numpy"):
        table.assign(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="constraint is not supported"):
        sok.DynamicVariable(2, constraint=keras.constraints.NonNeg())
    for argument in ("embeddings_regularizer", "embeddings_constraint"):
        with pytest.raises(ValueError, match=f"{argument} is not supported"):
            sok.layers.DistributedEmbedding(2, **{argument: "l2"})
    with pytest.raises(ValueError, match="use_low_frequency_filter"):
        sok.lookup_sparse(table, [[1]], use_low_frequency_filter=True)


def test_writes(table):
    with pytest.raises(tf.errors.InvalidArgumentError, match="id 1 is repeated"):
        sok.assign(table, [1, 2, 1], np.zeros((3, 2)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'items'.*the shape \[2, 2\] but have \[2, 3\]"):
        sok.assign(table, [1, 2], np.zeros((2, 3)))
    with pytest.raises(TypeError, match="float32"):
        sok.assign(table, [1.0], np.zeros((1, 2)))
    assert table.size == [0, 2]
    static = sok.Variable(shape=(3, 2), initializer="ones", name="fixed")
    with pytest.raises(tf.errors.InvalidArgumentError, match="'fixed': id 3 at position 1 is out of range"):
        sok.assign(static, [0, 3], np.zeros((2, 2)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'fixed' is static"):
        sok.erase(static, [0])
    np.testing.assert_array_equal(sok.export(static)[1], np.ones((3, 2)))


@pytest.mark.parametrize("max_capacity", [1, 3, 100])
def test_bounded_table_refuses_before_anything_changes(run, max_capacity):
    table = sok.DynamicVariable(2, max_capacity=max_capacity, name="bounded")
    ids = np.arange(max_capacity)
    before = run(lambda ids: sok.lookup_sparse(table, ids), tf.constant(ids)).numpy()
    assert table.size == [max_capacity, 2]
    with pytest.raises(
        tf.errors.ResourceExhaustedError,
        match=(f"'bounded': 2 new ids do not fit: it holds {max_capacity} of at most {max_capacity} rows"),
    ):
        run(lambda ids: sok.lookup_sparse(table, ids), tf.constant([0, -5, -6, -5]))
    assert table.size == [max_capacity, 2]
    np.testing.assert_array_equal(run(lambda ids: sok.lookup_sparse(table, ids), tf.constant(ids)), before)


def test_out_of_memory_names_bytes_and_leaves_the_table_usable(table):
    lookup = sok.lookup_sparse(table, tf.constant([1, 2])).numpy()
    with pytest.raises(
        tf.errors.ResourceExhaustedError, match=r"'huge': no memory.*\d+ bytes asked for, \d+ bytes in use"
    ):
        sok.DynamicVariable(4096, capacity=2**31, name="huge")
    np.testing.assert_array_equal(sok.lookup_sparse(table, tf.constant([1, 2])), lookup)


_FILL = """
import os, re, resource
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf, sok
table = sok.DynamicVariable(4096, initializer="normal", seed=1, name="big")
ids = np.arange(20, dtype=np.int64)[None]
before = sok.lookup_sparse(table, ids, combiners="sum").numpy()
in_use = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**30, resource.RLIM_INFINITY))
try:
    sok.lookup_sparse(table, np.arange(10**6, dtype=np.int64)[None], combiners="sum")
except tf.errors.ResourceExhaustedError as error:
    print(error.message)
assert table.size == [20, 4096]
np.testing.assert_array_equal(sok.lookup_sparse(table, ids, combiners="sum"), before)
sok.lookup_sparse(table, ids + 20)
assert table.size == [40, 4096]
print("still works")
"""


def test_table_that_cannot_grow_any_more():
    """The real thing: 16 GB of new rows where the process may have 1 GB."""
    done = subprocess.run([sys.executable, "-c", _FILL], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    message, last = done.stdout.splitlines()
    assert re.search(r"'big': no memory for \w+.*: \d+ bytes asked for, \d+ bytes in use", message)
    assert last == "still works"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_gradient_that_is_not_finite_stays_in_its_row(bad):
    """As with dense optimizers it is passed on; other rows are not touched by it."""
    table = sok.DynamicVariable(2, initializer="ones")
    ids = tf.constant([[1], [2]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, ids) * [[bad, 1.0], [1.0, 1.0]])
    sok.SGD(0.5).apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))
    rows = kinds.export_as_dict(table)
    assert not np.isfinite(rows[1][0])
    assert rows[1][1] == 0.5
    np.testing.assert_array_equal(rows[2], [0.5, 0.5])


def _keras_optimizer(name):
    cls = getattr(keras.optimizers, name)
    if name == "LossScaleOptimizer":
        return cls(keras.optimizers.SGD())
    return cls(lambda variable: keras.optimizers.SGD()) if name == "MultiOptimizer" else cls()


KERAS_OPTIMIZERS = [
    name
    for name, value in vars(keras.optimizers).items()
    if isinstance(value, type) and issubclass(value, keras.optimizers.Optimizer) and name != "Optimizer"
]


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("name", KERAS_OPTIMIZERS)
def test_unwrapped_keras_optimizer(name, run_eagerly):
    """Every Keras optimizer, bare, gets the line to write."""
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="int64"),
            sok.layers.DistributedEmbedding(2),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer=_keras_optimizer(name), loss="mse", run_eagerly=run_eagerly)
    with pytest.raises(TypeError, match=r"compile\(optimizer=sok\.OptimizerWrapper\("):
        model.fit(np.zeros((4, 1), np.int64), np.zeros((4, 1)), verbose=0)


def test_training_inside_a_branch_or_a_loop(table):
    """TensorFlow would drop the gradient in silence; lookups without one work there."""
    ids = tf.constant([[1], [2]])

    @tf.function
    def branch(chosen):
        return tf.cond(chosen, lambda: sok.lookup_sparse(table, ids), lambda: tf.zeros([2, 2]))

    @tf.function
    def loop(times):
        total = tf.zeros([2, 2])
        for _ in tf.range(times):
            total += sok.lookup_sparse(table, ids)
        return total

    rows = sok.lookup_sparse(table, ids).numpy()
    np.testing.assert_array_equal(branch(tf.constant(True)), rows)
    np.testing.assert_allclose(loop(tf.constant(3)), 3 * rows, rtol=1e-6)

    def gradient(function, argument):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(function(tf.constant(argument)))
        return tape.gradient(loss, table)

    for function, argument in ((branch, True), (loop, 3)):
        with pytest.raises(NotImplementedError, match=r"inside a tf\.cond.*look up before it"):
            gradient(function, argument)


def test_unwrapped_keras_optimizer_in_a_loop(table):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, [[1]]))
    gradients = tape.gradient(loss, [table])
    with pytest.raises(TypeError, match=r"sok\.OptimizerWrapper\("):
        keras.optimizers.SGD().apply_gradients(zip(gradients, [table], strict=True))

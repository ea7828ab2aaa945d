# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What nobody should pass, and somebody will: an answer or an error that says what to do, never a wrong
result in silence."""


import keras
import numpy as np
import pytest
import tensorflow as tf
from world import ON_GPU

import sok

INVALID = tf.errors.InvalidArgumentError


def _ragged(splits, ids=3):
    return tf.RaggedTensor.from_row_splits(tf.range(ids), tf.constant(splits, tf.int64), validate=False)


def _sparse(rows, shape=(2, 2)):
    indices = np.asarray([[row, 0] for row in rows], np.int64).reshape(-1, 2)
    return tf.SparseTensor(indices, tf.ones([len(rows)], tf.int64), shape)


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        (None, TypeError, r"sp_ids\[0\]: None holds no ids"),
        ({}, TypeError, r"sp_ids\[0\]: \{\} holds no ids"),
        (np.array([1, 2], object), TypeError, "holds no ids"),
        ([[1, 2], [3]], ValueError, r"different lengths.*tf\.ragged\.constant"),
        ([2**64], ValueError, r"\[18446744073709551616\] cannot be ids.*64 bits"),
        ([-(2**63) - 1], ValueError, "at most 64 bits"),
        ([-1, 2**63], ValueError, "at most 64 bits"),
        ([2**63], INVALID, "key_type is int64.*at most 9223372036854775807, got.*9223372036854775808"),
        (np.array([5, 2**64 - 1], np.uint64), INVALID, "got.*18446744073709551615"),
        (tf.constant([True]), TypeError, "bool"),
        (tf.constant([1j]), TypeError, "complex128"),
    ],
)
def test_ids_that_are_none(table, ids, error, words):
    with pytest.raises(error, match=words):
        sok.lookup_sparse(table, ids)
    assert table.size == [0, 2]


def test_python_numbers_of_64_bits():
    """The list is what a user writes; TensorFlow alone takes no number above INT64_MAX."""
    table = sok.DynamicVariable(1, key_type="uint64")
    sok.lookup_sparse(table, [[2**63, 2**64 - 1], [0, 2**63 - 1]])
    assert sorted(sok.export(table)[0].numpy().tolist()) == [0, 2**63 - 1, 2**63, 2**64 - 1]
    assert sok.erase(table, [2**64 - 1]) == 1
    signed = sok.DynamicVariable(1)
    sok.lookup_sparse(signed, [-(2**63), 2**63 - 1])
    assert signed.size == [2, 1]


@pytest.mark.parametrize("key_type", ["int32", "uint32", "int64", "uint64"])
def test_ids_that_do_not_fit_the_key_type(run, key_type):
    """Of every dtype that can hold them: a bit pattern is no id."""
    limits = np.iinfo(key_type)
    table = sok.DynamicVariable(1, key_type=key_type)
    for dtype in ("int32", "int64", "uint32", "uint64"):
        holds = np.iinfo(dtype)
        for bad in (limits.min - 1, limits.max + 1, holds.min, holds.max):
            if limits.min <= bad <= limits.max or not holds.min <= bad <= holds.max:
                continue
            ids = tf.constant(np.array([3, bad], dtype))
            with pytest.raises(INVALID, match=f"(?s)key_type is {key_type}; ids must be at least.*got.*{bad}"):
                run(lambda ids: sok.lookup_sparse(table, ids), ids)
    assert table.size == [0, 1]


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ([0, -1, 3], "entry 1 is -1 after 0"),
        ([0, 5, 3], "entry 2 is 3 after 5"),
        ([1, 3], "start at 0, not 1"),
        ([0, 2], "ends at 2, but there are 3 ids"),
        ([0, 2**40], "ends at 1099511627776"),
        ([0], "ends at 0, but there are 3 ids"),
    ],
)
@pytest.mark.parametrize("combiner", ["mean", None])
def test_row_splits_that_lie(run, table, splits, words, combiner):
    words = words if combiner else r"(?s)row_splits must start at 0, not decrease, and end at.*3.*but are"
    with pytest.raises(INVALID, match=words):
        run(lambda: sok.lookup_sparse([table], [_ragged(splits)], combiners=[combiner])[0])
    # A GPU sees the splits when it has inserted the ids.
    assert ON_GPU or table.size == [0, 2]


@pytest.mark.parametrize("splits", [[0, -1, 3], [0, 2**40, 3], [-(2**40), 3], [0, 2**40], [0, 2, 1, 3]])
@pytest.mark.parametrize("combiner", ["mean", "sqrtn", "sum"])
@pytest.mark.parametrize("fused", [True, False])
def test_row_splits_that_lie_with_weights(run, table, splits, combiner, fused):
    """Whatever they say, no weight is read that is not there: not in the lookup and not in the merge."""
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1, clipnorm=None if fused else 1.0))
    ids = _ragged(splits)
    weights = ids.with_values(tf.ones(3))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(sok.lookup_sparse(table, ids, weights, combiners=combiner))
        optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table]))

    with pytest.raises(INVALID, match="row_splits"):
        run(step)
    assert not any(name.startswith("sgd") for name in table.table.planes())


@pytest.mark.parametrize("rows", [[5], [-1], [0, 2], [-3, 1]])
@pytest.mark.parametrize("combiner", ["mean", None])
def test_sparse_ids_outside_of_their_shape(run, table, rows, combiner):
    with pytest.raises(INVALID, match=r"(?s)sp_ids\[0\]: sparse ids are outside of their dense_shape.*rows"):
        run(lambda: sok.lookup_sparse([table], [_sparse(rows)], combiners=[combiner])[0])
    assert table.size == [0, 2]


def test_sparse_weights_of_another_shape(run, table):
    weights = tf.SparseTensor([[0, 0]], [1.0], [3, 2])
    with pytest.raises(INVALID, match=r"(?s)differ in their dense_shape.*2.*3"):
        run(lambda: sok.lookup_sparse(table, _sparse([0]), weights))


def test_lists_of_tensors(table):
    @tf.function
    def lookup(a, b):
        return sok.lookup_sparse(table, [a, b])

    assert lookup(tf.constant(1), tf.constant(2)).shape == (2, 2)


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_that_are_not_finite(run, combiner):
    """NaN in their own bag, as float arithmetic has it; infinity is no divisor of 0."""
    table = sok.DynamicVariable(2, initializer="ones")
    ids = tf.constant([[1, 2], [3, 4], [5, 6]])
    weights = tf.constant([[np.nan, 1.0], [np.inf, 1.0], [1.0, 1.0]])

    def both():
        with tf.GradientTape() as tape:
            tape.watch(weights)
            out = sok.lookup_sparse(table, ids, weights, combiners=combiner)
        slices, of_weights = tape.gradient(out, [table, weights])
        return out, slices.indices, slices.values, of_weights

    out, keys, values, of_weights = (x.numpy() for x in run(both))
    rows = dict(zip(keys.tolist(), values, strict=True))
    assert np.isnan(out[:2]).all()
    assert np.isfinite(out[2]).all()
    assert np.isfinite(of_weights[2]).all()
    assert np.isnan(of_weights[:2]).all()
    assert all(np.isfinite(rows[id_]).all() for id_ in (5, 6))
    assert all(np.isnan(rows[id_]).any() for id_ in (1, 3))


@pytest.mark.parametrize("value", [True, 1e-60, -np.inf, "1", [1.0], tf.constant(1.0)])
def test_max_norm_that_is_none(table, value):
    with pytest.raises(ValueError, match="max_norm must be above 0"):
        sok.lookup_sparse(table, [[1]], max_norm=value)


@pytest.mark.parametrize("make", [sok.DynamicVariable, sok.layers.DistributedEmbedding])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"capacity": 2**63}, r"capacity must be below 2\*\*63"),
        ({"max_capacity": 2**70}, r"max_capacity must be below 2\*\*63"),
        ({"seed": 2**63}, r"seed must be below 2\*\*63"),
        ({"default": ["a", "b"]}, '"initial", "zeros" or a vector of 2 numbers'),
        ({"default": {1: 2}}, '"initial", "zeros" or a vector of 2 numbers'),
        ({"initializer": float("nan")}, "finite float32 number, got nan"),
        ({"initializer": "1e39"}, "finite float32 number, got 1e"),
        ({"initializer": "inf"}, "finite float32 number, got inf"),
        ({"initializer": keras.initializers.Constant(float("nan"))}, "finite float32 number, got nan"),
        ({"key_type": "nonsense"}, "key_type must be one of int32, .*'nonsense'"),
    ],
)
def test_arguments_of_hash_tables(make, arguments, words):
    with pytest.raises(ValueError, match=words):
        make(2, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"shape": 4}, ValueError, r"\[rows, dimension\], got 4"),
        ({"shape": (None, 4)}, ValueError, "rows must be a whole number of at least 0, got None"),
        ({"shape": (2**70, 4)}, ValueError, r"rows must be below 2\*\*63"),
        ({"shape": (2**40, 4)}, INVALID, "1099511627776 rows asked for"),
        ({"initial_value": [["a"]]}, TypeError, "initial_value must hold numbers, got string"),
        ({"initial_value": [[1.0], [2.0, 3.0]]}, ValueError, "initial_value must be an array of numbers"),
        ({"initial_value": tf.ragged.constant([[1.0], [2.0, 3.0]])}, ValueError, "initial_value must be an array"),
        ({"shape": (2, 2), "dtype": "nonsense"}, ValueError, "dtype must be one of float32.*'nonsense'"),
        ({"shape": (2, 2), "dtype": 3.5}, ValueError, "dtype must be one of float32.*got 3.5"),
    ],
)
def test_arguments_of_static_tables(arguments, error, words):
    with pytest.raises(error, match=words):
        sok.Variable(**arguments)


@pytest.mark.parametrize(
    ("ids", "values"),
    [
        ([1, 2], [[1.0, 2.0]]),
        ([1], [[1.0, 2.0], [3.0, 4.0]]),
        ([1], [[1.0]]),
        ([1], [1.0, 2.0]),
        (1, [1.0, 2.0]),
        ([], [[1.0, 2.0]]),
    ],
)
def test_values_that_do_not_fit_their_ids(run, table, ids, values):
    """Neither rows too many nor too few are guessed at."""
    with pytest.raises(INVALID, match=r"(?s)items.*values of .* ids must have the shape.*but have"):
        run(lambda: sok.assign(table, ids, values).table.row_count())
    assert table.size == [0, 2]


def test_values_that_are_no_numbers(table):
    with pytest.raises(TypeError, match="values must be numbers, got string"):
        sok.assign(table, [1], [["a", "b"]])
    sok.assign(table, [1], tf.constant([[3, 4]]))
    np.testing.assert_array_equal(sok.export(table)[1], [[3.0, 4.0]])


SLICES_THAT_DO_NOT_FIT = [
    (tf.zeros([2, 3]), [1, 2], INVALID, r"\[2,3\] is not \[2, 2\]"),
    (tf.zeros([3, 2]), [1, 2], INVALID, r"\[3,2\] is not \[2, 2\]"),
    (tf.zeros([2]), [1], INVALID, r"\[2\] is not \[1, 2\]"),
    (tf.zeros([2, 3]), [1, 2, 3], INVALID, r"\[2,3\] is not \[3, 2\]"),
    (tf.zeros([1, 1, 2]), [1], INVALID, r"\[1,1,2\] is not \[1, 2\]"),
    (tf.zeros([1, 2]), [1.0], TypeError, "the gradient of the table 'items': ids have dtype float32"),
    (tf.zeros([1, 2]), ["a"], TypeError, "the gradient of the table 'items': ids are strings"),
]


@pytest.mark.parametrize(("values", "keys", "error", "words"), SLICES_THAT_DO_NOT_FIT)
@pytest.mark.parametrize("options", [{}, {"clipnorm": 1.0}])
def test_gradients_made_by_hand(table, values, keys, error, words, options):
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1, **options))
    with pytest.raises(error, match=words):
        optimizer.apply_gradients([(tf.IndexedSlices(values, tf.constant(keys)), table)])
    assert table.size == [0, 2]


@pytest.mark.parametrize("key_type", ["int32", "uint32", "uint64"])
def test_gradients_made_by_hand_of_other_key_types(key_type):
    table = sok.DynamicVariable(1, key_type=key_type, initializer="zeros")
    largest = np.iinfo(key_type).max
    optimizer = sok.SGD(1.0)
    optimizer.apply_gradients([(tf.IndexedSlices([[1.0]], tf.constant(np.array([largest], key_type))), table)])
    np.testing.assert_array_equal(sok.lookup_sparse(table, tf.constant(np.array([largest], key_type))), [[-1.0]])
    assert table.size == [1, 1]
    if key_type != "uint64":
        with pytest.raises(INVALID, match=f"key_type is {key_type}"):
            optimizer.apply_gradients([(tf.IndexedSlices([[1.0]], tf.constant([largest + 1], tf.int64)), table)])
        assert table.size == [1, 1]


@pytest.mark.parametrize("loss_scale", [0, -1.0, True, "x", [1.0], np.nan, np.inf])
def test_loss_scales(loss_scale):
    with pytest.raises(ValueError, match='loss_scale must be None, "dynamic" or a positive number'):
        sok.OptimizerWrapper("sgd", loss_scale=loss_scale)


@pytest.mark.parametrize(
    ("per_table", "words"),
    [(3, "per_table is a dict"), ({"a": True}, r"per_table\['a'\] is an optimizer or a learning rate, got True")],
)
def test_per_table_of_the_wrong_kind(per_table, words):
    with pytest.raises(TypeError, match=words):
        sok.OptimizerWrapper("sgd", per_table=per_table)


def test_stats_of_what_is_no_table(table):
    for wrong in (1, [table], None):
        with pytest.raises(TypeError, match=r"expected a sok.Variable or sok.DynamicVariable"):
            sok.stats(wrong)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ops of a step beside merging and updating: hyper-parameters, and whether gradients are finite."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from world import SEED

import sok
from sok import _native
from sok.stages.update import OPTIMIZERS, hyper_parameters

SIZES = [0, 1, 3, 4, 5, 7, 8, 9, 1023, 1025, 70001]


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_hyper_parameters_are_in_their_places(run, optimizer):
    names = OPTIMIZERS[optimizer]["hyper"]
    wanted = {name: np.float32(0.5 + i) for i, name in enumerate(names)}
    variable = tf.Variable(wanted["learning_rate"])
    last = tf.constant(wanted[names[-1]])

    def value(name):
        if name == "learning_rate":
            return variable
        return last if name == names[-1] else float(wanted[name])

    np.testing.assert_array_equal(run(lambda: hyper_parameters(optimizer, value)), list(wanted.values()))
    # What an optimizer does not have is 0.
    rate = run(lambda: hyper_parameters(optimizer, lambda name: variable if name == "learning_rate" else None))
    np.testing.assert_array_equal(rate, [wanted["learning_rate"] if n == "learning_rate" else 0 for n in names])


def test_a_learning_rate_that_is_no_scalar():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"hyper-parameter 0 must be a scalar.*\[2\]"):
        hyper_parameters("sgd", lambda name: tf.constant([1.0, 2.0]))


def test_a_new_learning_rate_needs_no_new_function():
    table = sok.DynamicVariable(1, initializer="zeros")
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0))
    traces = []

    @tf.function
    def step():
        traces.append(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant([3])))
        optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table]))

    step()
    optimizer.learning_rate = 0.25
    step()
    assert len(traces) == 1
    np.testing.assert_array_equal(sok.lookup_sparse(table, tf.constant([3])), [[-1.25]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_one_bad_value_anywhere_is_found(run, dtype, bad):
    rng = np.random.default_rng(SEED)
    good = [tf.cast(rng.normal(size=size), dtype) for size in SIZES]
    largest = tf.fill([9], tf.as_dtype(dtype).max)
    assert run(lambda: _native.ops.sok_all_finite([*good, largest, -largest]))
    for at, size in enumerate(SIZES):
        for place in {0, size // 2, size - 1} if size else ():
            values = tf.tensor_scatter_nd_update(good[at], [[place]], tf.cast([bad], dtype))
            tensors = [*good[:at], values, *good[at + 1 :]]
            assert not run(lambda t=tensors: _native.ops.sok_all_finite(t)), (size, place)


def test_finite_over_more_tensors_than_one_launch_takes(run):
    tensors = [tf.ones([3], ("float32", "float16", "bfloat16")[i % 3]) for i in range(67)]
    assert run(lambda: _native.ops.sok_all_finite(tensors))
    for at in (0, 31, 32, 66):
        bad = [*tensors[:at], tf.cast([1, np.nan, 1], tensors[at].dtype), *tensors[at + 1 :]]
        assert not run(lambda b=bad: _native.ops.sok_all_finite(b)), at


@pytest.mark.parametrize("begin", [1, 2, 3])
def test_finite_of_values_that_are_not_aligned(run, begin):
    values = tf.concat([tf.ones([1000]), [np.inf]], 0)
    assert not run(lambda: _native.ops.sok_all_finite([values[begin:]]))
    assert run(lambda: _native.ops.sok_all_finite([values[begin:-1]]))


def trained(tables, ids, loss_of, run, weights=None, combiner="sum", frozen=()):
    """Two steps with a dynamic loss scale: the scale, the steps that were done, the rows of the first table."""
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0), loss_scale="dynamic")
    trainable = [table for table in tables if table not in frozen]
    optimizer.build(trainable)

    def step():
        with tf.GradientTape() as tape:
            given = None if weights is None else [weights] * len(tables)
            loss = loss_of(sok.lookup_sparse(tables, [ids] * len(tables), given, combiners=[combiner] * len(tables)))
        optimizer.apply(tape.gradient(loss, trainable), trainable)

    run(step)
    run(step)
    rows = sok.lookup_sparse(tables[0], tf.range(8, dtype=tf.int64), training=False).numpy()
    return float(optimizer.dynamic_scale), int(optimizer.iterations), rows


def ones_table():
    return sok.Variable(np.ones((8, 2), np.float32))


@pytest.mark.parametrize(
    "what", ["gradient", "weight", "sum of gradients", "weight times gradient", "sum of weighted"]
)
def test_a_sum_that_would_not_be_finite_suppresses_a_fused_step(run, what):
    """The gradients of rows are not summed for the check, but it is about the sums."""
    ids = tf.RaggedTensor.from_row_lengths(tf.constant([5, 6, 5], tf.int64), [2, 1])
    factor, weights = np.ones((2, 2), np.float32), None
    if what == "gradient":
        factor[1, 0] = np.nan
    elif what == "weight":
        weights = ids.with_values(tf.constant([1.0, np.inf, 1.0]))
    elif what == "sum of gradients":
        factor *= 3e38
    elif what == "weight times gradient":
        weights = ids.with_values(tf.fill([3], 1e20))
        factor *= 1e20
    else:
        weights = ids.with_values(tf.fill([3], 1e10))
        factor *= 3e28
    scale, iterations, rows = trained(
        [ones_table()], ids, lambda out: tf.reduce_sum(out[0] * factor), run, weights
    )
    assert (scale, iterations) == (2.0**13, 0)
    np.testing.assert_array_equal(rows, 1)


def test_what_reaches_no_row_suppresses_nothing(run):
    """A bag without ids and one whose weights have the sum 0; a table of the same pass that is frozen."""
    ids = tf.RaggedTensor.from_row_lengths(tf.constant([1, 2, 3, 4], tf.int64), [2, 0, 2])

    def norms(out):
        return tf.reduce_sum(tf.norm(out[0], axis=1))

    scale, iterations, rows = trained([ones_table()], ids, norms, run)
    assert (scale, iterations) == (2.0**15, 2)
    assert np.isfinite(rows).all()
    weights = ids.with_values(tf.constant([1.0, 1.0, 1.0, -1.0]))
    scale, iterations, rows = trained([ones_table()], ids, norms, run, weights, "mean")
    assert (scale, iterations) == (2.0**15, 2)
    np.testing.assert_array_equal(rows[3:5], 1)
    assert np.isfinite(rows).all()
    assert (rows[1:3] != 1).all()
    tables = [ones_table(), ones_table()]

    def loss(out):
        return tf.reduce_sum(out[0]) + tf.reduce_sum(out[1]) * np.nan

    scale, iterations, rows = trained(tables, ids[:1], lambda out: loss(out), run, frozen=tables[1:])
    # The loss is NaN, the gradient of the table that is trained is not.
    assert (scale, iterations) == (2.0**15, 2)
    np.testing.assert_array_equal(rows[1:3], 1 - 2 / 2**15)


def test_a_table_twice_in_one_step_is_refused(run):
    table = sok.DynamicVariable(2, name="twice")
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0))
    one = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1], tf.int64))
    with pytest.raises(ValueError, match="the table 'twice' is given twice in one step"):
        run(lambda: optimizer.apply_gradients([(one, table), (one, table)]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="table 'twice' is given twice in one update"):
        _native.ops.sok_update(
            tables=[table.table.handle] * 2, keys=[one.indices] * 2, gradients=[one.values] * 2,
            hyper=[tf.constant([1.0, 0.0])] * 2, iterations=tf.constant(0, tf.int64), scale=1.0, apply=True,
            optimizers=["sgd"] * 2, reaches=["local"] * 2, unique=[True] * 2, initials=[0.0] * 2,
        )  # fmt: skip
    assert table.size == [0, 2]

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
    # Not in a graph: TensorFlow computes there, on the CPU, what has no input.
    np.testing.assert_array_equal(hyper_parameters(optimizer, lambda name: None), np.zeros(len(names)))


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


@pytest.mark.parametrize("where", ["gradient", "weight"])
def test_a_fused_step_with_a_bad_value_changes_nothing(run, where):
    """The gradients of rows are not summed for the check: those of bags, and weights, tell."""
    table = sok.DynamicVariable(2, initializer="ones")
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0), loss_scale="dynamic")
    optimizer.build([table])
    ids = tf.RaggedTensor.from_row_lengths(tf.constant([1, 2, 1], tf.int64), [2, 1])

    def step(weights, factor):
        with tf.GradientTape() as tape:
            vectors = sok.lookup_sparse(table, ids, ids.with_values(weights), combiners="sum")
            loss = tf.reduce_sum(vectors * factor)
        optimizer.apply(tape.gradient(loss, [table]), [table])

    run(step, tf.ones(3), tf.ones([2, 2]))
    before = sok.lookup_sparse(table, tf.constant([1, 2])).numpy()
    bad_weights = tf.constant([1.0, np.inf, 1.0]) if where == "weight" else tf.ones(3)
    bad_factor = tf.constant([[1.0, 1.0], [np.nan, 1.0]]) if where == "gradient" else tf.ones([2, 2])
    run(step, bad_weights, bad_factor)
    np.testing.assert_array_equal(sok.lookup_sparse(table, tf.constant([1, 2])), before)
    assert int(optimizer.iterations) == 1

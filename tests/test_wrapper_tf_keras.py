# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrappers of tf_keras's optimizers, new and legacy: they belong there, and follow its formulas and options."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import sok

LEGACY = tf_keras.optimizers.legacy
ROWS, WIDTH = 6, 3


@pytest.mark.parametrize("loss_scale", [None, "dynamic", 8.0])
@pytest.mark.parametrize("module", [tf_keras.optimizers, LEGACY], ids=["new", "legacy"])
def test_wrappers_belong_to_the_keras_of_the_optimizer(module, loss_scale, tmp_path):
    optimizer = sok.OptimizerWrapper(module.SGD(0.1), loss_scale=loss_scale)
    assert isinstance(optimizer, sok.OptimizerWrapper)
    assert isinstance(optimizer, module.Optimizer)
    assert isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer) == (loss_scale is not None)
    layer = tf_keras.layers.Dense(1, kernel_initializer="ones")
    layer.build([None, 2])
    layer3 = keras.layers.Dense(1, kernel_initializer="ones")
    layer3.build([None, 2])
    table = sok.DynamicVariable(2, initializer="ones")
    variables = [table, *layer.trainable_variables, *layer3.trainable_variables]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse(table, tf.constant([[1, 2], [2, 2]]))
            loss = tf.reduce_sum(layer(rows) + layer3(rows))
            scaled = optimizer.get_scaled_loss(loss) if loss_scale else loss
        gradients = tape.gradient(scaled, variables)
        if loss_scale:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, variables))

    step()
    # Kernels get the sum of the rows, 2; rows twice their weight in the batch.
    np.testing.assert_allclose(layer.kernel.numpy(), [[0.8], [0.8]], rtol=1e-6)
    np.testing.assert_allclose(layer3.kernel.numpy(), [[0.8], [0.8]], rtol=1e-6)
    kinds.assert_rows(kinds.export_as_dict(table), {1: [0.9, 0.9], 2: [0.7, 0.7]}, rtol=1e-6)
    assert int(optimizer.iterations) == 1
    optimizer.learning_rate = 0.0
    step()
    kinds.assert_rows(kinds.export_as_dict(table), {1: [0.9, 0.9], 2: [0.7, 0.7]}, rtol=1e-6)

    copy = type(optimizer).from_config(optimizer.get_config())
    assert float(copy.learning_rate) == 0.0
    assert type(copy) is type(optimizer)
    path = tf.train.Checkpoint(optimizer=optimizer, table=table).save(tmp_path / "c")
    optimizer.iterations.assign(7)
    tf.train.Checkpoint(optimizer=optimizer, table=table).restore(path).assert_consumed()
    assert int(optimizer.iterations) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda module, **kw: module.SGD(0.1, momentum=0.9, **kw),
        lambda module, **kw: module.SGD(0.1, momentum=0.9, nesterov=True, **kw),
        lambda module, **kw: module.Adagrad(0.1, initial_accumulator_value=0.0, epsilon=0.3, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, momentum=0.5, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, centered=True, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, centered=True, momentum=0.5, **kw),
        lambda module, **kw: module.Adam(0.1, epsilon=0.3, **kw),
        lambda module, **kw: module.Adam(0.1, epsilon=0.3, amsgrad=True, **kw),
        lambda module, **kw: module.Adamax(0.1, epsilon=0.3, **kw),
        lambda module, **kw: module.Adadelta(0.5, epsilon=0.3, **kw),
        lambda module, **kw: module.Ftrl(0.1, l1_regularization_strength=0.1, beta=0.2, **kw),
        lambda module, **kw: module.Ftrl(0.1, l2_shrinkage_regularization_strength=0.1, **kw),
        lambda module, **kw: module.Adam(0.1, clipnorm=0.5, **kw),
        lambda module, **kw: module.SGD(0.1, global_clipnorm=0.5, **kw),
        lambda module, **kw: module.SGD(0.1, clipvalue=0.5, **kw),
        lambda module, **kw: module.SGD(tf_keras.optimizers.schedules.InverseTimeDecay(0.5, 1, 0.5), **kw),
    ],
)
@pytest.mark.parametrize("module", [tf_keras.optimizers, LEGACY], ids=["new", "legacy"])
def test_formulas_of_tf_keras(module, make, rng):
    _check_against_tf_keras(lambda: make(module), rng)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LEGACY.SGD(0.5, decay=0.5),
        lambda: LEGACY.SGD(0.5, clipvalue=0.7, clipnorm=0.9),
        lambda: LEGACY.SGD(0.5, clipvalue=0.7, global_clipnorm=0.9),
        lambda: tf_keras.optimizers.Adam(0.1, epsilon=0.5, adaptive_epsilon=True),
        lambda: tf_keras.optimizers.AdamW(0.1, weight_decay=0.5),
    ],
)
def test_options_of_tf_keras(make, rng):
    _check_against_tf_keras(make, rng)


def _check_against_tf_keras(make, rng):
    values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    table, dense = sok.Variable(values), tf.Variable(values)
    other, dense_other = tf.Variable(tf.ones(4)), tf.Variable(tf.ones(4))
    optimizer, bare = sok.OptimizerWrapper(make(), "global"), make()
    for _ in range(4):
        ids = rng.integers(0, ROWS, 8)
        gradients = rng.normal(size=(8, WIDTH)).astype(np.float32)
        summed = np.zeros((ROWS, WIDTH), np.float32)
        np.add.at(summed, ids, gradients)
        gradient = tf.constant(rng.normal(size=4), tf.float32)
        optimizer.apply_gradients([(kinds.slices(ids, gradients), table), (gradient, other)])
        bare.apply_gradients([(tf.constant(summed), dense), (gradient, dense_other)])
    np.testing.assert_allclose(table.numpy(), dense.numpy(), rtol=2e-5, atol=5e-6)
    np.testing.assert_allclose(other.numpy(), dense_other.numpy(), rtol=2e-5, atol=2e-6)
    assert int(optimizer.iterations) == int(bare.iterations) == 4


@pytest.mark.parametrize("module", [tf_keras.optimizers, LEGACY], ids=["new", "legacy"])
def test_minimize_of_tf_keras(module):
    table = sok.Variable([[1.0], [1.0]])
    layer = keras.layers.Dense(1, kernel_initializer="ones")
    layer.build([None, 1])
    optimizer = sok.OptimizerWrapper(module.SGD(0.5))
    optimizer.minimize(lambda: tf.reduce_sum(layer(sok.lookup_sparse(table, tf.constant([1])))), [table, layer.kernel])
    np.testing.assert_allclose(table.numpy(), [[1.0], [0.5]])
    np.testing.assert_allclose(layer.kernel.numpy(), [[0.5]])


def test_exclude_from_weight_decay_of_tf_keras():
    first, second = sok.Variable([[1.0]], name="first"), sok.Variable([[1.0]], name="second")
    optimizer = sok.OptimizerWrapper(tf_keras.optimizers.SGD(0.1, weight_decay=1.0))
    optimizer.exclude_from_weight_decay(var_names=["fir"])
    optimizer.apply_gradients([(kinds.slices([0], [[0]]), table) for table in (first, second)])
    np.testing.assert_allclose([first.numpy()[0, 0], second.numpy()[0, 0]], [1.0, 0.9], rtol=1e-6)

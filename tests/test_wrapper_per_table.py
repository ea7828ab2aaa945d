# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""per_table: tables with an optimizer or a learning rate of their own."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import sok

LEGACY = tf_keras.optimizers.legacy


def test_per_table_gives_a_table_its_own_optimizer_or_learning_rate():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.25])
    tables = {name: sok.Variable([[1.0]], name=name) for name in ("a", "b", "c", "d", "rest")}
    optimizer = sok.OptimizerWrapper(
        keras.optimizers.SGD(0.1, momentum=0.5),
        per_table={
            tables["a"]: keras.optimizers.Adagrad(1.0, initial_accumulator_value=0.0, epsilon=0.0),
            "b": 0.3,
            "c": schedule,
            "d": keras.optimizers.SGD(1.0, clipvalue=0.5),
        },
    )
    expected = {"a": [0, -1 + 1 - 1 / np.sqrt(2)], "b": [0.7, 0.25], "c": [0.5, 0.0], "d": [0.5, 0.0]}
    expected |= {"rest": [0.9, 0.75]}
    for number in range(2):
        optimizer.apply([kinds.slices([0], [[1]])] * 5, list(tables.values()))
        for name, table in tables.items():
            np.testing.assert_allclose(table.numpy()[0, 0], expected[name][number], rtol=1e-5, atol=1e-6)
    assert sorted(tables["b"].table.planes()) == ["momentum.momentum", "values"]
    assert sorted(tables["a"].table.planes()) == ["adagrad.accumulator", "values"]
    # A number has become an optimizer with a learning rate that can be assigned.
    optimizer.per_table["b"].learning_rate = 0.0
    optimizer.apply([kinds.slices([0], [[1]])], [tables["b"]])
    np.testing.assert_allclose(tables["b"].numpy()[0, 0], 0.25 - 0.5 * 0.45, rtol=1e-5)


def test_per_table_errors():
    make = keras.optimizers.SGD
    table = sok.Variable([[1.0]], name="items")
    optimizer = sok.OptimizerWrapper(make(0.1), per_table={"itmes": 0.2})
    with pytest.raises(ValueError, match="per_table names itmes, but the tables are items"):
        optimizer.apply_gradients([(kinds.slices([0], [[1]]), table)])
    with pytest.raises(ValueError, match="give it to the wrapped optimizer only"):
        sok.OptimizerWrapper(make(0.1), per_table={"items": make(0.1, global_clipnorm=1.0)})
    with pytest.raises(ValueError, match="loss_scale_factor spans all variables"):
        sok.OptimizerWrapper(make(0.1), per_table={"items": make(0.1, loss_scale_factor=2.0)})
    with pytest.raises(ValueError, match="cannot train tables with Nadam"):
        sok.OptimizerWrapper(make(0.1), per_table={"items": keras.optimizers.Nadam()})
    with pytest.raises(TypeError, match="use one Keras for both"):
        sok.OptimizerWrapper(tf_keras.optimizers.SGD(0.1), per_table={"items": LEGACY.SGD(0.1)})
    with pytest.raises(TypeError, match="keys are tables or their names, got 3"):
        sok.OptimizerWrapper(make(0.1), per_table={3: 0.2})
    # A learning rate of its own does not take a table out of the global norm.
    clipped = sok.OptimizerWrapper(make(1.0, global_clipnorm=1.0), per_table={"items": 0.5})
    clipped.apply_gradients([(kinds.slices([0], [[4]]), table)])
    np.testing.assert_allclose(table.numpy(), [[0.5]])


def test_per_table_of_legacy_optimizers(tmp_path):
    table = sok.Variable([[1.0]], name="items")
    optimizer = sok.OptimizerWrapper(LEGACY.SGD(0.1), per_table={"items": LEGACY.Adagrad(0.5)})
    optimizer.apply_gradients([(kinds.slices([0], [[1]]), table)])
    np.testing.assert_allclose(table.numpy(), [[1 - 0.5 / np.sqrt(1.1)]], rtol=1e-5)
    optimizer.per_table["items"].learning_rate = 0.25
    path = tf.train.Checkpoint(optimizer=optimizer).save(tmp_path / "c")
    optimizer.per_table["items"].learning_rate = 0.75
    tf.train.Checkpoint(optimizer=optimizer).restore(path)
    assert float(optimizer.per_table["items"].learning_rate) == 0.25

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Mixed precision on the CPU: 16-bit outputs over float32 rows, and training that follows float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import sok

COMPUTE = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
CLOSE = {"mixed_float16": 2e-3, "mixed_bfloat16": 1.6e-2}


def _model(policy, loss_scale=None):
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int64"),
            sok.layers.DistributedEmbedding(8, seed=4, name="ids"),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adam(0.02), loss_scale=loss_scale), "mse")
    return model


def _data(rng):
    return rng.integers(0, 50, (256, 3)), rng.normal(size=(256, 1)).astype(np.float32)


@pytest.mark.parametrize("policy", COMPUTE)
def test_rows_are_float32_and_outputs_are_not(policy):
    keras.config.set_dtype_policy(policy)
    layer = sok.layers.DistributedEmbedding(2, combiner="sum", initializer="13")
    with tf.GradientTape() as tape:
        output = layer(tf.constant([[1, 2], [1, 1]]), training=True)
        loss = tf.reduce_sum(tf.cast(output, tf.float32) * tf.constant([[1.0], [2.0]]))
    assert output.dtype == COMPUTE[policy]
    np.testing.assert_array_equal(tf.cast(output, tf.float32).numpy(), 26.0)
    assert layer.table.dtype == "float32"
    gradient = tape.gradient(loss, layer.table)
    assert gradient.values.dtype == tf.float32
    expected = {1: [5, 5], 2: [1, 1]}
    assert {int(k): v.tolist() for k, v in zip(gradient.indices, gradient.values.numpy())} == expected


@pytest.mark.parametrize("policy", COMPUTE)
def test_small_steps_are_not_lost(policy):
    """A step below the precision of the compute type adds up in the float32 row."""
    keras.config.set_dtype_policy(policy)
    layer = sok.layers.DistributedEmbedding(1, initializer="ones")
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1e-4))
    for _ in range(20):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant([[3]]), training=True))
        optimizer.apply([tape.gradient(loss, layer.table)], [layer.table])
    np.testing.assert_allclose(layer.table.numpy(), [[1 - 20e-4]], rtol=1e-6)


@pytest.mark.parametrize(
    ("policy", "loss_scale"), [("mixed_float16", "dynamic"), ("mixed_float16", 256.0), ("mixed_bfloat16", None)]
)
def test_training_follows_float32(policy, loss_scale, rng, tmp_path):
    x, y = _data(rng)
    expected = _model("float32").fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=0).history["loss"]
    model = _model(policy, loss_scale)
    history = model.fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(history, expected, rtol=CLOSE[policy])
    # Of the steps that overflow at the beginning, none is in the count.
    assert int(model.optimizer.iterations) == 24
    table = model.get_layer("ids").table
    held = sok.check_out(table)
    assert {state.dtype for name, state in held.items() if name != "ids"} == {np.dtype("float32")}
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(model.predict(x, verbose=0), loaded.predict(x, verbose=0))


def test_a_gradient_that_underflows_float16_needs_the_scale():
    keras.config.set_dtype_policy("mixed_float16")
    layer = sok.layers.DistributedEmbedding(1, initializer="ones")
    changed = {}
    for loss_scale in (None, "dynamic"):
        optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1e6), loss_scale=loss_scale)
        optimizer.build([layer.table])
        before = layer.table.numpy()
        with tf.GradientTape() as tape:
            output = tf.cast(layer(tf.constant([[3]]), training=True), tf.float32)
            loss = optimizer.scale_loss(tf.reduce_sum(output) * 1e-8)
        optimizer.apply([tape.gradient(loss, layer.table)], [layer.table])
        after = layer.table.numpy()
        changed[loss_scale] = not np.array_equal(before, after) if before.size else after[0, 0] != 1.0
    assert changed == {None: False, "dynamic": True}

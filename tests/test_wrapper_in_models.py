# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrappers in models of Keras 3: callbacks, names and configs, and training that goes on from files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import sok


def _model(optimizer, name="table"):
    keras.utils.set_random_seed(3)
    table = sok.layers.DistributedEmbedding(4, seed=5, name=name)
    model = keras.Sequential([keras.Input((3,), dtype="int64"), table, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def _data(seed=0, size=40):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 30, (size, 3)), rng.normal(size=(size, 1)).astype(np.float32)


def _fit(model, epochs=1, **kwargs):
    return model.fit(*_data(), batch_size=8, epochs=epochs, shuffle=False, verbose=0, **kwargs).history["loss"]


def test_callbacks_change_the_learning_rate():
    model = _model(sok.OptimizerWrapper(keras.optimizers.SGD(0.1)))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=0, min_delta=1e9)
    _fit(model, epochs=2, callbacks=[schedule])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.025)
    _fit(model, epochs=2, callbacks=[plateau])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.0025)


WRAPPERS = {
    "adam": lambda: sok.OptimizerWrapper(keras.optimizers.Adam(0.05)),
    "schedule": lambda: sok.OptimizerWrapper(
        keras.optimizers.Adagrad(keras.optimizers.schedules.ExponentialDecay(0.3, 3, 0.7)), "global"
    ),
    "scaled": lambda: sok.OptimizerWrapper(keras.optimizers.SGD(0.1, momentum=0.9), loss_scale="dynamic"),
    "fixed scale": lambda: sok.OptimizerWrapper(keras.optimizers.RMSprop(0.01), loss_scale=16),
    "per_table": lambda: sok.OptimizerWrapper(
        keras.optimizers.Adam(0.05), per_table={"table_table": sok.optimizers.RowWiseAdagrad(0.2)}
    ),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_steps_after_loading_equal_those_of_an_uninterrupted_run(name, tmp_path):
    model = _model(WRAPPERS[name]())
    _fit(model)
    if model.optimizer.per_table:
        model.optimizer.per_table["table_table"].learning_rate = 0.1
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "checkpoint")
    expected = _fit(model, epochs=5)

    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.get_config() == {
        **model.optimizer.get_config(), "optimizer": loaded.optimizer.get_config()["optimizer"],
        "per_table": loaded.optimizer.get_config()["per_table"],
    }  # fmt: skip
    assert int(loaded.optimizer.iterations) == 5
    np.testing.assert_allclose(_fit(loaded, epochs=5), expected, rtol=1e-6)

    from_weights = _model(WRAPPERS[name]())
    from_weights.optimizer.build(from_weights.trainable_variables)
    from_weights.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_allclose(_fit(from_weights, epochs=5), expected, rtol=1e-6)

    restored = _model(WRAPPERS[name]())
    restored.optimizer.build(restored.trainable_variables)
    status = tf.train.Checkpoint(model=restored, optimizer=restored.optimizer).restore(checkpoint)
    status.assert_existing_objects_matched()
    np.testing.assert_allclose(_fit(restored, epochs=5), expected, rtol=1e-6)


def test_names_and_configs_are_optimizers_too():
    for optimizer in ("adam", keras.optimizers.serialize(keras.optimizers.Adam())):
        wrapper = sok.OptimizerWrapper(optimizer)
        assert isinstance(wrapper.inner_optimizer, keras.optimizers.Adam)
    assert keras.optimizers.get(wrapper) is wrapper
    model = _model(wrapper)
    _fit(model)
    assert {v.name for v in wrapper.variables} >= {"iteration", "learning_rate"}

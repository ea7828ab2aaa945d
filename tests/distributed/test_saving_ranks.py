# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files and ranks: what one rank has saved loads on several; a part of a table is not saved as a whole."""

import keras
import numpy as np
import tensorflow as tf

import sok


def small_model(mode=None):
    inputs = {
        "a": keras.Input((2,), dtype="int64", name="a"),
        "b": keras.Input((), dtype="int64", name="b"),
    }
    hash_ = sok.layers.DistributedEmbedding(4, seed=1, mode=mode, name="hash")(inputs["a"])
    static = sok.layers.DistributedEmbedding(3, vocabulary_size=9, seed=2, mode=mode, name="static")
    x = keras.layers.Concatenate()([hash_, static(inputs["b"])])
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def examples():
    rng = np.random.default_rng(1)
    return {"a": rng.integers(0, 50, (30, 2)), "b": rng.integers(0, 9, 30)}, rng.normal(size=30)


def load_and_save(folder):
    """Predictions of what was loaded in three ways, and what saving says."""
    sok.init()
    x, y = examples()
    loaded = keras.saving.load_model(f"{folder}/model.keras")
    weights = small_model("localized:1")
    weights.load_weights(f"{folder}/model.weights.h5")
    restored = small_model()
    tf.train.Checkpoint(model=restored).read(f"{folder}/checkpoint").expect_partial()
    predictions = [model.predict(x, verbose=0) for model in (loaded, weights, restored)]
    # Training goes on with the loaded states.
    loaded.fit(x, y, epochs=1, batch_size=30, verbose=0)
    predictions.append(loaded.predict(x, verbose=0))
    errors = []
    for save in (
        lambda: loaded.save(f"{folder}/refused{sok.rank()}.keras"),
        lambda: tf.train.Checkpoint(model=loaded).write(f"{folder}/refused{sok.rank()}"),
    ):
        try:
            save()
        except ValueError as error:
            errors.append(str(error))
    return predictions, errors


def test_one_rank_saves_and_several_load(ranks, tmp_path):
    x, y = examples()
    model = small_model()
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adam(0.1)), "mse")
    model.fit(x, y, epochs=2, batch_size=10, verbose=0)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    want = model.predict(x, verbose=0)
    model.fit(x, y, epochs=1, batch_size=30, verbose=0)
    trained = model.predict(x, verbose=0)
    for predictions, errors in ranks.run(load_and_save, str(tmp_path)):
        for got in predictions[:3]:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        # Every rank had the same batch.
        np.testing.assert_allclose(predictions[3], trained, rtol=1e-4, atol=1e-5)
        assert len(errors) == 2, errors
        for text in errors:
            assert "is in parts on several ranks" in text
            assert "Call sok.dump(path, variables, optimizer) on every rank" in text

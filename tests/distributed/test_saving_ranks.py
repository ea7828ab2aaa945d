# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files and ranks: what one rank has saved loads on several; a part of a table is not saved as a whole."""

import pickle
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from model import export_all

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


def make_tables():
    return {
        "hash": sok.DynamicVariable(2, name="hash", seed=3),
        "static": sok.Variable(shape=(12, 2), name="static", seed=4),
    }


def assign_parts(folder):
    """What `assign` says to another rank's part, and this rank's rows after a whole table was assigned."""
    communicator = sok.init()
    rank, size = communicator.rank, communicator.size
    tables = make_tables()
    for name, table in tables.items():
        sok.lookup_sparse(table, tf.range(12), training=True)
        table.assign(table.numpy())
        Path(f"{folder}/{name}-{rank}").write_bytes(pickle.dumps(table.numpy()))
    communicator.barrier()
    texts, rows = [], []
    for name, table in tables.items():
        before = export_all([table])
        try:
            table.assign(pickle.loads(Path(f"{folder}/{name}-{(rank + 1) % size}").read_bytes()))
        except ValueError as error:
            texts.append(str(error))
        np.testing.assert_equal(export_all([table]), before)
        table.assign(pickle.loads(Path(f"{folder}/{name}").read_bytes()))
        rows += export_all([table])
    return rank, texts, rows


def test_parts_of_other_ranks_are_refused_and_whole_tables_are_divided(ranks, tmp_path):
    whole = make_tables()
    for name, table in whole.items():
        sok.assign(table, tf.range(12), np.arange(24).reshape(12, 2))
        (tmp_path / name).write_bytes(pickle.dumps(table.numpy()))
    results = ranks.run(assign_parts, str(tmp_path))
    for rank, texts, _ in results:
        there, here = f"rank {(rank + 1) % ranks.size} of {ranks.size}", f"rank {rank} of {ranks.size}"
        assert len(texts) == 2, texts
        for text in texts:
            assert f"are the rows that {there} kept, this is the table of {here}. To move rows" in text
    for number, table in enumerate(whole.values()):
        parts = [rows[number] for _, _, rows in results]
        assert sum(map(len, parts)) == 12
        np.testing.assert_equal({id_: row for part in parts for id_, row in part.items()}, export_all([table])[0])

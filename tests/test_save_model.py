# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras models whose tables lie beside the file, and what serves a SavedModel."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import zipfile

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf

import sok
from sok.checkpoint import models


def make_model(seed=1):
    inputs = {"a": keras.Input((2,), dtype="int64", name="a"), "b": keras.Input((), dtype="int64", name="b")}
    hashed = sok.layers.DistributedEmbedding(8, seed=seed, name="hashed")(inputs["a"])
    other = sok.TableConfig("other", 3, vocabulary_size=9, seed=seed)
    collected = sok.EmbeddingCollection([sok.FeatureConfig("b", other)], name="collection")({"b": inputs["b"]})
    x = keras.layers.Concatenate()([hashed, collected["b"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adam(0.05)), "mse")
    return model


@pytest.fixture
def data(rng):
    return {"a": rng.integers(-(2**62), 2**62, (60, 2)), "b": rng.integers(0, 9, 60)}, rng.normal(size=(60, 1))


def states(model):
    tables, _ = sok.filter_variables(model.variables)
    found = [sok.check_out(table) for table in tables]
    return [
        {plane: dict(zip(f["ids"].tolist(), values, strict=True)) for plane, values in f.items()} for f in found
    ]


def assert_same(a, b):
    for mine, theirs in zip(states(a), states(b), strict=True):
        assert set(mine) == set(theirs)
        for plane in mine:
            kinds.assert_rows(mine[plane], theirs[plane])


def test_tables_beside_the_file(tmp_path, data):
    """The file is small; the model that comes back goes on as the one that was saved."""
    path = tmp_path / "m.keras"
    model = make_model()
    for _ in range(2):
        model.fit(*data, epochs=1, shuffle=False, verbose=0)
        sok.save_model(model, path)
        assert len(list(tmp_path.iterdir())) == 2
    with zipfile.ZipFile(path) as file:
        weights = file.getinfo("model.weights.h5").file_size
    loaded = sok.load_model(path)
    assert_same(loaded, model)
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)
    for m in (model, loaded):
        m.fit(*data, epochs=2, shuffle=False, verbose=0)
    assert_same(loaded, model)
    np.testing.assert_array_equal(loaded.predict(data[0], verbose=0), model.predict(data[0], verbose=0))
    larger = make_model()
    larger.fit({"a": np.arange(20_000).reshape(-1, 2), "b": np.zeros(10_000)}, np.zeros(10_000), verbose=0)
    sok.save_model(larger, path)
    with zipfile.ZipFile(path) as file:
        assert abs(file.getinfo("model.weights.h5").file_size - weights) < 1000


def test_a_file_without_its_tables(tmp_path, data):
    path = tmp_path / "m.keras"
    model = make_model()
    model.fit(*data, verbose=0)
    sok.save_model(model, path)
    with pytest.raises(ValueError, match=r"lies beside it: load the model with sok\.load_model"):
        keras.models.load_model(path)
    with pytest.raises(ValueError, match=r"filepath must end with \.keras"):
        sok.save_model(model, tmp_path / "m.h5")
    with pytest.raises(ValueError, match=r"has no tables: use model\.save"):
        sok.save_model(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]), path)
    (folder,) = tmp_path.glob("*.tables-*")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path.rename(elsewhere / path.name)
    wanted = f"has its tables in a folder {folder.name}, which is not beside it: move or copy .* to {elsewhere}"
    with pytest.raises(FileNotFoundError, match=wanted):
        sok.load_model(elsewhere / path.name)
    folder.rename(elsewhere / folder.name)
    assert_same(sok.load_model(elsewhere / path.name), model)


def test_a_save_that_is_cut_off_leaves_the_last_one(tmp_path, data, monkeypatch):
    path = tmp_path / "m.keras"
    model = make_model()
    model.fit(*data, verbose=0)
    sok.save_model(model, path)
    expected = states(model)
    model.fit(*data, verbose=0)

    def die(*args, **kwargs):
        raise KeyboardInterrupt

    def die_for_the_file(new, old):
        if str(old) == str(path):
            raise KeyboardInterrupt
        os.rename(new, old)

    for owner, name, replacement in ((models.os, "replace", die_for_the_file), (type(model), "save", die)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, replacement)
            with pytest.raises(KeyboardInterrupt):
                sok.save_model(model, path)
        for mine, theirs in zip(states(sok.load_model(path)), expected, strict=True):
            kinds.assert_rows(mine["values"], theirs["values"])
    sok.save_model(model, path)
    assert sorted(p.suffix[:8] for p in tmp_path.iterdir()) == [".keras", ".tables-"]


def test_a_plain_keras_file_loads_too(tmp_path, data):
    model = make_model()
    model.fit(*data, verbose=0)
    model.save(tmp_path / "m.keras")
    assert_same(sok.load_model(tmp_path / "m.keras"), model)


_SERVE = """
import concurrent.futures, sys
import numpy as np, tensorflow as tf
import sok
folder = sys.argv[1]
loaded = tf.saved_model.load(folder + "/export")
with np.load(folder + "/ids.npz") as file:
    parts = [{k: tf.constant(file[k][i::8]) for k in ("a", "b")} for i in range(8)]
for repeat in range(20):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(loaded.serve, parts))
    if repeat:
        for mine, first in zip(outs, firsts, strict=True):
            np.testing.assert_array_equal(mine, first)
    firsts = outs
np.savez(folder + "/out.npz", *[out.numpy() for out in outs])
"""


@pytest.mark.slow
def test_eight_threads_serve_a_saved_model(tmp_path, data, rng):
    """Known ids and unknown ones; nothing is inserted, since all repetitions give the same."""
    model = make_model()
    model.fit(*data, epochs=2, verbose=0)
    model.export(tmp_path / "export", verbose=False)
    ids = {
        "a": np.concatenate([data[0]["a"], rng.integers(-(2**62), 2**62, (100, 2))]),
        "b": np.concatenate([data[0]["b"], rng.integers(0, 9, 100)]),
    }
    np.savez(tmp_path / "ids.npz", **ids)
    root = pathlib.Path(sok.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", _SERVE, str(tmp_path)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    expected = model({name: tf.constant(value) for name, value in ids.items()}).numpy()
    with np.load(tmp_path / "out.npz") as file:
        for i in range(8):
            np.testing.assert_allclose(file[f"arr_{i}"], expected[i::8], rtol=1e-6, atol=1e-7)


def test_predictions_from_threads_insert_nothing(data):
    model = make_model()
    model.fit(*data, verbose=0)
    tables, _ = sok.filter_variables(model.variables)
    before = [table.size for table in tables]
    unknown = {"a": tf.constant(data[0]["a"] + 1), "b": tf.constant(data[0]["b"])}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(lambda _: model(unknown).numpy(), range(16))
    for out in others:
        np.testing.assert_array_equal(out, first)
    assert [table.size for table in tables] == before

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""`sok.dump` and `sok.load` on one rank: what comes back, and what is left alone."""

import json
import os
import pathlib

import keras
import kinds
import moved_dumps
import numpy as np
import pandas
import pytest
import reference
import safetensors.numpy
import tensorflow as tf

import sok
from sok.checkpoint import reader, shards, writer

WIDTH = 3
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "rowwise_adagrad": lambda: sok.optimizers.RowWiseAdagrad(0.1),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.1, momentum=0.5, centered=True),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "amsgrad": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "adamw": lambda: keras.optimizers.AdamW(0.1),
    "adamax": lambda: keras.optimizers.Adamax(0.1),
    "adadelta": lambda: keras.optimizers.Adadelta(0.1),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
}


def contents(table):
    """All that a table holds, by plane and id."""
    found = sok.check_out(table)
    ids = found.pop("ids").tolist()
    return {plane: dict(zip(ids, values, strict=True)) for plane, values in found.items()}


def assert_same(actual, expected):
    a, b = contents(actual), contents(expected)
    assert set(a) == set(b)
    for plane in a:
        kinds.assert_rows(a[plane], b[plane])


class Trainer:
    """Two tables and a dense weight under one optimizer."""

    def __init__(self, optimizer, dtype="float32", seed=1, **wrapper):
        self.hashed = sok.DynamicVariable(WIDTH, name="hashed", initializer="normal", seed=seed, dtype=dtype)
        self.static = sok.Variable(shape=(11, 2), name="static", initializer="normal", seed=seed)
        self.dense = tf.Variable(np.linspace(-1, 1, WIDTH + 2, dtype=np.float32)[:, None], name="dense")
        self.optimizer = sok.OptimizerWrapper(OPTIMIZERS[optimizer](), **wrapper)
        self.variables = [self.hashed, self.static, self.dense]

    def step(self, number):
        rng = np.random.default_rng(number)
        ids = rng.choice(reference.SENTINELS["int64"] + list(range(2, 40)), (8, 2))
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse([self.hashed, self.static], [ids, np.abs(ids % 11)], combiners="sum")
            joined = tf.concat([tf.cast(x, tf.float32) for x in rows], 1)
            loss = tf.reduce_mean(tf.square(joined @ self.dense - 1.0))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.variables), self.variables, strict=True))
        return float(loss)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_five_steps_after_resuming_equal_an_uninterrupted_run(tmp_path, optimizer):
    trainer = Trainer(optimizer)
    for i in range(4):
        trainer.step(i)
    sok.dump(tmp_path / "d", trainer.variables, trainer.optimizer)
    resumed = Trainer(optimizer, seed=99)
    result = sok.load(tmp_path / "d", resumed.variables, resumed.optimizer)
    assert result.step == 4
    assert int(resumed.optimizer.iterations) == 4
    assert_same(resumed.hashed, trainer.hashed)
    assert_same(resumed.static, trainer.static)
    losses = [[t.step(i) for i in range(4, 9)] for t in (trainer, resumed)]
    assert losses[0] == losses[1]
    assert_same(resumed.hashed, trainer.hashed)
    assert_same(resumed.static, trainer.static)
    np.testing.assert_array_equal(resumed.dense, trainer.dense)


def test_lazy_updates_are_caught_up(tmp_path):
    trainer, resumed = (Trainer("momentum", update="lazy_global") for _ in range(2))
    for i in range(4):
        trainer.step(i)
    sok.dump(tmp_path / "d", trainer.variables, trainer.optimizer)
    sok.load(tmp_path / "d", resumed.variables, resumed.optimizer)
    for i in range(4, 7):
        np.testing.assert_allclose(resumed.step(i), trainer.step(i), rtol=1e-6)
    for plane in ("values", "momentum.momentum"):
        kinds.assert_rows(contents(resumed.hashed)[plane], contents(trainer.hashed)[plane], rtol=1e-6, atol=1e-7)


def test_dynamic_loss_scale(tmp_path):
    trainer, resumed = (Trainer("adam", loss_scale="dynamic") for _ in range(2))
    trainer.step(0)
    trainer.optimizer.dynamic_scale.assign(64.0)
    sok.dump(tmp_path / "d", trainer.variables, trainer.optimizer)
    sok.load(tmp_path / "d", resumed.variables, resumed.optimizer)
    assert float(resumed.optimizer.dynamic_scale) == 64.0


@pytest.mark.parametrize("legacy", [False, True], ids=["new", "legacy"])
def test_optimizers_of_tf_keras(tmp_path, legacy):
    tf_keras = pytest.importorskip("tf_keras")
    space = tf_keras.optimizers.legacy if legacy else tf_keras.optimizers
    trainer, resumed = Trainer("sgd"), Trainer("sgd")
    for t in (trainer, resumed):
        t.optimizer = sok.OptimizerWrapper(space.Adam(0.1))
    for i in range(3):
        trainer.step(i)
    sok.dump(tmp_path / "d", trainer.variables, trainer.optimizer)
    sok.load(tmp_path / "d", resumed.variables, resumed.optimizer)
    assert [trainer.step(i) for i in range(3, 6)] == [resumed.step(i) for i in range(3, 6)]
    assert_same(resumed.hashed, trainer.hashed)


@pytest.mark.parametrize("dtype", reference.ROW_DTYPES)
def test_rows_of_every_type(tmp_path, dtype, rng):
    rows = kinds.random_rows(rng, reference.SENTINELS["int64"], 5)
    table, _ = kinds.table_of(rows, dtype=dtype, name="t")
    sok.dump(tmp_path, table)
    other = sok.DynamicVariable(5, dtype=dtype, name="t")
    sok.load(tmp_path, other)
    assert_same(other, table)


@pytest.mark.parametrize("key_type", reference.KEY_DTYPES)
def test_keys_of_every_type(tmp_path, key_type, rng):
    ids = reference.SENTINELS[key_type]
    table, _ = kinds.table_of(kinds.random_rows(rng, ids, 2), key_type=key_type, name="t")
    sok.dump(tmp_path, table)
    other = sok.DynamicVariable(2, key_type=key_type, name="t")
    sok.load(tmp_path, other)
    assert_same(other, table)
    assert set(kinds.export_as_dict(other)) == set(ids)


def test_narrow_keys_go_into_a_wide_table(tmp_path):
    table, _ = kinds.table_of({-(2**31): [1.0], 2**31 - 1: [2.0]}, key_type="int32", name="t")
    sok.dump(tmp_path, table)
    wide = sok.DynamicVariable(1, key_type="int64", name="t")
    sok.load(tmp_path, wide)
    kinds.assert_rows(kinds.export_as_dict(wide), {-(2**31): [1.0], 2**31 - 1: [2.0]})
    with pytest.raises(ValueError, match="'t' has keys of the type int32, the variable uint64"):
        sok.load(tmp_path, sok.DynamicVariable(1, key_type="uint64", name="t"))


def test_an_empty_table_and_a_fresh_optimizer(tmp_path):
    trainer, resumed = Trainer("adam"), Trainer("adam", seed=5)
    sok.dump(tmp_path, trainer.variables, trainer.optimizer)
    sok.load(tmp_path, resumed.variables, resumed.optimizer)
    assert resumed.hashed.size == [0, WIDTH]
    assert [trainer.step(i) for i in range(3)] == [resumed.step(i) for i in range(3)]
    assert_same(resumed.hashed, trainer.hashed)


def test_loading_replaces_what_was_there(tmp_path):
    table = sok.DynamicVariable(2, name="t", max_capacity=4)
    sok.assign(table, [1, 2, 3], np.arange(6.0).reshape(3, 2))
    sok.dump(tmp_path, table)
    other = sok.DynamicVariable(2, name="t", max_capacity=4)
    sok.assign(other, [3, 4, 5, 6], np.ones((4, 2)))
    sok.load(tmp_path, other)
    assert_same(other, table)


def test_seed_travels_with_the_rows(tmp_path):
    table, other = (sok.DynamicVariable(2, name="t", initializer="normal", seed=s) for s in (1, 2))
    sok.dump(tmp_path, table)
    sok.load(tmp_path, other)
    np.testing.assert_array_equal(sok.lookup_sparse(other, [[5]]), sok.lookup_sparse(table, [[5]]))


def test_several_shards_and_dumps_one_after_the_other(tmp_path, monkeypatch):
    """Small shards; a second dump takes the first one's place and leaves nothing of it."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 1000)
    table = sok.DynamicVariable(4, name="a.b: c", initializer="normal")
    for upto in (100, 1000):
        sok.lookup_sparse(table, tf.reshape(tf.range(upto, dtype=tf.int64), [-1, 1]))
        assert sok.dump(tmp_path, table).rows == upto
        held = reader.read_manifest(tmp_path)
        assert len(held.tables[0].shards) > upto * 24 // 1000
        assert sorted(os.listdir(tmp_path)) == sorted([held.generation, "manifest.json"])
        other = sok.DynamicVariable(4, name="a.b: c")
        sok.load(tmp_path, other)
        assert_same(other, table)


def test_numpy_and_pandas_read_a_dump(tmp_path):
    trainer = Trainer("adam")
    trainer.step(0)
    sok.dump(tmp_path, trainer.hashed)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (shard,) = manifest["tables"][0]["shards"]
    arrays = safetensors.numpy.load_file(tmp_path / manifest["generation"] / shard["file"])
    frame = pandas.DataFrame(arrays["values"], index=arrays["keys"])
    expected = kinds.export_as_dict(trainer.hashed)
    assert len(frame) == len(expected)
    kinds.assert_rows({int(i): row.to_numpy() for i, row in frame.iterrows()}, expected)
    assert arrays["adam.m"].shape == arrays["values"].shape


def test_values_only_says_that_states_start_anew(tmp_path):
    trainer = Trainer("adagrad")
    trainer.step(0)
    sok.dump(tmp_path, trainer.variables, trainer.optimizer)
    other = Trainer("adagrad")
    other.step(5)
    with pytest.warns(UserWarning, match=r"'hashed': loaded without the states adagrad\.accumulator, which start anew"):
        result = sok.load(tmp_path, [other.hashed, other.static], values_only=True)
    assert result.fresh_states["hashed"] == ("adagrad.accumulator",)
    kinds.assert_rows(kinds.export_as_dict(other.hashed), kinds.export_as_dict(trainer.hashed))
    for row in contents(other.hashed)["adagrad.accumulator"].values():
        np.testing.assert_allclose(row, 0.1)
    kinds.assert_rows(contents(other.static)["values"], contents(trainer.static)["values"])
    for row in contents(other.static)["adagrad.accumulator"].values():
        np.testing.assert_allclose(row, 0.1)


def test_strict(tmp_path):
    trainer = Trainer("adagrad", dtype="bfloat16")
    trainer.step(0)
    sok.dump(tmp_path, [trainer.hashed, trainer.static])
    with pytest.raises(ValueError, match="also has the tables 'static', which load_vars leaves out"):
        sok.load(tmp_path, trainer.hashed)
    sok.load(tmp_path, trainer.hashed, strict=False)
    other = Trainer("adam")
    with pytest.raises(ValueError, match=r"'hashed' has rows of the type bfloat16, the variable float32"):
        sok.load(tmp_path, [other.hashed, other.static])
    trainer.optimizer = sok.OptimizerWrapper(keras.optimizers.Adam())
    with pytest.raises(ValueError, match=r"'hashed' has no state 'adam.m', 'adam.v'; it has 'adagrad"):
        sok.load(tmp_path, [trainer.hashed, trainer.static], trainer.optimizer)
    with pytest.warns(UserWarning, match="without the states adam"):
        sok.load(tmp_path, [other.hashed, other.static], other.optimizer, strict=False)
    kinds.assert_rows(contents(other.hashed)["values"], contents(trainer.hashed)["values"])


def test_variables_by_name(tmp_path):
    table = sok.DynamicVariable(1, name="t")
    dense = keras.Variable(np.float32([1.0, 2.0]), name="w")
    flag = tf.Variable(True, name="flag")
    sok.dump(tmp_path, {"x": table, "w": dense, "flag": flag}, step=12)
    dense.assign([0.0, 0.0])
    flag.assign(False)
    assert sok.load(tmp_path, {"x": table, "w": dense, "flag": flag}).step == 12
    np.testing.assert_array_equal(dense, [1.0, 2.0])
    assert bool(flag)
    with pytest.raises(ValueError, match="has no variable 'v'"):
        sok.load(tmp_path, {"x": table, "v": dense})
    with pytest.raises(ValueError, match=r"'w' of the variables is float32 \[2\], here float32 \[3\]"):
        sok.load(tmp_path, {"x": table, "w": keras.Variable(np.zeros(3, np.float32))}, strict=False)


def test_bad_arguments(tmp_path):
    first, second = (sok.DynamicVariable(1, name="same") for _ in range(2))
    with pytest.raises(ValueError, match="dump_vars has two variables of the name 'same'"):
        sok.dump(tmp_path, [first, second])
    with pytest.raises(TypeError, match="expected tables and variables, got ndarray"):
        sok.dump(tmp_path, [np.zeros(3)])
    with pytest.raises(FileNotFoundError, match="holds no dump"):
        sok.load(tmp_path, first)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="is a file; a dump is a folder"):
        sok.dump(tmp_path / "file", first)
    with pytest.raises(ValueError, match="fsspec cannot open it"):
        sok.dump("nosuchstore://bucket/x", first)
    with pytest.raises(RuntimeError, match=r"outside of tf\.function"):
        tf.function(lambda: sok.dump(tmp_path, first))()
    assert pathlib.Path(tmp_path / "file").read_text() == "x"


def test_not_blocking(tmp_path, monkeypatch):
    """The dump holds the moment of the call, whatever training does meanwhile."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 2000)
    trainer = Trainer("adam")
    sok.lookup_sparse(trainer.hashed, tf.reshape(tf.range(3000, dtype=tf.int64), [-1, 1]))
    for i in range(3):
        trainer.step(i)
    expected = [contents(trainer.hashed), contents(trainer.static), trainer.dense.numpy()]
    handle = sok.dump(tmp_path, trainer.variables, trainer.optimizer, blocking=False)
    for i in range(3, 8):
        trainer.step(i)
        sok.erase(trainer.hashed, tf.range(i * 100, i * 100 + 50, dtype=tf.int64))
        sok.lookup_sparse(trainer.hashed, tf.reshape(tf.range(i * 4000, i * 4000 + 4000, dtype=tf.int64), [-1, 1]))
    result = handle.result()
    assert handle.done()
    assert result.rows == len(expected[0]["values"]) + 11
    resumed = Trainer("adam", seed=7)
    sok.load(tmp_path, resumed.variables, resumed.optimizer)
    assert int(resumed.optimizer.iterations) == 3
    for table, held in zip((resumed.hashed, resumed.static), expected, strict=False):
        found = contents(table)
        assert set(found) == set(held)
        for plane in held:
            kinds.assert_rows(found[plane], held[plane])
    np.testing.assert_array_equal(resumed.dense, expected[2])


@pytest.mark.parametrize("spelling", ["{}/", "{}/../{name}", "file://{}", "relative"])
def test_dumps_to_one_place_wait_for_each_other_however_it_is_spelled(tmp_path, monkeypatch, spelling):
    folder = tmp_path / "dumps"
    monkeypatch.chdir(tmp_path)
    other = "dumps" if spelling == "relative" else spelling.format(folder, name="dumps")
    table = sok.DynamicVariable(WIDTH, initializer="normal")
    sok.lookup_sparse(table, tf.range(20_000, dtype=tf.int64)[:, None])
    handle = sok.dump(folder, table, blocking=False)
    sok.dump(other, table)
    handle.result()
    loaded = sok.DynamicVariable(WIDTH, name=table.name)
    sok.load(folder, {table.name: loaded})
    assert_same(loaded, table)


@pytest.mark.parametrize("step", [-1, 2**62 + 1, True, 3.0, "7"])
def test_a_step_that_could_not_be_read_again_is_refused(tmp_path, step):
    table = sok.DynamicVariable(WIDTH, name="t", initializer="ones")
    sok.lookup_sparse(table, tf.constant([[1]]))
    sok.dump(tmp_path, table, step=5)
    with pytest.raises((TypeError, ValueError), match="step must be an integer from 0 on"):
        sok.dump(tmp_path, table, step=step)
    assert sok.load(tmp_path, table).step == 5


def test_shards_that_somebody_removed_keep_the_old_dump(tmp_path, monkeypatch):
    table = sok.DynamicVariable(WIDTH, name="t", initializer="ones")
    sok.lookup_sparse(table, tf.constant([[1]]))
    sok.dump(tmp_path, table, step=1)
    finish = writer._Dump._finish

    def without_shards(self, described, rows, written):
        for file in (tmp_path / self._generation).glob("*.safetensors"):
            file.unlink()
        finish(self, described, rows, written)

    monkeypatch.setattr(writer._Dump, "_finish", without_shards)
    with pytest.raises(ValueError, match="is missing"):
        sok.dump(tmp_path, table, step=2)
    assert sok.load(tmp_path, table).step == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["static", "hash"])
def test_there_and_back(tmp_path, monkeypatch, kind, dtype):
    monkeypatch.setattr(shards, "SHARD_BYTES", 2000)
    moved_dumps.there_and_back(tmp_path, None, None, kind, dtype)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments that are wrong: the error names them, nothing is written, and nothing changes."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf

import sok

EMPTY = "is empty: pass at least one table or variable"
NO_VARIABLES = "expected tables and variables, got"
NO_OPTIMIZER = "optimizer must be a sok.OptimizerWrapper or another optimizer, got"


@pytest.fixture
def table():
    table = sok.DynamicVariable(2, name="t", initializer="normal")
    sok.lookup_sparse(table, tf.range(50)[:, None])
    return table


@pytest.fixture
def dump(tmp_path, table):
    """A folder with a dump of the table."""
    sok.dump(tmp_path / "d", table, step=5)
    return tmp_path / "d"


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_refused(dump, call, error, match):
    before = files_of(dump)
    with pytest.raises(error, match=match):
        call()
    assert files_of(dump) == before
    assert len(list(dump.iterdir())) == 2


PATHS = [
    (None, TypeError, "path must be a folder or a URL, as a string or a Path, got None"),
    (5, TypeError, "path must be a folder or a URL, as a string or a Path, got 5"),
    (b"x", TypeError, "path must be a folder or a URL, as a string or a Path, got b'x'"),
    ("", ValueError, "path must be the name of a folder or a URL, got ''"),
    ("a\0b", ValueError, r"path must be the name of a folder or a URL, got 'a\\x00b'"),
    ("\ud800", ValueError, r"path must be the name of a folder or a URL, got '\\ud800'"),
    ("nosuch://x", ValueError, "nosuch://x: fsspec cannot open it"),
]


@pytest.mark.parametrize(("path", "error", "match"), PATHS, ids=[ascii(path) for path, *_ in PATHS])
def test_paths(table, path, error, match):
    before = kinds.export_as_dict(table)
    for call in (sok.dump, sok.load):
        with pytest.raises(error, match=match):
            call(path, table)
    with pytest.raises(error, match=match):
        sok.checkpoint.read_manifest(path)
    kinds.assert_rows(kinds.export_as_dict(table), before)


def test_a_path_that_is_a_file(dump, table):
    path = dump / "manifest.json"
    for call in (sok.dump, sok.load):
        assert_refused(dump, lambda call=call: call(path, table), NotADirectoryError, "is a file; a dump is a folder")
    assert_refused(dump, lambda: sok.dump(path / "below", table), NotADirectoryError, "manifest.json")


def test_variables(dump, table):
    for given, error, match in (
        (None, TypeError, f"{NO_VARIABLES} NoneType: None"),
        ("t", TypeError, f"{NO_VARIABLES} str: 't'"),
        ([table, None], TypeError, f"{NO_VARIABLES} NoneType"),
        ([[table]], TypeError, f"{NO_VARIABLES} list"),
        ({"t": [table]}, TypeError, f"{NO_VARIABLES} list"),
        (np.ones(3), TypeError, f"{NO_VARIABLES} ndarray"),
        ({0: table}, TypeError, "is a dict from names to variables: the name 0 must be a string"),
        ({0: tf.Variable(1.0)}, TypeError, "is a dict from names to variables: the name 0 must be a string"),
        ({"": table}, TypeError, "the name '' must be a string"),
        ([], ValueError, EMPTY),
        ((), ValueError, EMPTY),
        ({}, ValueError, EMPTY),
    ):
        assert_refused(dump, lambda given=given: sok.dump(dump, given), error, f"dump_vars.*{match}")
        assert_refused(dump, lambda given=given: sok.load(dump, given), error, f"load_vars.*{match}")


def test_one_table_under_two_names(tmp_path):
    """A dump of both may go into two tables; only one of them could go into one."""
    table, weight = sok.DynamicVariable(2, name="t"), tf.Variable([1.0, 2.0])
    sok.assign(table, [1, 2], np.ones((2, 2)))
    sok.dump(tmp_path, {"x": table, "y": table, "v": weight, "w": weight})
    before = kinds.export_as_dict(table)
    others = [sok.DynamicVariable(2), sok.DynamicVariable(2)]
    weights = [tf.Variable([0.0, 0.0]), tf.Variable([0.0, 0.0])]
    for kind, names, given in (
        ("table", "'x' and 'y'", {"x": table, "y": table, "v": weights[0], "w": weights[1]}),
        ("variable", "'v' and 'w'", {"x": others[0], "y": others[1], "v": weight, "w": weight}),
    ):
        match = f"load_vars has one {kind} under the names {names}, .*: give each a {kind} of its own"
        with pytest.raises(ValueError, match=match):
            sok.load(tmp_path, given)
    kinds.assert_rows(kinds.export_as_dict(table), before)
    sok.load(tmp_path, {"x": others[0], "y": others[1], "v": weights[0], "w": weights[1]})
    for other in others:
        kinds.assert_rows(kinds.export_as_dict(other), before)


def test_an_optimizer_alone(tmp_path):
    """There may be no tables, if there is something else."""
    weight = tf.Variable([1.0])
    optimizers = [keras.optimizers.Adam(rate) for rate in (0.1, 0.2)]
    for optimizer in optimizers:
        optimizer.build([weight])
    sok.dump(tmp_path, [], optimizers[0])
    sok.load(tmp_path, [], optimizers[1])
    assert float(optimizers[1].learning_rate) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "optimizer", [5, "adam", keras.optimizers.Adam, [], object()], ids=["number", "name", "class", "list", "object"]
)
def test_optimizers(dump, table, optimizer):
    assert_refused(dump, lambda: sok.dump(dump, table, optimizer), TypeError, NO_OPTIMIZER)
    assert_refused(dump, lambda: sok.load(dump, table, optimizer), TypeError, NO_OPTIMIZER)


@pytest.mark.parametrize(
    ("step", "error"),
    [(-1, ValueError), (2**62 + 1, ValueError), (True, TypeError), (1.0, TypeError), ("1", TypeError)],
    ids=repr,
)
def test_steps(dump, table, step, error):
    match = f"step must be an integer from 0 on.*, got {step!r}"
    assert_refused(dump, lambda: sok.dump(dump, table, step=step), error, match)


@pytest.mark.parametrize("step", [0, np.int32(7), 2**62])
def test_steps_of_every_size(tmp_path, table, step):
    sok.dump(tmp_path, table, step=step)
    assert sok.load(tmp_path, table).step == step


@pytest.mark.parametrize("value", ["False", 1, [], None], ids=repr)
def test_switches(dump, table, value):
    match = "must be True or False, got"
    for name in ("blocking", "values_only"):
        call = lambda name=name: sok.dump(dump, table, **{name: value})  # noqa: E731
        assert_refused(dump, call, TypeError, f"{name} {match}")
    for name in ("strict", "values_only"):
        call = lambda name=name: sok.load(dump, table, **{name: value})  # noqa: E731
        assert_refused(dump, call, TypeError, f"{name} {match}")
    if value is not None:
        for call in (sok.dump, sok.load):
            with pytest.raises(TypeError, match="progress must be True, False or None, got"):
                call(dump, table, progress=value)


@pytest.mark.parametrize("options", ["anon", [], {1: 2}], ids=repr)
def test_storage_options(dump, table, options):
    for call in (sok.dump, sok.load):
        with pytest.raises(TypeError, match="storage_options must be a dict for fsspec, or None, got"):
            call(dump, table, storage_options=options)


def test_saved_models(tmp_path):
    model = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(4)])
    (tmp_path / "folder.keras").mkdir()
    for arguments, error, match in (
        ((None, tmp_path / "m.keras"), TypeError, "model must be a Keras model, got None"),
        ((model, None), TypeError, "filepath must be a string or a Path, got None"),
        ((model, b"m.keras"), TypeError, "filepath must be a string or a Path, got b'm.keras'"),
        ((model, tmp_path / "m.h5"), ValueError, "filepath must end with .keras"),
        ((model, tmp_path / "folder.keras"), IsADirectoryError, "is a folder: filepath must be the name of a file"),
    ):
        with pytest.raises(error, match=match):
            sok.save_model(*arguments)
    with pytest.raises(TypeError, match="progress must be True, False or None"):
        sok.save_model(model, tmp_path / "m.keras", progress="no")
    with pytest.raises(TypeError, match="filepath must be a string or a Path, got None"):
        sok.load_model(None)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.keras"]

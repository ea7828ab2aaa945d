# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of arrays, Parquet and SOK 2 that are refused: no table has changed, and the right ones load afterwards."""

import keras
import kinds
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf
from test_dump_import import sok2_dump

import sok
from sok import checkpoint

BEFORE = {7: [9.0, 9.0], 100: [8.0, 8.0]}


def table_with_rows(**kwargs):
    table = sok.DynamicVariable(2, name="t", **kwargs)
    sok.assign(table, list(BEFORE), np.asarray(list(BEFORE.values())))
    return table


def static_table(name="t"):
    return sok.Variable(np.full((5, 2), 9.0, np.float32), name=name)


def contents(table):
    return {key: row.tolist() for key, row in kinds.export_as_dict(table).items()}, table.table.planes()


def write_file(path, ids, rows, ids_type=None, rows_type=None):
    path.parent.mkdir(exist_ok=True)
    columns = {"key": pyarrow.array(ids, ids_type), "vector": pyarrow.array(rows, rows_type)}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def rows_of(ids):
    return [[float(i), float(-i)] for i in range(len(ids))]


def assert_refused(table, match, call, error=ValueError):
    before = contents(table)
    with pytest.raises(error, match=match):
        call()
    assert contents(table) == before


# Each: the second of two files, and what is wrong with it.
SECOND_FILES = {
    "twice": ([3, 3], {}, "the id 3 occurs twice, in .*b.parquet: keep one row"),
    "in the first too": ([3, 1], {}, "the id 1 occurs twice, in .*a.parquet and in .*b.parquet: keep one row"),
    "unsigned": ([3, 2**64 - 1], {"ids_type": pyarrow.uint64()},
                 "b.parquet: the id 18446744073709551615 at position 1 does not fit the key type int64"),
    "float ids": ([3.0, 4.0], {}, "b.parquet: the column 'key' is double; ids are integers"),
    "string ids": (["3", "4"], {}, "b.parquet: the column 'key' is string; ids are integers"),
    "bool ids": ([True, False], {}, "b.parquet: the column 'key' is bool; ids are integers"),
    "times as ids": ([3, 4], {"ids_type": pyarrow.timestamp("s")}, "'key' is timestamp.*; ids are integers"),
    "null ids": ([3, None], {}, "b.parquet: the columns 'key' and 'vector' may not have nulls"),
    "strings": ([3, 4], {"rows": [["1.5", "2"]] * 2}, "'vector' is list<.*string>; rows are lists of numbers"),
    "bools": ([3, 4], {"rows": [[True, False]] * 2}, "'vector' is list<.*bool>; rows are lists of numbers"),
    "times": ([3, 4], {"rows": [[1, 2]] * 2, "rows_type": pyarrow.list_(pyarrow.timestamp("s"))},
              "the column 'vector' is list<.*timestamp.*; rows are lists of numbers"),
    "nested": ([3, 4], {"rows": [[[1.0], [2.0]]] * 2}, "'vector' is list<.*list<.*; rows are lists of numbers"),
    "numbers": ([3, 4], {"rows": [1.0, 2.0]}, "b.parquet: the column 'vector' is double; rows are lists"),
    "short": ([3, 4], {"rows": [[1.0, 2.0], [1.0]]}, "b.parquet: a vector has 1 numbers, the table 't' has"),
    "a null": ([3, 4], {"rows": [[1.0, None]] * 2}, "b.parquet: the columns 'key' and 'vector' may not have nulls"),
}  # fmt: skip


@pytest.mark.parametrize("case", SECOND_FILES)
def test_a_second_parquet_file_that_is_refused(tmp_path, case):
    ids, options, match = SECOND_FILES[case]
    folder = tmp_path / "rows"
    write_file(folder / "a.parquet", [1, 2], [[1.0, 2.0], [3.0, 4.0]])
    write_file(folder / "b.parquet", ids, **{"rows": rows_of(ids), **options})
    table = table_with_rows()
    assert_refused(table, match, lambda: checkpoint.load_parquet(table, folder))
    write_file(folder / "b.parquet", [2**40, 7], [[5.0, 6.0], [7.0, 8.0]])
    assert checkpoint.load_parquet(table, folder) == 4
    kinds.assert_rows(
        kinds.export_as_dict(table),
        {1: [1.0, 2.0], 2: [3.0, 4.0], 2**40: [5.0, 6.0], 7: [7.0, 8.0], 100: BEFORE[100]},
    )


def test_parquet_files_with_other_columns_or_none(tmp_path):
    table = table_with_rows()
    write_file(tmp_path / "x" / "a.parquet", [1], rows_of([1]))
    write_file(tmp_path / "x" / "b.parquet", [2], rows_of([1]))
    pyarrow.parquet.write_table(pyarrow.table({"id": [2], "vector": [[1.0, 2.0]]}), tmp_path / "x" / "b.parquet")
    match = "b.parquet has no column 'key'; it has id, vector"
    assert_refused(table, match, lambda: checkpoint.load_parquet(table, tmp_path / "x"))
    (tmp_path / "x" / "b.parquet").write_bytes(b"no file of this kind")
    assert_refused(table, "b.parquet", lambda: checkpoint.load_parquet(table, tmp_path / "x"))
    (tmp_path / "none").mkdir()
    assert_refused(table, "none has no Parquet files", lambda: checkpoint.load_parquet(table, tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        checkpoint.load_parquet(table, tmp_path / "nowhere")


def test_parquet_files_of_many_pieces_and_types(tmp_path, monkeypatch):
    """Ids of any integer type, as long as each of them fits; pieces of four rows."""
    monkeypatch.setattr(checkpoint.imported, "PIECE_BYTES", 64)
    ids = np.arange(-10, 40)
    rows = np.arange(100, dtype=np.float32).reshape(50, 2)
    for name, part, ids_type in (("a", slice(0, 10), pyarrow.int64()), ("b", slice(10, 50), pyarrow.uint8())):
        write_file(tmp_path / f"{name}.parquet", ids[part].tolist(), rows[part].tolist(), ids_type)
    for key_type in ("int32", "int64"):
        table = sok.DynamicVariable(2, key_type=key_type)
        assert checkpoint.load_parquet(table, tmp_path) == 50
        kinds.assert_rows(kinds.export_as_dict(table), dict(zip(ids.tolist(), rows, strict=True)))
    table = sok.DynamicVariable(2, name="u", key_type="uint64")
    match = "a.parquet: the id -10 at position 0 does not fit the key type uint64 of the table 'u'"
    assert_refused(table, match, lambda: checkpoint.load_parquet(table, tmp_path))
    assert checkpoint.load_parquet(table, tmp_path / "b.parquet") == 40


@pytest.mark.parametrize("ways", ["rows", "parquet", "sok2"])
@pytest.mark.parametrize("case", ["static", "negative", "int32", "room", "twice"])
def test_ids_that_do_not_fit(tmp_path, ways, case):
    make, ids, match, error = {
        "static": (static_table, [0, 3, 5],
                   "the id 5 at position 2 is out of range: the table 't' has 5 rows", ValueError),
        "negative": (static_table, [0, -1], "the id -1 at position 1 is out of range: the table 't'", ValueError),
        "int32": (lambda: table_with_rows(key_type="int32"), [1, 2**31, 2**40],
                  "the id 2147483648 at position 1 does not fit the key type int32 of the table 't'", ValueError),
        "room": (lambda: table_with_rows(max_capacity=4), [1, 2, 3, 7],
                 "3 new ids do not fit: it holds 2 of at most 4 rows", tf.errors.ResourceExhaustedError),
        "twice": (table_with_rows, [4, 3, 4], "the id 4 occurs twice", ValueError),
    }[case]  # fmt: skip

    def load(ids):
        rows = np.asarray(rows_of(ids), np.float32)
        if ways == "rows":
            return checkpoint.load_rows(table, ids, rows)
        if ways == "parquet":
            write_file(tmp_path / "a.parquet", ids, rows.tolist(), pyarrow.int64())
            return checkpoint.load_parquet(table, tmp_path / "a.parquet")
        sok2_dump(tmp_path, "t", np.asarray(ids), rows)
        return checkpoint.load_sok2(tmp_path, table)["t"]

    table = make()
    assert_refused(table, match, lambda: load(ids), error)
    right = [4, 0, 2] if table.is_static else [7, 1, 3]
    assert load(right) == 3
    found = kinds.export_as_dict(table)
    for key, row in zip(right, rows_of(right), strict=True):
        np.testing.assert_array_equal(found[key], row)


@pytest.mark.parametrize("case", ["room", "int32", "twice", "cut"])
def test_a_second_table_of_sok2_that_is_refused(tmp_path, case):
    """Nor does the first one get rows, or states."""
    ids, rows = np.asarray([1, -1, 2**40]), np.arange(6, dtype=np.float32).reshape(3, 2)
    states = {"accumulator": rows + 1}
    second_ids = np.asarray([1, 5, 1]) if case == "twice" else ids
    for name, keys in (("first", ids), ("static", np.arange(3)), ("second", second_ids)):
        sok2_dump(tmp_path, name, keys, rows, optimizer="Adagrad", states=states)
    if case == "cut":
        (tmp_path / "second-Adagrad-accumulator").write_bytes(b"")
    first, static = sok.DynamicVariable(2, name="first"), sok.Variable(np.ones((4, 2), np.float32), name="static")
    options = {"room": {"max_capacity": 2}, "int32": {"key_type": "int32"}}.get(case, {})
    second = sok.DynamicVariable(2, name="second", **options)
    match, error = {
        "room": ("table 'second': 3 new ids do not fit", tf.errors.ResourceExhaustedError),
        "int32": ("second-key: the id 1099511627776 at position 2 does not fit the key type int32", ValueError),
        "twice": ("second-key: the id 1 occurs twice", ValueError),
        "cut": ("second-Adagrad-accumulator has 0 bytes, less than the header", ValueError),
    }[case]
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1))
    tables = [first, static, second]
    before = [contents(table) for table in tables]
    with pytest.raises(error, match=match):
        checkpoint.load_sok2(tmp_path, tables, optimizer)
    assert [contents(table) for table in tables] == before
    sok2_dump(tmp_path, "second", ids, rows, optimizer="Adagrad", states=states)
    tables[2] = sok.DynamicVariable(2, name="second")
    assert checkpoint.load_sok2(tmp_path, tables, optimizer) == {"first": 3, "static": 3, "second": 3}
    for table in (first, tables[2]):
        kinds.assert_rows(kinds.export_as_dict(table), dict(zip(ids.tolist(), rows, strict=True)))
        assert set(table.table.planes()) == {"values", "adagrad.accumulator"}


def test_keys_of_sok2_are_taken_by_value(tmp_path):
    """int64 keys that all fit 32 bits, negative ones too."""
    sok2_dump(tmp_path, "t", np.asarray([-(2**31), -1, 2**31 - 1]), np.ones((3, 2), np.float32))
    table = sok.DynamicVariable(2, name="t", key_type="int32")
    assert checkpoint.load_sok2(tmp_path, table) == {"t": 3}
    assert set(kinds.export_as_dict(table)) == {-(2**31), -1, 2**31 - 1}


def test_a_folder_in_the_place_of_a_file_of_sok2(tmp_path):
    sok2_dump(tmp_path, "t", np.asarray([1]), np.ones((1, 2), np.float32))
    (tmp_path / "t-key").unlink()
    (tmp_path / "t-key").mkdir()
    table = table_with_rows()
    assert_refused(table, "t-key is no file", lambda: checkpoint.load_sok2(tmp_path, table))


@pytest.mark.parametrize("ids", [[], (), np.zeros(0, np.int64), np.zeros(0, np.uint8)], ids=repr)
def test_no_rows(tmp_path, ids):
    for table in (table_with_rows(), static_table()):
        before = contents(table)
        assert checkpoint.load_rows(table, ids, np.zeros((0, 2))) == 0
        assert contents(table) == before
    if isinstance(ids, list):
        assert checkpoint.load_rows(table, ids, []) == 0
    assert_refused(table, r"got \[0\] and \[0, 3\]", lambda: checkpoint.load_rows(table, ids, np.zeros((0, 3))))
    write_file(tmp_path / "a.parquet", [], [], pyarrow.int64(), pyarrow.list_(pyarrow.float32()))
    assert checkpoint.load_parquet(table, tmp_path) == 0

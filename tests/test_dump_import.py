# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of SOK 2, of numpy and of Parquet."""

import string

import kinds
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import sok
from sok import checkpoint

KEYS = np.asarray([5, -1, 2**40, 0, -(2**63)])
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)
EXPECTED = dict(zip(KEYS.tolist(), ROWS, strict=True))
_NUMBERS = {"int32": 0, "int64": 1, "uint32": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}


def sok2_file(path, array, kind, table="", dtype=None):
    """A file as SOK 2 writes it: 256 + 4 + 32 + 4 bytes of header, then the array."""
    number = _NUMBERS[array.dtype.name] if dtype is None else dtype
    header = table.rjust(256).encode() + kind.to_bytes(4, "big") + b"".rjust(32) + number.to_bytes(4, "big")
    assert len(header) == 296
    path.write_bytes(header + array.tobytes())


def sok2_dump(folder, name, keys, values, table=""):
    stem = "".join("_" if c in string.punctuation else c for c in name)
    sok2_file(folder / f"{stem}-key", keys, 0, table)
    sok2_file(folder / f"{stem}-weight", values, 1, table)


@pytest.mark.parametrize("table_name", ["", "my table_0", "my table:0"])
def test_dumps_of_sok2(tmp_path, table_name):
    sok2_dump(tmp_path, "my table:0", KEYS, ROWS, table_name)
    order = np.asarray([1, 3, 0, 2])
    sok2_dump(tmp_path, "static", order.astype(np.uint64), ROWS[:4].astype(np.float16)[order])
    hashed = sok.DynamicVariable(3, name="my table:0")
    static = sok.Variable(np.zeros((4, 3), np.float32), name="static")
    assert checkpoint.load_sok2(tmp_path, [hashed, static]) == {"my table:0": 5, "static": 4}
    kinds.assert_rows(kinds.export_as_dict(hashed), EXPECTED)
    np.testing.assert_array_equal(sok.export(static)[1], ROWS[:4])


def test_damaged_dumps_of_sok2(tmp_path):
    table = sok.DynamicVariable(3, name="t")
    sok.assign(table, [7], [[1.0, 2.0, 3.0]])

    def refused(match):
        with pytest.raises(ValueError, match=match):
            checkpoint.load_sok2(tmp_path, table)
        kinds.assert_rows(kinds.export_as_dict(table), {7: [1.0, 2.0, 3.0]})

    refused("t-weight is missing")
    sok2_dump(tmp_path, "t", KEYS, ROWS, table="other")
    refused("t-weight belongs to the table 'other', not 't'")
    sok2_dump(tmp_path, "t", KEYS, ROWS)
    (tmp_path / "t-weight").write_bytes((tmp_path / "t-weight").read_bytes()[:-2])
    refused("t-weight was cut: 58 bytes are no whole numbers of float32")
    (tmp_path / "t-weight").write_bytes(b"x" * 100)
    refused("t-weight has 100 bytes, less than the header of 296")
    sok2_dump(tmp_path, "t", KEYS, ROWS[:4])
    refused("t-key has 5 keys, t-weight 4 rows")
    sok2_dump(tmp_path, "t", KEYS, ROWS[:, :2].copy())
    refused("t-weight has 10 numbers, which are no rows of 3")
    sok2_dump(tmp_path, "t", np.zeros(5, np.int64), ROWS)
    refused("t-key has a key twice")
    sok2_file(tmp_path / "t-key", KEYS, 2)
    sok2_file(tmp_path / "t-weight", ROWS, 1)
    refused("t-key is a file of the kind 2, not of keys")
    sok2_file(tmp_path / "t-key", KEYS, 0, dtype=9)
    refused("t-key has the type 9; known are")
    sok2_dump(tmp_path, "t", np.asarray([1, 2, 3, 4, 2**63], np.uint64), ROWS)
    refused("has uint64 keys that the table's int64 cannot hold")


def test_numpy(tmp_path):
    table = sok.DynamicVariable(3)
    assert checkpoint.load_rows(table, KEYS, ROWS.astype(np.float64)) == 5
    kinds.assert_rows(kinds.export_as_dict(table), EXPECTED)
    with pytest.raises(ValueError, match=r"takes ids \[n\] and values \[n, 3\], got \[5\] and \[5, 2\]"):
        checkpoint.load_rows(table, KEYS, ROWS[:, :2])
    with pytest.raises(ValueError, match="the id 5 occurs twice"):
        checkpoint.load_rows(table, [5, 6, 5], np.zeros((3, 3)))
    with pytest.raises(TypeError, match="ids have dtype float64"):
        checkpoint.load_rows(table, [0.5], np.zeros((1, 3)))
    kinds.assert_rows(kinds.export_as_dict(table), EXPECTED)


@pytest.mark.parametrize("kind", ["list", "fixed", "large", "half"])
def test_parquet(tmp_path, kind):
    type_ = {
        "list": pyarrow.list_(pyarrow.float32()),
        "fixed": pyarrow.list_(pyarrow.float32(), 3),
        "large": pyarrow.large_list(pyarrow.float64()),
        "half": pyarrow.list_(pyarrow.float32()),
    }[kind]
    data = pyarrow.table({"id": pyarrow.array(KEYS), "row": pyarrow.array(ROWS.tolist(), type_)})
    pyarrow.parquet.write_table(data, tmp_path / "rows.parquet")
    path = tmp_path if kind == "half" else tmp_path / "rows.parquet"
    table = sok.DynamicVariable(3)
    assert checkpoint.load_parquet(table, path, key="id", vector="row") == 5
    kinds.assert_rows(kinds.export_as_dict(table), EXPECTED)


def test_parquet_that_does_not_fit(tmp_path):
    table = sok.DynamicVariable(3)
    data = pyarrow.table({"key": KEYS[:2], "vector": [[1.0, 2.0, 3.0], [1.0]], "word": ["a", "b"], "none": [None, 1]})
    pyarrow.parquet.write_table(data, tmp_path / "x.parquet")
    for columns, match in (
        ({}, "a vector has 1 numbers, the table .* has dimension 3"),
        ({"key": "id"}, "has no column 'id'; it has key, vector, word, none"),
        ({"key": "word"}, "the column 'word' is string; ids are integers"),
        ({"key": "none"}, "may not have nulls"),
        ({"vector": "key"}, "the column 'key' is int64; rows are lists of numbers"),
    ):
        with pytest.raises(ValueError, match=match):
            checkpoint.load_parquet(table, tmp_path / "x.parquet", **columns)
    assert table.size == [0, 3]

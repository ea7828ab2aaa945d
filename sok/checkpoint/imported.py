# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows from elsewhere: NVIDIA's SOK 2, numpy arrays, Parquet files."""

import os
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sok import comm, inputs
from sok.checkpoint.agreement import Agreement
from sok.lookup import check_table
from sok.table_variable import TableVariable

# SOK 2's header: the table's name, the kind of file, the state's name, the type; right-justified text.
_NAME_BYTES, _STATE_BYTES = 256, 32
_HEADER_BYTES = _NAME_BYTES + 4 + _STATE_BYTES + 4
# Kinds of files.
_KEY, _WEIGHT = 0, 1
# Numbers of types.
_DTYPES = {
    "key": {0: "int32", 1: "int64", 2: "uint32", 3: "uint64"},
    "weight": {4: "float16", 5: "float32", 6: "float64"},
}
_PIECE_ROWS_BYTES = 32 << 20


def load_rows(variable, ids, values) -> int:
    """Writes rows given as arrays: known ids are overwritten, others inserted; the optimizer's states of new
    ones start anew.

    On several ranks every rank must call it with the same arrays, and keeps its part.

    Args:
        variable: a table.
        ids: integers [n], all different.
        values: numbers [n, dimension].

    Returns:
        n.

    Raises:
        ValueError: shapes do not fit, or an id occurs twice.

    >>> table = sok.DynamicVariable(2)
    >>> sok.checkpoint.load_rows(table, np.array([3, 5]), np.ones((2, 2)))
    2
    """
    check_table(variable)
    ids, values = np.asarray(ids), np.asarray(values)
    with Agreement(comm.current()).step():
        if ids.ndim != 1 or values.shape != (len(ids), variable.dimension):
            raise ValueError(
                f"table {variable.name!r} takes ids [n] and values [n, {variable.dimension}], got "
                f"{list(ids.shape)} and {list(values.shape)}"
            )
        different = np.unique(ids)
        if len(different) != len(ids):
            ordered = np.sort(ids)
            raise ValueError(f"the id {ordered[1:][ordered[1:] == ordered[:-1]][0]} occurs twice")
        keys = inputs.to_keys(tf.constant(ids), variable.key_dtype, "ids")
    rows = max(1, _PIECE_ROWS_BYTES // (4 * variable.dimension))
    for begin in range(0, len(ids), rows):
        piece = slice(begin, begin + rows)
        variable.write_rows(keys[piece], tf.cast(values[piece], tf.float32))
    return len(ids)


def load_parquet(variable, path, *, key="key", vector="vector") -> int:
    """Writes rows from a Parquet file, or a folder of them: see `load_rows`. Needs pyarrow.

    Args:
        path: a file or folder of this machine, or a URL that pyarrow opens.
        key: the column with the ids.
        vector: the column with the rows: lists of numbers, all of the table's dimension.

    Returns:
        how many rows there are.

    Raises:
        ValueError: a column is missing or of another type, or a vector has another length.
        ImportError: pyarrow is not installed.
    """
    check_table(variable)
    with Agreement(comm.current()).step():
        for _ in _parquet_pieces(variable, path, key, vector):
            pass  # all of it is checked before anything is written
    return sum(load_rows(variable, ids, values) for ids, values in _parquet_pieces(variable, path, key, vector))


def _parquet_pieces(variable: TableVariable, path: Any, key: str, vector: str) -> Iterator[Any]:
    import pyarrow
    import pyarrow.dataset

    data = pyarrow.dataset.dataset(os.fspath(path), format="parquet")
    for column in (key, vector):
        if column not in data.schema.names:
            raise ValueError(f"{path} has no column {column!r}; it has {', '.join(data.schema.names)}")
    if not pyarrow.types.is_integer(data.schema.field(key).type):
        raise ValueError(f"{path}: the column {key!r} is {data.schema.field(key).type}; ids are integers")
    held = data.schema.field(vector).type
    lists = (pyarrow.types.is_list, pyarrow.types.is_large_list, pyarrow.types.is_fixed_size_list)
    if not any(is_kind(held) for is_kind in lists):
        raise ValueError(f"{path}: the column {vector!r} is {held}; rows are lists of numbers")
    rows = max(1, _PIECE_ROWS_BYTES // (8 * variable.dimension))
    for batch in data.to_batches(columns=[key, vector], batch_size=rows):
        if not len(batch):
            continue
        ids, column = batch.column(key), batch.column(vector)
        if ids.null_count or column.null_count or column.flatten().null_count:
            raise ValueError(f"{path}: the columns {key!r} and {vector!r} may not have nulls")
        lengths = np.asarray(column.value_lengths())
        wrong = lengths[lengths != variable.dimension]
        if len(wrong):
            raise ValueError(
                f"{path}: a vector has {wrong[0]} numbers, the table {variable.name!r} has dimension "
                f"{variable.dimension}"
            )
        values = np.asarray(column.flatten(), np.float32).reshape(len(batch), variable.dimension)
        yield np.asarray(ids), values


def load_sok2(path, load_vars) -> dict[str, int]:
    """Writes rows that NVIDIA's SOK 2 dumped: the files `<name>-key` and `<name>-weight` of a folder.

    Its files of optimizer states have names of its own formulas; states start anew here.

    Args:
        path: the folder.
        load_vars: tables, a list of them, or a dict from SOK 2's names.

    Returns:
        how many rows each has got.

    Raises:
        ValueError: a file is missing, cut or of another table, or does not fit; nothing has changed then.
    """
    from sok.checkpoint import variables

    tables, others = variables.named(load_vars, "load_vars")
    if others:
        raise ValueError(f"SOK 2 dumps tables only, got {', '.join(others)}")
    with Agreement(comm.current()).step():
        found = {name: _read_sok2(Path(os.fspath(path)), name, table) for name, table in tables.items()}
    return {name: load_rows(tables[name], ids, values) for name, (ids, values) in found.items()}


def _read_sok2(folder: Path, name: str, table: TableVariable) -> tuple[np.ndarray, np.ndarray]:
    # As SOK 2 makes names of files.
    stem = "".join("_" if letter in string.punctuation else letter for letter in name)
    key_file, weight_file = folder / f"{stem}-key", folder / f"{stem}-weight"
    weights = _sok2_array(weight_file, (name, stem), "weight")
    if weights.size % table.dimension:
        raise ValueError(f"{weight_file} has {weights.size} numbers, which are no rows of {table.dimension}")
    values = weights.reshape(-1, table.dimension)
    ids = _sok2_array(key_file, (name, stem), "key")
    if len(ids) != len(values):
        raise ValueError(f"{key_file} has {len(ids)} keys, {weight_file.name} {len(values)} rows")
    if not np.can_cast(ids.dtype, table.key_dtype) and len(ids) and not (
        ids.min() >= 0 and ids.max() <= np.iinfo(table.key_dtype).max
    ):
        raise ValueError(f"{key_file} has {ids.dtype} keys that the table's {table.key_dtype} cannot hold")
    ids = ids.astype(table.key_dtype)
    if table.is_static and len(ids) and not 0 <= ids.min() <= ids.max() < table.total_rows:
        raise ValueError(f"{key_file} has keys from {ids.min()} to {ids.max()}, the table {table.total_rows} rows")
    if len(np.unique(ids)) != len(ids):
        raise ValueError(f"{key_file} has a key twice")
    return ids, values


def _sok2_array(path: Path, names: tuple[str, ...], what: str) -> np.ndarray:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    if size < _HEADER_BYTES:
        raise ValueError(f"{path} has {size} bytes, less than the header of {_HEADER_BYTES}")
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    held = header[:_NAME_BYTES].strip(b"\x00 ").decode(errors="replace")
    kind = int.from_bytes(header[_NAME_BYTES : _NAME_BYTES + 4], "big")
    number = int.from_bytes(header[-4:], "big")
    # Some versions leave the name empty.
    if held and held not in names:
        raise ValueError(f"{path} belongs to the table {held!r}, not {names[0]!r}")
    if kind != {"key": _KEY, "weight": _WEIGHT}[what]:
        raise ValueError(f"{path} is a file of the kind {kind}, not of {what}s")
    if number not in _DTYPES[what]:
        raise ValueError(f"{path} has the type {number}; known are {_DTYPES[what]}")
    dtype = np.dtype(_DTYPES[what][number])
    if (size - _HEADER_BYTES) % dtype.itemsize:
        raise ValueError(f"{path} was cut: {size - _HEADER_BYTES} bytes are no whole numbers of {dtype}")
    return np.memmap(path, dtype, "r", _HEADER_BYTES) if size > _HEADER_BYTES else np.zeros(0, dtype)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows from elsewhere: numpy arrays, Parquet files."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sok import comm, inputs
from sok.checkpoint.agreement import Agreement
from sok.lookup import check_table
from sok.stages.route import kept_here
from sok.table_variable import TableVariable

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
        TypeError: ids are no integers, or values no numbers.

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
        kind = tf.as_dtype(values.dtype)
        if not (kind.is_floating or kind.is_integer):
            raise TypeError(f"table {variable.name!r}: values must be numbers, got {kind.name}")
        different = np.unique(ids)
        if len(different) != len(ids):
            ordered = np.sort(ids)
            raise ValueError(f"the id {ordered[1:][ordered[1:] == ordered[:-1]][0]} occurs twice")
        keys = inputs.to_keys(tf.constant(ids), variable.key_dtype, "ids")
    return write_planes(variable, keys, {"values": values}, {})


def write_planes(variable: TableVariable, keys: Any, planes: dict[str, Any], initials: dict[str, float]) -> int:
    """Writes rows that have been checked, this rank those that it keeps; how many there are.

    Args:
        keys: int64 [n], all different.
        planes: "values" and states, [n, width].
        initials: of states that the table does not have yet: what its other rows get.
    """
    rows = max(1, _PIECE_ROWS_BYTES // (4 * variable.dimension))
    for begin in range(0, len(keys), rows):
        piece = slice(begin, begin + rows)
        positions, local = kept_here(variable, tf.constant(keys[piece]))
        parts = {
            name: tf.gather(tf.cast(tf.constant(values[piece]), tf.float32), positions)
            for name, values in planes.items()
        }
        variable.table.write(local, parts, initials, replace=False)
    return len(keys)


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

    >>> import pyarrow, pyarrow.parquet, tempfile
    >>> path = tempfile.mkdtemp() + "/rows.parquet"
    >>> pyarrow.parquet.write_table(pyarrow.table({"key": [7, 8], "vector": [[1.0, 2.0], [3.0, 4.0]]}), path)
    >>> sok.checkpoint.load_parquet(sok.DynamicVariable(2), path)
    2
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

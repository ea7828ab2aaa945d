# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows from Parquet files."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sok import comm
from sok.checkpoint import imported
from sok.checkpoint.agreement import Agreement
from sok.checkpoint.storage import path_name
from sok.lookup import check_table
from sok.table_variable import TableVariable, from_keys


def load_parquet(variable, path, *, key="key", vector="vector") -> int:
    """Writes rows from a Parquet file, or a folder of them: see `load_rows`. Needs pyarrow.

    All files are read twice, and must stay as they are meanwhile: what cannot be loaded is refused before anything
    changes. In memory are the keys of all rows, for a moment several times, and a few pieces of files.

    Args:
        path: a file or folder of this machine, or a URL that pyarrow opens.
        key: the column with the ids, integers of any type; each fits the table, and occurs once in all files.
        vector: the column with the rows: lists of numbers, all of the table's dimension.

    Returns:
        how many rows there are.

    Raises:
        ValueError: a file does not fit, or there is none; the message names it.
        TypeError: `variable` is no table, or `path` no path.
        ImportError: pyarrow is not installed.
        tf.errors.ResourceExhaustedError: the rows do not fit.

    >>> import pyarrow, pyarrow.parquet, tempfile
    >>> path = tempfile.mkdtemp() + "/rows.parquet"
    >>> pyarrow.parquet.write_table(pyarrow.table({"key": [7, 8], "vector": [[1.0, 2.0], [3.0, 4.0]]}), path)
    >>> sok.checkpoint.load_parquet(sok.DynamicVariable(2), path)
    2
    """
    with Agreement(comm.current()).step():
        import pyarrow.dataset

        check_table(variable)
        files = list(pyarrow.dataset.dataset(path_name(path), format="parquet").get_fragments())
        if not files:
            raise ValueError(f"{path} has no Parquet files")
        for file in files:
            _check_columns(file, key, vector)
        keys = _keys(variable, files, key, vector)

    def pieces():
        for file in files:
            for ids, values in _pieces(variable, file, key, vector):
                yield ids, {"values": values}

    imported.write([(variable, imported.Rows(keys, {"values": (variable.dimension, 0.0)}, pieces))])
    return len(keys)


def _check_columns(file: Any, key: str, vector: str) -> None:
    """Refuses a file without the columns, or in which they are of other types."""
    from pyarrow import types

    schema = file.physical_schema
    for column in (key, vector):
        if column not in schema.names:
            raise ValueError(f"{file.path} has no column {column!r}; it has {', '.join(schema.names)}")
    ids, rows = schema.field(key).type, schema.field(vector).type
    if not types.is_integer(ids):
        raise ValueError(f"{file.path}: the column {key!r} is {ids}; ids are integers")
    is_list = types.is_list(rows) or types.is_large_list(rows) or types.is_fixed_size_list(rows)
    if not is_list or not (types.is_floating(rows.value_type) or types.is_integer(rows.value_type)):
        raise ValueError(f"{file.path}: the column {vector!r} is {rows}; rows are lists of numbers")


def _keys(variable: TableVariable, files: list[Any], key: str, vector: str) -> np.ndarray:
    """The keys of all files, whose rows have been checked."""
    held = [
        np.concatenate([np.zeros(0, np.int64), *(keys for keys, _ in _pieces(variable, file, key, vector))])
        for file in files
    ]
    keys = np.concatenate(held)
    keys.sort()
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if len(again):
        repeated = keys[again[0]]
        where = [file.path for file, ids in zip(files, held) if (ids == repeated).any()]
        raise ValueError(
            f"the id {from_keys(repeated, variable.key_dtype)} occurs twice, in {' and in '.join(where)}: keep one row"
        )
    return keys


def _pieces(variable: TableVariable, file: Any, key: str, vector: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Keys and rows of a file, checked."""
    rows = max(1, imported.PIECE_BYTES // (8 * variable.dimension))
    position = 0
    options = {"columns": [key, vector], "batch_size": rows, "batch_readahead": 2}
    for batch in file.to_batches(schema=file.physical_schema, **options):
        ids, column = batch.column(key), batch.column(vector)
        if ids.null_count or column.null_count or column.flatten().null_count:
            raise ValueError(f"{file.path}: the columns {key!r} and {vector!r} may not have nulls")
        lengths = np.asarray(column.value_lengths())
        wrong = lengths[lengths != variable.dimension]
        if len(wrong):
            raise ValueError(
                f"{file.path}: a vector has {wrong[0]} numbers, the table {variable.name!r} has dimension "
                f"{variable.dimension}"
            )
        values = np.asarray(column.flatten(), np.float32).reshape(len(batch), variable.dimension)
        yield imported.keys_of(variable, np.asarray(ids), file.path, position), values
        position += len(batch)

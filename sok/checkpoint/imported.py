# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows from elsewhere: numpy arrays; and what all that is not of a dump of this library has in common."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sok import comm, inputs
from sok.checkpoint.agreement import Agreement
from sok.checkpoint.opened import library_keys
from sok.checkpoint.room import Room
from sok.lookup import check_table
from sok.stages.route import kept_here
from sok.table_variable import TableVariable

PIECE_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows for a table, checked.

    keys: of all of them, int64 [n], all different.
    planes: width and initial value of "values" and of states, by name.
    pieces: gives the rows, keys [m] and by plane [m, width], one piece after the other.
    """

    keys: np.ndarray
    planes: dict[str, tuple[int, float]]
    pieces: Callable[[], Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]]

    @classmethod
    def of_arrays(cls, keys: np.ndarray, planes: dict[str, np.ndarray], initials: dict[str, float]) -> "Rows":
        """planes: [n, width] by name. initials: of states."""
        rows = max(1, PIECE_BYTES // (4 * planes["values"].shape[1]))

        def pieces():
            for begin in range(0, len(keys), rows):
                piece = slice(begin, begin + rows)
                yield keys[piece], {name: values[piece] for name, values in planes.items()}

        return cls(keys, {name: (p.shape[1], initials.get(name, 0.0)) for name, p in planes.items()}, pieces)


def keys_of(variable: TableVariable, ids: np.ndarray, where: str, first: int = 0) -> np.ndarray:
    """Integers as the table's keys, whatever their type.

    Args:
        first: the position of the first of them, for the message.

    Raises:
        ValueError: one does not fit; the message begins with `where` and names the first.
    """
    held = np.iinfo(variable.key_dtype)
    least, most = (0, variable.total_rows - 1) if variable.is_static else (held.min, held.max)
    wrong = np.flatnonzero((ids < least) | (ids > most))
    if len(wrong):
        found = f"{where}: the id {ids[wrong[0]]} at position {first + wrong[0]}"
        if variable.is_static:
            raise ValueError(f"{found} is out of range: the table {variable.name!r} has {variable.total_rows} rows")
        raise ValueError(f"{found} does not fit the key type {variable.key_dtype} of the table {variable.name!r}")
    return library_keys(ids)


def check_different(ids: np.ndarray, where: str) -> None:
    """Refuses an id that occurs twice, with a ValueError that names it."""
    ordered = np.sort(ids)
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(again):
        raise ValueError(f"{where}: the id {ordered[again[0]]} occurs twice")


def write(rows: Sequence[tuple[TableVariable, Rows]]) -> None:
    """Writes rows into their tables, this rank those that it keeps: room is made in all tables first.

    Raises:
        tf.errors.ResourceExhaustedError: there is none; no table has changed.
    """
    agreement = Agreement(comm.current())
    with Room() as room:
        with agreement.step():
            for variable, those in rows:
                (local,) = kept_here(variable, tf.constant(those.keys))
                room.for_keys(variable.table, local)
                room.for_planes(variable.table, those.planes)
        with agreement.step():
            for variable, those in rows:
                for keys, planes in those.pieces():
                    _write_piece(variable, keys, planes)


def _write_piece(variable: TableVariable, keys: np.ndarray, planes: dict[str, Any]) -> None:
    local, *parts = kept_here(variable, tf.constant(keys), *map(tf.constant, planes.values()))
    as_floats = {name: tf.cast(part, tf.float32) for name, part in zip(planes, parts)}
    variable.table.write(local, as_floats, {}, replace=False)


def load_rows(variable, ids, values) -> int:
    """Writes rows given as arrays: known ids are overwritten, others inserted; the optimizer's states of new
    ones start anew. What cannot be written is refused before anything changes.

    On several ranks every rank must call it with the same arrays, and keeps its part.

    Args:
        variable: a table.
        ids: integers [n], all different; there may be none.
        values: numbers [n, dimension].

    Returns:
        n.

    Raises:
        ValueError: shapes do not fit, an id occurs twice, does not fit the table's key type, or is out of range.
        TypeError: ids are no integers, or values no numbers.
        tf.errors.ResourceExhaustedError: the rows do not fit.

    >>> table = sok.DynamicVariable(2)
    >>> sok.checkpoint.load_rows(table, np.array([3, 5]), np.ones((2, 2)))
    2
    """
    with Agreement(comm.current()).step():
        check_table(variable)
        is_list = isinstance(ids, (list, tuple))
        try:
            ids, values = np.asarray(ids), np.asarray(values)
        except ValueError as error:
            shapes = f"ids [n] and values [n, {variable.dimension}]"
            raise ValueError(f"table {variable.name!r} takes {shapes}: {error}") from error
        if is_list and ids.shape == (0,):
            ids = ids.astype(np.int64)  # a list without a number has no type
            values = values.reshape(0, variable.dimension) if values.shape == (0,) else values
        if ids.ndim != 1 or values.shape != (len(ids), variable.dimension):
            raise ValueError(
                f"table {variable.name!r} takes ids [n] and values [n, {variable.dimension}], got "
                f"{list(ids.shape)} and {list(values.shape)}"
            )
        kind = tf.as_dtype(values.dtype)
        if not (kind.is_floating or kind.is_integer):
            raise TypeError(f"table {variable.name!r}: values must be numbers, got {kind.name}")
        if ids.dtype == object and all(isinstance(number, int) for number in ids):
            raise ValueError(f"ids have at most 64 bits, got {max(ids, key=abs)}")
        inputs.check_integers(tf.as_dtype(ids.dtype), "ids")
        check_different(ids, "ids")
        keys = keys_of(variable, ids, "ids")
    write([(variable, Rows.of_arrays(keys, {"values": values}, {}))])
    return len(keys)

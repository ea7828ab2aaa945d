# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Room in tables for rows to come: in all of them before the first row of one is written."""

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from sok import _native
from sok.table import TableValue


class Room:
    """A block that makes room, and in which the first rows may be written.

    Memory stays, since later rows can have it. Planes that the block has added go again if it fails: otherwise a
    table that has got nothing would have states, and another load be refused for them. They stay if another thread
    has added some after them, since the last ones only can go.
    """

    def __init__(self):
        self._added: list[tuple[TableValue, set[str]]] = []

    def __enter__(self) -> "Room":
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            return
        for table, added in reversed(self._added):
            names = list(table.planes())
            count = len(names)
            while names[count - 1] in added:
                count -= 1
            # They stay if somebody dumps the table beside this load.
            with contextlib.suppress(tf.errors.FailedPreconditionError):
                _native.ops.sok_table_detach(table.handle, first=count)

    def for_planes(self, table: TableValue, planes: dict[str, tuple[int, float]]) -> None:
        """Adds those that are not there yet, of which each has a width and an initial value.

        Raises:
            tf.errors.InvalidArgumentError: a width is not the table's or the optimizer's, or an initial value not
                finite.
            tf.errors.ResourceExhaustedError: there is no memory.
        """
        self._added.append((table, set(planes) - set(table.planes())))
        nothing = {name: np.zeros((0, width), np.float32) for name, (width, _) in planes.items()}
        initials = {name: initial for name, (_, initial) in planes.items()}
        table.write(np.zeros(0, np.int64), nothing, initials, replace=False)

    def for_rows(self, table: TableValue, rows: int) -> None:
        """So many in all, once the table has been emptied.

        Raises:
            tf.errors.ResourceExhaustedError: they do not fit.
        """
        _native.ops.sok_table_reserve(table.handle, tf.constant(rows, tf.int64))

    def for_keys(self, table: TableValue, keys: Any) -> None:
        """Those that the table does not have yet.

        Raises:
            tf.errors.InvalidArgumentError: one occurs twice, or is out of range of a static table.
            tf.errors.ResourceExhaustedError: they do not fit.
        """
        _native.ops.sok_table_reserve_keys(table.handle, keys)

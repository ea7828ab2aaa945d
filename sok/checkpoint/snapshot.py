# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A table of one moment, read piece by piece."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from sok import _native
from sok.checkpoint import manifest, shards
from sok.table_variable import TableVariable


class TableSnapshot:
    """What this rank writes of a table: its rows of the moment when this was made.

    Args:
        variable: the table. One that every rank keeps as a whole is divided among them.
        values_only: leave the optimizer's states out.
        beside_training: whether the table may change before all has been read.
    """

    def __init__(self, variable: TableVariable, values_only: bool, beside_training: bool):
        self._variable = variable
        planes = {"values": variable.table.planes()["values"]} if values_only else variable.table.planes()
        placement = variable.placement
        divided = placement.is_replicated and placement.ranks > 1
        self._handle, rows = _native.ops.sok_table_snapshot(
            variable.table.handle,
            planes=list(planes),
            part=placement.here if divided else 0,
            parts=placement.ranks if divided else 1,
            beside_training=beside_training,
        )
        self.rows = int(rows)
        self.planes = tuple(
            manifest.Plane(
                name, width, variable.attributes.row_type if name == "values" else "float32", float(initial)
            )
            for name, (width, initial) in planes.items()
        )
        self.seed = variable.table.seed

    @property
    def dtypes(self) -> dict[str, str]:
        """What the arrays of a shard are written as."""
        return {"keys": self._variable.key_dtype} | {plane.name: plane.dtype for plane in self.planes}

    @property
    def rows_a_shard(self) -> int:
        return min(shards.rows_a_shard(self.row_bytes, self.rows), max(self.rows, 1))

    @property
    def row_bytes(self) -> int:
        return manifest.row_bytes(self._variable.key_dtype, self.planes)

    def describe(
        self, name: str, rows: int, written: tuple[manifest.Shard, ...], optimizer_states: tuple[str, ...] | None
    ) -> manifest.Table:
        """The table as a manifest has it."""
        variable, placement = self._variable, self._variable.placement
        attributes = variable.attributes
        return manifest.Table(
            name=name,
            kind="static" if variable.is_static else "hash",
            key_dtype=variable.key_dtype,
            rows=rows,
            seed=self.seed,
            initializer={
                "kind": attributes.initializer,
                "a": attributes.initializer_a,
                "b": attributes.initializer_b,
            },
            placement={"kind": placement.kind, "owner": placement.owner, "ranks": placement.ranks},
            planes=self.planes,
            shards=written,
            optimizer_states=optimizer_states,
        )

    def pieces(self) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of one shard after the other, rows as float32; each holds the memory of about one shard."""
        limit = tf.constant(self.rows_a_shard, tf.int64)
        left = self.rows
        while left > 0:
            keys, values = _native.ops.sok_table_snapshot_read(
                self._variable.table.handle, self._handle, limit, num_planes=len(self.planes)
            )
            keys = self._variable.ids_of(np.asarray(keys))
            left -= len(keys)
            yield {"keys": keys} | {
                plane.name: np.asarray(array) for plane, array in zip(self.planes, values, strict=True)
            }

    def close(self) -> int:
        """Ends the snapshot; the bytes that it held beside the table."""
        held = int(_native.ops.sok_table_snapshot_bytes(self._handle))
        del self._handle
        return held

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of a dump that is being loaded: read into memory that is used again and again, and checked."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sok.checkpoint import files, manifest, shards
from sok.checkpoint.ahead import READERS
from sok.checkpoint.storage import Storage


@dataclasses.dataclass(frozen=True)
class ShardInMemory:
    """A shard that was read, in memory until `done` is called.

    keys: as `library_keys`. planes: by name.
    """

    shard: manifest.Shard
    keys: np.ndarray
    planes: dict[str, np.ndarray]
    done: Callable[[], None]


class OpenedFiles:
    """Those files of a dump that are needed.

    Args:
        needed: shards of tables.
        variables: whether the file of ordinary variables is needed too.
        stack: until it is closed, the files are there.
    """

    def __init__(
        self,
        storage: Storage,
        held: manifest.Manifest,
        needed: Sequence[manifest.Shard],
        variables: bool,
        stack: contextlib.ExitStack,
    ):
        self._place, self._held = storage.place, held
        sizes = {shard.file: shard.bytes for shard in needed}
        largest = max(sizes.values(), default=0)
        if variables and held.variables_shard is not None:
            sizes[held.variables_shard.file] = held.variables_shard.bytes
        names = {f"{held.generation}/{file}": size for file, size in sizes.items()}
        found = stack.enter_context(storage.local(names))
        self._paths: dict[str, Path] = {name.rsplit("/", 1)[-1]: path for name, path in found.items()}
        # Not before: the sizes are those of the files.
        self._buffers = files.Buffers(READERS + 1, largest)

    def where(self, shard: manifest.Shard) -> str:
        """A shard's file, for messages."""
        return f"{self._place}: {shard.file}"

    def read(self, table: manifest.Table, shard: manifest.Shard, planes: Any, direct: bool) -> ShardInMemory:
        """A shard of a table, checked.

        Args:
            planes: those of its planes that are wanted.
            direct: see `files.read`.

        Raises:
            ValueError: the file is damaged, has a key twice, or one that its table cannot have.
        """
        buffer = self._buffers.take()
        try:
            data = shards.read(self._paths[shard.file], self.where(shard), shard, buffer, direct)
            wanted = shards.shard_tensors(table, shard.rows, planes)
            arrays = shards.decode(data, self.where(shard), wanted)
            keys = arrays.pop("keys")
            self._check_keys(table, shard, keys)
        except BaseException:
            self._buffers.give(buffer)
            raise
        return ShardInMemory(shard, library_keys(keys), arrays, lambda: self._buffers.give(buffer))

    def read_keys(self, table: manifest.Table, shard: manifest.Shard) -> np.ndarray:
        """The keys alone of a shard that has been checked, as the file has them."""
        return shards.read_keys(self._paths[shard.file], self.where(shard), table, shard)

    def read_variables(self, numbers: Iterable[int]) -> dict[int, np.ndarray]:
        """Some of the ordinary variables, by their number in the manifest; their file is checked as a whole."""
        shard, every = self._held.variables_shard, self._held.variables
        assert shard is not None
        wanted = {str(i): (every[i].dtype, every[i].shape) for i in numbers}
        least = sum(variable.bytes for variable in every)
        arrays = shards.read_some(self._paths[shard.file], self.where(shard), shard, wanted, least, check=True)
        return {int(name): array for name, array in arrays.items()}

    def _check_keys(self, table: manifest.Table, shard: manifest.Shard, keys: np.ndarray) -> None:
        ordered = np.sort(keys)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            raise ValueError(f"{self.where(shard)} has the key {repeated[0]} twice")
        if table.kind == "static" and len(ordered) and not 0 <= ordered[0] <= ordered[-1] < table.rows:
            raise ValueError(
                f"{self.where(shard)} has keys from {ordered[0]} to {ordered[-1]} for a table of {table.rows} rows"
            )


def library_keys(keys: np.ndarray) -> np.ndarray:
    """Keys as the library has them: int64, whose bits are those of uint64."""
    return keys.view(np.int64) if keys.dtype == np.uint64 else keys.astype(np.int64, copy=False)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading what `sok.dump` wrote, on any number of ranks.

Everything is checked before anything changes, on all ranks: names, types and widths against the tables;
sizes and checksums of all files; room for the rows. What one rank finds wrong, all ranks raise.
"""

import concurrent.futures
import contextlib
import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sok import _native, comm
from sok.checkpoint import manifest, shards, variables
from sok.checkpoint.agreement import Agreement
from sok.checkpoint.matching import Match, match_tables, match_variables
from sok.checkpoint.progress import Progress
from sok.checkpoint.storage import LocalStorage, Storage, open_storage
from sok.stages.route import kept_here, route


@dataclasses.dataclass(frozen=True)
class LoadResult:
    """What a dump held.

    step: the number it was given. rows: of each table, on all ranks. fresh_states: by table, states that it
    did not hold and that have started anew.
    """

    step: int | None
    rows: dict[str, int]
    fresh_states: dict[str, tuple[str, ...]]


def load(
    path, load_vars, optimizer=None, *, strict=True, values_only=False, progress=None, storage_options=None
) -> LoadResult:
    """Replaces tables by those of the same names in a dump, each rank its rows.

    Every rank must call it, with the same arguments. The number of ranks, their placement and the device may
    be others than when it was written. What cannot be loaded is refused, on all ranks, before anything
    changes.

    Args:
        path, storage_options: as for `sok.dump`.
        load_vars: tables and ordinary variables, or a dict from their names in the dump.
        optimizer: gets its step and its variables back; it is built if it has not been.
        strict: every table and variable of the dump must be asked for, rows must have the type they were
            dumped with, and every state that the tables or the optimizer use must be there. False: what is
            not asked for is left, rows are converted, and missing states start anew, with a warning.
        values_only: rows without their optimizer states, which start anew. Nothing of an optimizer is read.
        progress: as for `sok.dump`.

    Raises:
        ValueError: the dump is damaged, or does not fit; the message names the file or the table.
        FileNotFoundError: there is no dump.
        OSError: it cannot be read.
        tf.errors.ResourceExhaustedError: the rows do not fit.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> table, other = (sok.DynamicVariable(2, name="items", initializer="normal") for _ in range(2))
    >>> _ = sok.lookup_sparse(table, tf.constant([7, 8]))
    >>> _ = sok.dump(folder, table)
    >>> sok.load(folder, other).rows
    {'items': 2}
    """
    if not tf.executing_eagerly():
        raise RuntimeError("sok.load reads files; call it outside of tf.function")
    bar = Progress("load", progress)
    try:
        with contextlib.ExitStack() as stack:
            return _Load(open_storage(path, storage_options), load_vars, strict, values_only, bar).run(
                optimizer, stack
            )
    finally:
        bar.close()


def read_manifest(path, *, storage_options=None) -> manifest.Manifest:
    """What a dump holds: tables, their planes, rows, seeds and files.

    Raises:
        FileNotFoundError: there is no dump.
        ValueError: its manifest is damaged.
    """
    return _read_manifest(open_storage(path, storage_options))


def _read_manifest(storage: Storage) -> manifest.Manifest:
    text = storage.read(manifest.FILE, manifest.MOST_BYTES)
    if text is None:
        raise FileNotFoundError(f"{storage.place} holds no dump: it has no {manifest.FILE}")
    return manifest.decode(text, f"{storage.place}/{manifest.FILE}")


class _Load:
    def __init__(self, storage: Storage, load_vars: Any, strict: bool, values_only: bool, bar: Progress):
        self._storage = storage
        self._strict, self._values_only = bool(strict), bool(values_only)
        self._progress = bar
        self._tables, self._others = variables.named(load_vars, "load_vars")
        self._all = list(self._tables.values()) + list(self._others.values())
        self._communicator = comm.current()

    def run(self, optimizer: Any, stack: contextlib.ExitStack) -> LoadResult:
        agreement = Agreement(self._communicator)
        with agreement.step():
            held = _read_manifest(self._storage)
            matches = match_tables(
                held, self._tables, optimizer, strict=self._strict, values_only=self._values_only,
                place=self._storage.place,
            )  # fmt: skip
            if optimizer is not None and not self._values_only:
                variables.build(optimizer, self._all)
            ordinary = match_variables(
                held, self._others, None if self._values_only else optimizer,
                strict=self._strict and not self._values_only, place=self._storage.place,
            )  # fmt: skip
        self._progress.start(sum(shard.bytes for match in matches for shard in match.needed))
        with agreement.step():
            paths = self._open(held, matches, bool(ordinary), stack)
            counts = self._verify(held, matches, paths)
            values = self._read_variables(held, paths) if ordinary else {}
        if self._splits_verification and self._communicator.size > 1 and len(counts):
            counts = np.asarray(self._communicator.all_reduce(tf.constant(counts, tf.int64), "load"))
        with agreement.step():
            for match, count in zip(matches, counts):
                rows = tf.constant(int(count[self._communicator.rank]), tf.int64)
                _native.ops.sok_table_reserve(match.variable.table.handle, rows)
                # Planes first: an allocation that fails must not leave the table empty.
                empty = np.zeros((0, 1), np.float32)
                match.variable.table.write(
                    np.zeros(0, np.int64),
                    {plane.name: np.tile(empty, (1, plane.width)) for plane in match.planes},
                    {plane.name: plane.initial for plane in match.planes},
                    replace=False,
                )
        with agreement.step():
            for match in matches:
                self._write(match, paths)
            for variable, number in ordinary:
                variable.assign(values[number])
        fresh = {match.table.name: match.fresh for match in matches if match.fresh}
        for name, states in fresh.items():
            warnings.warn(
                f"table {name!r}: loaded without the states {', '.join(states)}, which start anew", stacklevel=3
            )
        return LoadResult(held.step, {match.table.name: match.table.rows for match in matches}, fresh)

    @property
    def _splits_verification(self) -> bool:
        return isinstance(self._storage, LocalStorage)

    def _open(self, held: manifest.Manifest, matches: list[Match], ordinary: bool, stack) -> dict[str, Path]:
        sizes = {shard.file: shard.bytes for match in matches for shard in match.needed}
        if ordinary and held.variables_shard is not None:
            sizes[held.variables_shard.file] = held.variables_shard.bytes
        names = {f"{held.generation}/{file}": size for file, size in sizes.items()}
        found = stack.enter_context(self._storage.local(names))
        return {name.rsplit("/", 1)[-1]: path for name, path in found.items()}

    def _verify(self, held: manifest.Manifest, matches: list[Match], paths: dict[str, Path]) -> np.ndarray:
        """Checks files, this rank its share; how many rows each rank will have, as far as it knows."""
        rank, size = self._communicator.rank, self._communicator.size
        counts = np.zeros((len(matches), size), np.int64)
        work = []
        for m, match in enumerate(matches):
            for i, shard in enumerate(match.needed):
                # Those that only this rank reads are its own to check.
                if match.is_shared and self._splits_verification and i % size != rank:
                    continue
                work.append((m, match, shard))
        if held.variables_shard is not None and held.variables_shard.file in paths:
            shard = held.variables_shard
            shards.verify(paths[shard.file], self._where(shard), shard)

        def check(item):
            _, match, shard = item
            path = paths[shard.file]
            shards.verify(path, self._where(shard), shard)
            wanted = shards.shard_tensors(match.table, shard.rows, match.table.planes)
            keys = shards.decode(path, self._where(shard), wanted, read=("keys",))["keys"]
            keys = _as_keys(keys)
            ordered = np.sort(keys)
            repeated = ordered[1:][ordered[1:] == ordered[:-1]]
            if len(repeated):
                raise ValueError(f"{self._where(shard)} has the key {repeated[0]} twice")
            if match.table.kind == "static" and len(ordered) and not 0 <= ordered[0] <= ordered[-1] < match.table.rows:
                raise ValueError(
                    f"{self._where(shard)} has keys from {ordered[0]} to {ordered[-1]} for a table of "
                    f"{match.table.rows} rows"
                )
            return keys

        with concurrent.futures.ThreadPoolExecutor(2, "sok.load") as pool:
            for (m, match, shard), keys in zip(work, pool.map(check, work)):
                counts[m] += self._owners(match, shard, keys)
        return counts

    def _owners(self, match: Match, shard: manifest.Shard, keys: np.ndarray) -> np.ndarray:
        """How many of a shard's rows each rank will keep."""
        placement = match.variable.placement
        here = np.zeros(placement.ranks, np.int64)
        if placement.is_replicated:
            here[:] = shard.rows
        elif placement.rank is not None:
            here[placement.rank] = shard.rows
        elif not match.is_shared:
            here[placement.here] = shard.rows
        else:
            slots = tf.range(len(keys), dtype=tf.int64)
            here[:] = np.asarray(route([match.variable], [tf.constant(keys)], [slots], [0]).counts)[:, 0]
        return here

    def _where(self, shard: manifest.Shard) -> str:
        return f"{self._storage.place}: {shard.file}"

    def _write(self, match: Match, paths: dict[str, Path]) -> None:
        table = match.variable.table
        initials = {plane.name: plane.initial for plane in match.planes}

        def read(shard):
            wanted = shards.shard_tensors(match.table, shard.rows, match.planes)
            return shards.decode(paths[shard.file], self._where(shard), wanted)

        empty = {plane.name: np.zeros((0, plane.width), np.float32) for plane in match.planes}
        table.write(np.zeros(0, np.int64), empty, initials, replace=True)
        with concurrent.futures.ThreadPoolExecutor(1, "sok.load") as pool:
            for shard, arrays in zip(match.needed, _ahead(pool, read, match.needed)):
                keys = tf.constant(_as_keys(arrays.pop("keys")))
                # One type for all: bfloat16 goes through TensorFlow as it is.
                planes = {name: tf.convert_to_tensor(array) for name, array in arrays.items()}
                if match.is_filtered:
                    positions, keys = kept_here(match.variable, keys)
                    planes = {name: tf.gather(values, positions) for name, values in planes.items()}
                elif match.variable.is_static:
                    attributes = match.variable.attributes
                    keys = (keys - attributes.id_offset) // attributes.id_stride
                table.write(keys, planes, initials, replace=False)
                self._progress.advance(shard.bytes)
        _native.ops.sok_table_set_seed(table.handle, tf.constant(match.table.seed, tf.int64))

    def _read_variables(self, held: manifest.Manifest, paths: dict[str, Path]) -> dict[int, np.ndarray]:
        shard = held.variables_shard
        assert shard is not None
        wanted = {str(i): (variable.dtype, variable.shape) for i, variable in enumerate(held.variables)}
        arrays = shards.decode(paths[shard.file], self._where(shard), wanted)
        return {int(name): array for name, array in arrays.items()}


def _as_keys(keys: np.ndarray) -> np.ndarray:
    """Keys as the library has them: int64, whose bits are those of uint64."""
    return keys.view(np.int64) if keys.dtype == np.uint64 else keys.astype(np.int64)


def _ahead(pool, function, items: Iterable[Any]):
    """Results in order; the next is being made while one is used."""
    pending = None
    for item in items:
        future = pool.submit(function, item)
        if pending is not None:
            yield pending.result()
        pending = future
    if pending is not None:
        yield pending.result()

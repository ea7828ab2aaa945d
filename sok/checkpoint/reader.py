# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading what `sok.dump` wrote, on any number of ranks.

What cannot be loaded changes nothing: names, types and widths are checked against all tables first, then
sizes and checksums of all files, that no two which a rank reads have one key, and room for the rows. What one
rank finds wrong, all ranks raise. Hash tables that are empty on all ranks are written while their files are being
checked, each read once, before a table that has rows is touched, and are empty again, without states, if something
is wrong.
"""

import concurrent.futures
import contextlib
import dataclasses
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from sok import _native, comm
from sok.checkpoint import distinct, manifest, variables
from sok.checkpoint.agreement import Agreement
from sok.checkpoint.ahead import READERS, ahead
from sok.checkpoint.matching import Match, match_optimizer, match_tables, match_variables, of_optimizer
from sok.checkpoint.opened import OpenedFiles, ShardInMemory, library_keys
from sok.checkpoint.progress import Progress
from sok.checkpoint.room import Room
from sok.checkpoint.storage import LocalStorage, Storage, open_storage
from sok.stages.route import kept_here, route


@dataclasses.dataclass(frozen=True)
class LoadResult:
    """What a dump held.

    step: the number it was given, or None. rows: of each table, on all ranks. fresh_states: by table, states
    that it did not hold, or that were not asked for, and that start anew; (): those of whatever optimizer comes.

    >>> import tempfile
    >>> folder, table = tempfile.mkdtemp(), sok.Variable([[1.0], [2.0]], name="items")
    >>> _ = sok.dump(folder, table)
    >>> sok.load(folder, table).rows
    {'items': 2}
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
    changes in any of the tables and variables. Only a file that changes after it was checked is found when a table
    that had rows has been emptied, which then has some of the dump's, or none.
    If another thread trains the tables meanwhile, rows that it inserts stay beside those of the dump; but a load that
    is refused can take away rows and states that it has added since the call.

    Args:
        path, storage_options: as for `sok.dump`.
        load_vars: tables and ordinary variables, or a dict from their names in the dump, none under two names.
        optimizer: gets its step and its variables back; it is built if it has not been, once these are known to fit.
        strict: every table and variable of the dump must be asked for, rows must have the type they were
            dumped with, and every state that the tables or the optimizer use must be there. False: what is
            not asked for is left, rows are converted, and missing states start anew, with a warning.
        values_only: rows without their optimizer states, which start anew. Nothing of an optimizer is read.
        progress: as for `sok.dump`.

    Returns:
        `LoadResult`: the step, the rows of each table, and the states that started anew.

    Raises:
        ValueError, TypeError: an argument is not what is listed.
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
    with Agreement(comm.current()).step():
        bar = Progress("load", progress)
        job = _Load(open_storage(path, storage_options), load_vars, optimizer, strict, values_only, bar)
    try:
        with contextlib.ExitStack() as stack:
            return job.run(optimizer, stack)
    finally:
        bar.close()


def read_manifest(path, *, storage_options=None) -> manifest.Manifest:
    """What a dump holds: tables, their planes, rows, seeds and files; nothing else is read.

    Args:
        path, storage_options: as for `sok.dump`.

    Returns:
        its fields: `generation`, the folder of the files; `ranks`; `step`; `values_only`; `written_by`, versions;
        `tables`, each with `name`, `kind`, `key_dtype`, `rows`, `seed`, `initializer`, `placement`, `planes` (name,
        width, dtype, initial) and `shards` (file, rank, rows, bytes, checksum); `variables` (group, name, dtype,
        shape).

    Raises:
        FileNotFoundError: there is no dump.
        ValueError: its manifest is damaged.
        OSError: it cannot be read.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = sok.dump(folder, sok.DynamicVariable(2, name="items"), step=3)
    >>> held = sok.checkpoint.read_manifest(folder)
    >>> held.step, [(table.name, table.rows, table.planes[0].width) for table in held.tables]
    (3, [('items', 0, 2)])
    """
    return _read_manifest(open_storage(path, storage_options))


def _read_manifest(storage: Storage) -> manifest.Manifest:
    text = storage.read(manifest.FILE, manifest.MOST_BYTES)
    if text is None:
        raise FileNotFoundError(f"{storage.place} holds no dump: it has no {manifest.FILE}")
    return manifest.decode(text, f"{storage.place}/{manifest.FILE}")


class _Load:
    def __init__(
        self, storage: Storage, load_vars: Any, optimizer: Any, strict: bool, values_only: bool, bar: Progress
    ):
        self._storage = storage
        self._strict = variables.flag(strict, "strict")
        self._values_only = variables.flag(values_only, "values_only")
        self._progress = bar
        self._tables, self._others = variables.named(load_vars, "load_vars")
        for each in (self._tables, self._others):
            variables.check_named_once(each, "load_vars")
        variables.check_given({**self._tables, **self._others}, optimizer, "load_vars")
        self._all = list(self._tables.values()) + list(self._others.values())
        self._communicator = comm.current()

    def run(self, optimizer: Any, stack: contextlib.ExitStack) -> LoadResult:
        agreement = Agreement(self._communicator)
        with agreement.step():
            held = _read_manifest(self._storage)
        agreement.same(
            held.generation,
            f"{self._storage.place}: the ranks do not see the same dump: it was replaced in this moment, or their "
            "folders of this name are not one folder",
        )
        # Ranks add up what they know of a table by its place among the tables.
        agreement.same_tables(
            self._tables,
            [self._strict, self._values_only],
            f"{self._storage.place}: the ranks do not load the same tables in the same order with the same strict and "
            "values_only",
        )
        with agreement.step():
            matches = match_tables(
                held, self._tables, optimizer, strict=self._strict, values_only=self._values_only,
                place=self._storage.place,
            )  # fmt: skip
            strict = self._strict and not self._values_only
            ordinary = match_variables(held, self._others, strict=strict, place=self._storage.place)
            numbers = [number for _, number in ordinary]
            if optimizer is not None and not self._values_only:
                numbers += of_optimizer(held)
                is_copy = not variables.is_built(optimizer)
                as_built = variables.built_copy(optimizer, self._all) if is_copy else optimizer
                if as_built is not None:
                    match_optimizer(held, as_built, strict=strict, place=self._storage.place, is_copy=is_copy)
        is_fresh = self._find_fresh(matches)
        fresh = [match for match, yes in zip(matches, is_fresh) if yes]
        others = [match for match, yes in zip(matches, is_fresh) if not yes]
        self._progress.start(sum(shard.bytes for match in matches for shard in match.needed))
        with agreement.step():
            needed = [shard for match in matches for shard in match.needed]
            self._files = OpenedFiles(self._storage, held, needed, bool(numbers), stack)
            counts, keys = self._verify(matches, is_fresh)
            values = self._files.read_variables(numbers) if numbers else {}
        with agreement.step():
            for match, known, later in zip(matches, keys, is_fresh):
                if not later:
                    self._check_distinct(match, known)
        if self._is_local and self._communicator.size > 1 and len(counts):
            counts = np.asarray(self._communicator.all_reduce(tf.constant(counts, tf.int64), "load"))
        with Room() as room:
            with agreement.step():
                for match, count in zip(matches, counts):
                    room.for_rows(match.variable.table, int(count[self._communicator.rank]))
                    # An allocation that fails must not leave the table empty.
                    room.for_planes(match.variable.table, {p.name: (p.width, p.initial) for p in match.planes})
                if optimizer is not None and not self._values_only:
                    # Last, since it can be built for one set of variables only.
                    variables.build(optimizer, self._all)
                    ordinary += match_optimizer(held, optimizer, strict=strict, place=self._storage.place)
            self._write_fresh(agreement, fresh)
        with agreement.step():
            for match in others:
                self._write(match)
            for match in matches:
                _native.ops.sok_table_set_seed(match.variable.table.handle, tf.constant(match.table.seed, tf.int64))
            for variable, number in ordinary:
                variable.assign(values[number])
        anew = _fresh_states(held, matches)
        for name, states in anew.items():
            which = f"the states {', '.join(states)}" if states else "states of an optimizer"
            warnings.warn(f"table {name!r}: loaded without {which}, which start anew", stacklevel=3)
        if optimizer is not None and not self._values_only and all(v.group != "optimizer" for v in held.variables):
            warnings.warn(
                f"{self._storage.place} was written without an optimizer: the step and the variables of the one given "
                "stay as they are",
                stacklevel=3,
            )
        return LoadResult(held.step, {match.table.name: match.table.rows for match in matches}, anew)

    @property
    def _is_local(self) -> bool:
        """Whether the ranks share files, and the work of checking them; else each has copies of its own."""
        return isinstance(self._storage, LocalStorage)

    def _find_fresh(self, matches: list[Match]) -> list[bool]:
        """Whether files are checked while their rows are written: for hash tables that are empty everywhere, if
        this rank alone reads its files."""
        size = self._communicator.size
        rows = [
            1 if match.variable.is_static or not self._reads_alone(match) else match.variable.table.row_count()
            for match in matches
        ]
        if size > 1 and rows:
            rows = np.asarray(self._communicator.all_reduce(tf.constant(rows, tf.int64), "load")).tolist()
        return [count == 0 for count in rows]

    def _reads_alone(self, match: Match) -> bool:
        """Whether no other rank reads a table's files."""
        return not match.is_shared or self._communicator.size == 1

    def _read(self, match: Match, shard: manifest.Shard, planes: Any) -> ShardInMemory:
        # Past the page cache, unless others want it there, or the file has just been written through it.
        direct = self._is_local and self._reads_alone(match)
        return self._files.read(match.table, shard, planes, direct)

    def _verify(
        self, matches: list[Match], is_fresh: list[bool]
    ) -> tuple[np.ndarray, list[dict[int, np.ndarray]]]:
        """Checks files, this rank its share.

        Returns:
            how many rows each rank will have, as far as this one knows; and of each table the keys to compare, by
            the number of their file.
        """
        rank, size = self._communicator.rank, self._communicator.size
        counts = np.zeros((len(matches), size), np.int64)
        compared: list[dict[int, np.ndarray]] = [{} for _ in matches]
        work = []
        for m, (match, later) in enumerate(zip(matches, is_fresh)):
            for i, shard in enumerate(match.needed):
                if later:
                    counts[m, rank] += shard.rows
                # Those that only this rank reads are its own to check.
                elif not match.is_shared or not self._is_local or i % size == rank:
                    work.append((m, i, match, shard))

        def keys_of(item):
            _, _, match, shard = item
            read = self._read(match, shard, match.table.planes)
            keys = read.keys.copy()
            read.done()
            return keys

        with concurrent.futures.ThreadPoolExecutor(READERS, "sok.load") as pool:
            for (m, i, match, shard), keys in zip(work, ahead(pool, keys_of, work)):
                counts[m] += self._owners(match, shard, keys)
                compared[m][i] = self._share_of(match, keys)
        return counts, compared

    def _share_of(self, match: Match, keys: np.ndarray) -> np.ndarray:
        """Keys that this rank compares: all, or a part if the others have the same files."""
        size = self._communicator.size if match.is_shared else 1
        return distinct.share_of(keys, self._communicator.rank, size)

    def _check_distinct(self, match: Match, known: dict[int, np.ndarray]) -> None:
        """Refuses a key in two files. `known` has the keys to compare of some of the files."""
        needed = match.needed

        def read(i):
            return self._files.read_keys(match.table, needed[i])

        pieces = list(known.values())
        pieces += [self._share_of(match, library_keys(read(i))) for i in range(len(needed)) if i not in known]
        known.clear()
        distinct.check(pieces, match.table.name, [self._files.where(shard) for shard in needed], read)

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

    def _write_fresh(self, agreement: Agreement, fresh: list[Match]) -> None:
        """Writes tables whose files are not checked yet: all, or they are empty again."""
        try:
            with agreement.step():
                for match in fresh:
                    self._write(match)
        except BaseException:
            for match in fresh:
                _empty(match)
            raise

    def _write(self, match: Match) -> None:
        table, count = match.variable.table, 0
        _empty(match)

        def read(shard):
            return self._read(match, shard, match.planes)

        with concurrent.futures.ThreadPoolExecutor(READERS, "sok.load") as pool:
            for part in ahead(pool, read, match.needed):
                keys, planes = part.keys, part.planes
                if match.is_filtered:
                    keys, *kept = kept_here(match.variable, tf.constant(keys), *map(tf.constant, planes.values()))
                    planes = dict(zip(planes, kept))
                elif match.variable.is_static:
                    attributes = match.variable.attributes
                    keys = (keys - attributes.id_offset) // attributes.id_stride
                _import(match, keys, planes)
                count += len(keys)
                part.done()
                self._progress.advance(part.shard.bytes)
        found = count if match.variable.is_static else table.row_count()
        if found != count:
            self._check_distinct(match, {})
        # More are those of another thread that trains the table.
        if found < count:
            raise ValueError(
                f"{self._storage.place}: table {match.table.name!r} has {found} of the {count} rows of its files: no "
                "other thread may erase rows while they are loaded"
            )


def _fresh_states(held: manifest.Manifest, matches: list[Match]) -> dict[str, tuple[str, ...]]:
    """As in `LoadResult`."""
    anew = {}
    for match in matches:
        read = {plane.name for plane in match.planes}
        states = dict.fromkeys([*match.fresh, *(state for state in match.table.states if state not in read)])
        if states or (held.values_only and match.table.rows):
            anew[match.table.name] = tuple(states)
    return anew


def _as_float32(values: Any) -> Any:
    return values if values.dtype == np.float32 else tf.cast(tf.constant(values), tf.float32)


def _import(match: Match, keys: Any, planes: dict[str, Any], replace: bool = False) -> None:
    """As `TableValue.write`, into planes that are there. float32 arrays are not copied."""
    _native.ops.sok_table_import(
        match.variable.table.handle,
        keys,
        [_as_float32(values) for values in planes.values()],
        planes=list(planes),
        initials=[0.0] * len(planes),
        replace=replace,
    )


def _empty(match: Match) -> None:
    """Forgets a hash table's rows; a static one's states start anew."""
    _import(match, np.zeros(0, np.int64), {}, replace=True)

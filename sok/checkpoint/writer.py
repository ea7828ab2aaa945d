# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writing tables to a folder or a URL."""

import collections
import contextlib
import multiprocessing.pool
import re
import secrets
import threading
import time
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from sok import comm
from sok.checkpoint import files, manifest, matching, parts, shards, variables
from sok.checkpoint.agreement import Agreement
from sok.checkpoint.background import DumpHandle, DumpResult
from sok.checkpoint.progress import Progress
from sok.checkpoint.snapshot import TableSnapshot
from sok.checkpoint.storage import open_storage

# Shards on their way to the disk at once, and who takes them there: as many as keep a disk busy while others are
# being put together, but fewer if they are large. One more is being read.
_MOST_IN_FLIGHT, _MOST_BYTES_IN_FLIGHT = 6, 64 << 20

# Of a shard's file, before its rows: names and shapes of its arrays.
_HEADER_BYTES = 64 << 10

# One dump at a time to one place; a lock of each.
_locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)


def dump(
    path,
    dump_vars,
    optimizer=None,
    *,
    blocking=True,
    values_only=False,
    step=None,
    progress=None,
    storage_options=None,
):
    """Writes tables, with their optimizer states, into a folder; `sok.load` reads it on any number of ranks.

    Every rank must call it, and writes what it keeps. A dump that is in the folder already stays readable
    until the new one is complete, whatever happens in between; then it is removed, or by the next dump if a process
    of this machine is loading it. A second dump to the same place waits for the first; one of another process is
    refused where folders have locks (URLs have none: let no two jobs dump to one).

    Args:
        path: the folder, one that all ranks see and name alike, or a URL that fsspec opens ("s3://bucket/name").
            In folders, object stores and over SFTP the new dump takes the old one's place in one step. Other file
            systems write the new manifest over the old one; a crash in that moment can leave half of it, which is
            refused.
        dump_vars: tables, a list of them, or a dict from names. Ordinary variables may be among them; rank 0
            writes these.
        optimizer: its step and its variables are written too; it is built if it has not been. (The states of table
            rows always are, with their rows.)
        blocking: False: returns at once. What is written are the tables as they are now; training may go on.
        values_only: leave the states of rows out.
        step: a number to remember; default: the optimizer's.
        progress: True or False: show a bar, or none; None: where rank 0 has a terminal.
        storage_options: a dict for fsspec, for instance `{"endpoint_url": ...}` for S3.

    Returns:
        `DumpResult`; with `blocking=False` a `DumpHandle` with `result()` and `done()`.

    Raises:
        ValueError, TypeError: an argument is not what is listed.
        OSError: it cannot be written. What was there before can be loaded still.
        tf.errors.ResourceExhaustedError: a GPU has no memory for the copy that `blocking=False` needs.
        RuntimeError, TimeoutError: another rank failed, or vanished.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> table = sok.DynamicVariable(2, name="items", initializer="ones")
    >>> _ = sok.lookup_sparse(table, tf.constant([7, 8]))
    >>> sok.dump(folder, table).rows
    2
    """
    if not tf.executing_eagerly():
        raise RuntimeError("sok.dump writes files; call it outside of tf.function")
    job = _Dump(path, storage_options, dump_vars, optimizer, blocking, values_only, step, progress)
    return job.run() if blocking else DumpHandle(job.run, f"sok.dump {job.storage.place}")


def _file_name(number: int, table: str, rank: int, piece: int) -> str:
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", table)[:60]
    return f"{number:04d}-{readable}-{rank:05d}-{piece:06d}.safetensors"


class _Dump:
    """One rank's part. What has to be of the moment of the call happens in the constructor."""

    def __init__(
        self,
        path: Any,
        storage_options: dict[str, Any] | None,
        dump_vars: Any,
        optimizer: Any,
        blocking: bool,
        values_only: bool,
        step: int | None,
        progress: bool | None,
    ):
        self._started = time.monotonic()
        communicator = comm.current()
        self._rank, self._ranks = communicator.rank, communicator.size
        agreement = Agreement(communicator)
        with agreement.step(RuntimeError):
            # Before the first byte is written, all that the caller can have got wrong.
            self.storage = open_storage(path, storage_options)
            blocking = variables.flag(blocking, "blocking")
            self._values_only = variables.flag(values_only, "values_only")
            self._progress = Progress("dump", progress)
            tables, others = variables.named(dump_vars, "dump_vars")
            variables.check_given({**tables, **others}, optimizer, "dump_vars")
            if optimizer is not None:
                variables.build(optimizer, [*tables.values(), *others.values()])
                step = variables.step_of(optimizer) if step is None else step
            self._step = _checked_step(step)
            self._variables = variables.describe("variables", others)
            if optimizer is not None:
                numbered = {str(i): variable for i, variable in enumerate(variables.of_optimizer(optimizer))}
                self._variables += variables.describe("optimizer", numbered)
            self._optimizer_states = {name: matching.states_of(optimizer, table) for name, table in tables.items()}
        agreement.same(
            repr(self.storage.given),
            "the ranks dump to different places: a dump needs one folder that all ranks see, under one name",
        )
        # Ranks put their shards of a table together by its place among the tables.
        agreement.same_tables(
            tables,
            [self._values_only],
            f"{self.storage.place}: the ranks do not dump the same tables in the same order with the same values_only",
        )
        # What is in the way of others as long as this dump takes.
        self._alone = contextlib.ExitStack()
        try:
            self._alone.enter_context(_locks[self.storage.place])
            with agreement.step(OSError):
                if self._rank == 0:
                    self._alone.enter_context(self.storage.alone())
            self._generation = self._new_generation(communicator, agreement)
            with agreement.step(RuntimeError):
                self._tables = {
                    name: TableSnapshot(table, self._values_only, beside_training=not blocking)
                    for name, table in tables.items()
                }
            self._largest = max((t.rows_a_shard * t.row_bytes for t in self._tables.values()), default=0)
            self._writers = max(2, min(_MOST_IN_FLIGHT, _MOST_BYTES_IN_FLIGHT // max(1, self._largest)))
            # Threads of now, and not concurrent.futures: once the interpreter ends, which waits for a dump in the
            # background, it starts none, and they take no work.
            self._pool = multiprocessing.pool.ThreadPool(self._writers)
            # Where this is false the shards are of no use to anybody.
            self._may_be_in_place = False
        except BaseException:
            self._alone.close()
            raise

    def _new_generation(self, communicator: comm.Communicator, agreement: Agreement) -> str:
        """A name that all ranks agree on; the remains of dumps that were cut off are gone."""
        there = None
        with agreement.step(OSError):
            if self._rank == 0:
                there = self._generation_there()
        number = secrets.randbits(63)
        if self._ranks > 1:
            number = int(communicator.broadcast(tf.constant([number], tf.int64), 0, "dump")[0])
        generation = f"data-{number:016x}"
        # Not before all ranks are here: one may have been waiting for the outcome of a dump that failed.
        if self._rank == 0:
            self._remove_others({there, generation})
        return generation

    def _generation_there(self) -> str | None:
        """What the manifest speaks of; None: there is no manifest.

        Raises:
            ValueError: it is damaged. Its shards may still be somebody's only copy.
        """
        text = self.storage.read(manifest.FILE, manifest.MOST_BYTES)
        return None if text is None else manifest.decode(text, f"{self.storage.place}/{manifest.FILE}").generation

    def _remove_others(self, keep: set[str | None]) -> None:
        """Removes other generations. What cannot be removed costs space, and no dump."""
        try:
            for folder in self.storage.folders():
                if manifest.is_generation(folder) and folder not in keep:
                    self.storage.remove(folder)
        except Exception as error:
            warnings.warn(f"{self.storage.place}: old shards are still there: {error}", stacklevel=2)

    def run(self) -> DumpResult:
        try:
            return self._run()
        except BaseException as error:
            # Where this cannot be done either, the first error is the one to hear of.
            with contextlib.suppress(Exception):
                if self._ranks > 1:
                    parts.leave_error(self.storage, self._generation, self._rank, error)
                elif not self._may_be_in_place:
                    self._end_of_writers()
                    self.storage.remove(self._generation)
            raise
        finally:
            self._end_of_writers()
            self._tables.clear()
            self._progress.close()
            self._alone.close()

    def _end_of_writers(self) -> None:
        self._pool.close()
        self._pool.join()

    def _run(self) -> DumpResult:
        rows = [table.rows for table in self._tables.values()]
        self._progress.start(sum(table.rows * table.row_bytes for table in self._tables.values()))
        described = list(self._tables.items())
        written, held = [], 0
        buffers = files.Buffers(self._writers, self._largest + _HEADER_BYTES)
        for number, (name, table) in enumerate(described):
            written.append(self._write_table(buffers, number, name, table))
            held += table.close()
        self.storage.sync(self._generation)
        if self._rank == 0:
            self._finish(described, rows, written)
        else:
            parts.leave(self.storage, self._generation, self._rank, rows, written)
            parts.await_outcome(self.storage, self._generation)
        total = sum(shard.bytes for table in written for shard in table)
        return DumpResult(sum(rows), total, time.monotonic() - self._started, held)

    def _write_table(
        self, buffers: files.Buffers, number: int, name: str, table: TableSnapshot
    ) -> tuple[manifest.Shard, ...]:
        def write(file: str, arrays: dict[str, np.ndarray]) -> manifest.Shard:
            buffer = buffers.take()
            try:
                return self._write_shard(file, shards.encode(arrays, table.dtypes, buffer), len(arrays["keys"]))
            finally:
                buffers.give(buffer)

        written: list[manifest.Shard] = []
        on_their_way: collections.deque[multiprocessing.pool.AsyncResult] = collections.deque()
        for piece, arrays in enumerate(table.pieces()):
            while len(on_their_way) >= self._writers:
                written.append(on_their_way.popleft().get())
            file = _file_name(number, name, self._rank, piece)
            on_their_way.append(self._pool.apply_async(write, (file, arrays)))
            del arrays
        return tuple(written + [result.get() for result in on_their_way])

    def _write_shard(self, file: str, data: memoryview, rows: int) -> manifest.Shard:
        shard = manifest.Shard(file, self._rank, rows, len(data), manifest.checksum(data))
        self.storage.write(f"{self._generation}/{file}", data)
        self._progress.advance(len(data))
        return shard

    def _check(self, text: bytes) -> None:
        """Before the dump that is there goes: this one can be read, and nobody has removed its shards."""
        if len(text) > manifest.MOST_BYTES:
            raise ValueError(
                f"{self.storage.place}/{manifest.FILE} would have {len(text)} bytes, at most {manifest.MOST_BYTES} are "
                "read: dump fewer tables at once"
            )
        decoded = manifest.decode(text, f"{self.storage.place}/{manifest.FILE}")
        wanted = [shard for table in decoded.tables for shard in table.shards]
        if decoded.variables_shard is not None:
            wanted.append(decoded.variables_shard)
        for shard in wanted:
            self.storage.check(f"{self._generation}/{shard.file}", shard.bytes)

    def _finish(self, described, rows: list[int], written: list[tuple[manifest.Shard, ...]]) -> None:
        """Rank 0: the manifest of what all ranks have written takes the place of the old one."""
        for rank in range(1, self._ranks):
            their_rows, their_shards = parts.collect(self.storage, self._generation, rank)
            rows = [mine + theirs for mine, theirs in zip(rows, their_rows)]
            written = [mine + theirs for mine, theirs in zip(written, their_shards)]
        shard = None
        if self._variables:
            arrays = {str(i): value for i, (_, value) in enumerate(self._variables)}
            dtypes = {str(i): described.dtype for i, (described, _) in enumerate(self._variables)}
            shard = self._write_shard("variables.safetensors", shards.encode(arrays, dtypes), 0)
            self.storage.sync(self._generation)
        text = manifest.Manifest(
            generation=self._generation,
            ranks=self._ranks,
            step=self._step,
            values_only=self._values_only,
            written_by={"sok": _version(), "tensorflow": tf.__version__},
            tables=tuple(
                table.describe(name, total, files, self._optimizer_states[name])
                for (name, table), total, files in zip(described, rows, written)
            ),
            variables=tuple(variable for variable, _ in self._variables),
            variables_shard=shard,
        ).encode()
        self._check(text)
        self._may_be_in_place = True
        self.storage.replace(manifest.FILE, text)
        if self._ranks > 1:
            parts.leave_success(self.storage, self._generation)
        self._remove_others({self._generation})


def _checked_step(step: Any) -> int | None:
    if step is None:
        return None
    if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
        raise TypeError(f"step must be an integer from 0 on, or None, got {step!r:.80}")
    if not 0 <= step <= manifest.MOST_COUNT:
        raise ValueError(f"step must be an integer from 0 on, at most {manifest.MOST_COUNT}, got {step!r:.80}")
    return int(step)


def _version() -> str:
    import sok  # this module is part of it

    return sok.__version__

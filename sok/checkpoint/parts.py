# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of one dump come together: through files beside the shards.

Not through collectives: a dump in the background would mix them with those of training. Each rank leaves
a file when its shards are there; rank 0 waits for all, puts the manifest in place, and leaves a file that
tells the others. That also finds ranks whose folders are not one folder. The files are replaced, not
written: who waits for one reads it as soon as its name is there.
"""

import dataclasses
import json
import time
from typing import Any

from sok.checkpoint import manifest
from sok.checkpoint.storage import Storage
from sok.comm.base import timeout_seconds

_MOST_BYTES = 1 << 28
_POLL_SECONDS = 0.05


def _part(generation: str, rank: int) -> str:
    return f"{generation}/part-{rank:05d}.json"


def _outcome(generation: str) -> str:
    return f"{generation}/outcome.json"


def _wait_for(storage: Storage, generation: str, name: str, whose: str) -> dict[str, Any]:
    """Waits until a file is there, as long as others make progress.

    Raises:
        TimeoutError: for SOK_COMM_TIMEOUT seconds no file has come.
    """
    limit = timeout_seconds()
    seen, since = -1, time.monotonic()
    while True:
        text = storage.read(name, _MOST_BYTES)
        if text is not None:
            return json.loads(text)
        files = storage.files(generation)
        if files != seen:
            seen, since = files, time.monotonic()
        elif time.monotonic() - since > limit:
            raise TimeoutError(
                f"{storage.place}: {whose} has written nothing for {limit:.0f} s (SOK_COMM_TIMEOUT). It has ended, or "
                "its folder of this name is another one: a dump needs one folder that all ranks see"
            )
        time.sleep(_POLL_SECONDS)


def leave(storage: Storage, generation: str, rank: int, rows: list[int], shards: list[tuple[manifest.Shard, ...]]):
    """This rank has written these rows and shards of each table."""
    data = {"rows": rows, "shards": [[dataclasses.asdict(shard) for shard in table] for table in shards]}
    storage.replace(_part(generation, rank), json.dumps(data).encode())


def leave_error(storage: Storage, generation: str, rank: int, error: BaseException):
    """This rank has failed."""
    name = _outcome(generation) if rank == 0 else _part(generation, rank)
    text = f"rank {rank}: {type(error).__name__}: {error}"
    storage.replace(name, json.dumps({"error": text}).encode())


def collect(storage: Storage, generation: str, rank: int) -> tuple[list[int], list[tuple[manifest.Shard, ...]]]:
    """What another rank has left.

    Raises:
        RuntimeError: it has failed.
    """
    data = _wait_for(storage, generation, _part(generation, rank), f"rank {rank}")
    if "error" in data:
        raise RuntimeError(f"{storage.place}: {data['error']}; the dump that was there before is unchanged")
    return data["rows"], [tuple(manifest.Shard(**shard) for shard in table) for table in data["shards"]]


def leave_success(storage: Storage, generation: str):
    storage.replace(_outcome(generation), b"{}")


def await_outcome(storage: Storage, generation: str):
    """Returns when rank 0 has put the manifest in place.

    Raises:
        RuntimeError: the dump has failed somewhere.
    """
    data = _wait_for(storage, generation, _outcome(generation), "rank 0")
    if "error" in data:
        raise RuntimeError(f"{storage.place}: {data['error']}; the dump that was there before is unchanged")

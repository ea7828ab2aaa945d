# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which ranks keep the rows of a table: the `mode` of variables and layers.

"distributed" (the default, also None): every rank keeps a part: ids of a hash table by their hash, row i
    of a static table on rank i % ranks.
"localized:3", or ("localized", 3): rank 3 keeps the whole table.
"localized": one rank keeps the whole table; tables go to the rank that has the fewest bytes so far. The
    bytes of a hash table are those of its capacity, so give it one to be balanced.
"data_parallel": every rank keeps the whole table, which must be static; gradients are exchanged instead
    of rows. For small tables.

On one rank all of them mean the same. Ranks create the same tables in the same order: a lookup in tables that
differ in shape, type, placement or order is refused on all ranks, unless all are "data_parallel" on one of them.
"""

import dataclasses
import re
from typing import Any

from sok import comm
from sok.comm.base import Communicator

KINDS = ("distributed", "localized", "data_parallel")
_WANTED = 'mode must be "distributed", "localized", "localized:" and a rank, such as "localized:0", or "data_parallel"'


@dataclasses.dataclass(frozen=True)
class Placement:
    """kind: one of KINDS.
    rank: the rank that keeps a localized table; else None.
    ranks, here: the number of ranks, and this one's.
    """

    kind: str = "distributed"
    rank: int | None = None
    ranks: int = 1
    here: int = 0

    @property
    def is_distributed(self) -> bool:
        return self.kind == "distributed"

    @property
    def is_replicated(self) -> bool:
        return self.kind == "data_parallel" or self.ranks == 1

    @property
    def owner(self) -> int:
        """The rank with all rows; -1: there is none."""
        return -1 if self.rank is None else self.rank

    def rows_here(self, rows: int) -> int:
        """How many rows of a static table this rank keeps."""
        if self.is_replicated:
            return rows
        if self.rank is not None:
            return rows if self.rank == self.here else 0
        return len(range(self.here, rows, self.ranks))

    @property
    def id_offset_and_stride(self) -> tuple[int, int]:
        """Row r that this rank keeps of a static table is the one of id r * stride + offset."""
        return (self.here, self.ranks) if self.is_distributed and self.ranks > 1 else (0, 1)


class _Ledger:
    """The bytes of localized tables on each rank, the same on all ranks if they create the same tables."""

    def __init__(self):
        self._communicator: Communicator | None = None
        self._bytes: list[int] = []

    def least_loaded(self, communicator: Communicator) -> int:
        if communicator is not self._communicator:
            self._communicator = communicator
            self._bytes = [0] * communicator.size
        return self._bytes.index(min(self._bytes))

    def add(self, communicator: Communicator, rank: int, size: int) -> None:
        self.least_loaded(communicator)
        self._bytes[rank] += max(size, 1)


_ledger = _Ledger()


def _parse(mode: Any) -> tuple[str, int | None]:
    if mode is None:
        return "distributed", None
    if isinstance(mode, str):
        match = re.fullmatch(r"localized:(\d+)", mode)
        if match:
            return "localized", int(match[1])
        if mode in KINDS:
            return mode, None
    if isinstance(mode, (tuple, list)) and len(mode) == 2 and mode[0] == "localized":
        rank = mode[1]
        if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
            return "localized", rank
    raise ValueError(f"{_WANTED}, got {mode!r}")


def resolve(mode: Any, *, is_static: bool = True, size: int = 1) -> Placement:
    """The placement that a mode names.

    Args:
        mode: see this module.
        is_static: whether the table is.
        size: its bytes, about.

    Raises:
        ValueError: the mode is unknown, its rank is not one of this job's, or it is not for such a
            table.

    >>> resolve("localized:0")
    Placement(kind='localized', rank=0, ranks=1, here=0)
    """
    kind, rank = _parse(mode)
    if kind == "data_parallel" and not is_static:
        raise ValueError(
            'mode "data_parallel" is for static tables: a hash table would grow apart on the ranks. Use '
            "sok.Variable (in a layer: vocabulary_size), or another mode"
        )
    communicator = comm.current()
    if rank is not None and rank >= communicator.size:
        raise ValueError(f"mode {mode!r} names rank {rank}, but there are {communicator.size} ranks, from 0")
    if kind == "localized":
        if rank is None:
            rank = _ledger.least_loaded(communicator)
        _ledger.add(communicator, rank, size)
    return Placement(kind, rank, communicator.size, communicator.rank)

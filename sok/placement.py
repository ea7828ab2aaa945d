# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which ranks keep a table: the `mode` of variables and layers.

"distributed" (the default, also None): every rank keeps a part of the rows. "localized:3": rank 3
keeps the whole table.
"""

import dataclasses
import re

from sok import comm


@dataclasses.dataclass(frozen=True)
class Placement:
    """rank: the rank that keeps the whole table; None: all ranks share it."""

    rank: int | None = None

    @property
    def is_distributed(self) -> bool:
        return self.rank is None


def resolve(mode: str | None) -> Placement:
    """The placement that a mode names.

    Raises:
        ValueError: the mode is unknown, or its rank is not one of this job's.

    >>> resolve("localized:0")
    Placement(rank=0)
    """
    if mode in (None, "distributed"):
        return Placement()
    match = re.fullmatch(r"localized:(\d+)", mode) if isinstance(mode, str) else None
    if match is None:
        raise ValueError(
            f'mode must be "distributed" or "localized:" and a rank, such as "localized:0", got {mode!r}'
        )
    rank = int(match[1])
    if rank >= comm.size():
        raise ValueError(f"mode {mode!r} names rank {rank}, but there are {comm.size()} ranks, from 0")
    return Placement(rank)

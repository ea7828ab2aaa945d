# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A key stands in one file of a dump.

Each file is known not to have a key twice; here those of a table are compared. On several ranks each compares
the keys of its share, so that one needs 16 bytes for each of the rows divided by the ranks, less than the rows
themselves will need.
"""

from collections.abc import Callable, Sequence

import numpy as np

# An odd number whose bits are spread: keys with a pattern, such as every fourth, spread over the ranks too.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def share_of(keys: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """Those int64 keys of a file that this rank compares: a copy."""
    if ranks == 1:
        return keys.copy()
    return keys[(keys.view(np.uint64) * _SPREAD >> np.uint64(32)) % np.uint64(ranks) == rank]


def check(pieces: list[np.ndarray], table: str, names: Sequence[str], read: Callable[[int], np.ndarray]) -> None:
    """Refuses a key that stands in two files.

    Args:
        pieces: int64 keys of the files, in any order; emptied, for the memory.
        names: of the files, for the message.
        read: the keys of the file of this number, as they are there.

    Raises:
        ValueError: the message has the key and both files.
    """
    keys = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
    pieces.clear()
    keys.sort()
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(again):
        return
    repeated, found = keys[again[0]], []
    for number, name in enumerate(names):
        held = read(number)
        here = held[held.astype(np.int64) == repeated]
        if len(here):
            found.append((here[0], name))
    raise ValueError(
        f"table {table!r} has the key {found[0][0]} in {len(found)} files, {' and '.join(name for _, name in found)}: "
        "the dump is damaged, or was put together from others"
    )

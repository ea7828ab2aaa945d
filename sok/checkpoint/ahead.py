# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that are read ahead of their use."""

import collections
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Who reads files, and how many are in memory: theirs, and the one whose rows are being written.
READERS = 3


def ahead(pool: concurrent.futures.Executor, function: Callable, items: Iterable[Any]) -> Iterator[Any]:
    """Results in order; the next ones are being made while one is used."""
    pending: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > READERS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()

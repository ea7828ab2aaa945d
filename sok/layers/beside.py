# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of Keras that name a dump instead of holding tables; see `sok.save_model`."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass
class Beside:
    """A file that is being written or read.

    token: which dump goes with it; of a file that is read, once it has been seen.
    tables: those of the model by their names in the dump; of a file that is read, those seen so far.
    """

    token: int | None = None
    tables: dict[str, Any] = dataclasses.field(default_factory=dict)

    def name_of(self, table: Any) -> str:
        return next(name for name, known in self.tables.items() if known is table)


_current: contextvars.ContextVar[Beside | None] = contextvars.ContextVar("beside", default=None)


def current() -> Beside | None:
    return _current.get()


@contextlib.contextmanager
def using(beside: Beside) -> Iterator[Beside]:
    reset = _current.set(beside)
    try:
        yield beside
    finally:
        _current.reset(reset)

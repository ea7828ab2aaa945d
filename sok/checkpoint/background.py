# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps that go on while training does."""

import atexit
import dataclasses
import sys
import threading
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class DumpResult:
    """What this rank has written.

    rows, bytes: of its shards. seconds: from the call to the end.
    extra_bytes: memory that was held beside the tables to keep them as they were at the call; the buffers
        of the shards on their way, at most about 200 MB, come on top.

    >>> import tempfile
    >>> result = sok.dump(tempfile.mkdtemp(), sok.Variable([[1.0], [2.0]], name="items"))
    >>> result.rows
    2
    """

    rows: int
    bytes: int
    seconds: float
    extra_bytes: int


class DumpHandle:
    """A dump that is being written, as `sok.dump(..., blocking=False)` gives it. The process does not end before
    it has; if it fails and nobody asks for its result, the process says so at its end.

    >>> table = sok.DynamicVariable(2, name="items")
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> handle = sok.dump(folder, table, blocking=False)
    >>> handle.result().rows
    0
    """

    def __init__(self, run: Callable[[], DumpResult], name: str):
        self._result: DumpResult | None = None
        self._error: BaseException | None = None
        self._asked = False
        self._thread = threading.Thread(target=self._work, args=(run,), name=name)
        self._thread.start()

    def _work(self, run: Callable[[], DumpResult]) -> None:
        try:
            self._result = run()
        except BaseException as error:
            self._error = error
            atexit.register(self._tell_if_nobody_asked)

    def _tell_if_nobody_asked(self) -> None:
        if not self._asked:
            print(f"{self._thread.name} failed: {type(self._error).__name__}: {self._error}", file=sys.stderr)

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> DumpResult:
        """Waits for the end.

        Args:
            timeout: seconds; None: as long as it takes.

        Raises:
            TimeoutError: `timeout` seconds were not enough; it goes on.
            Exception: what made it fail. The dump that was there before is unchanged.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the dump has not ended within {timeout} s")
        self._asked = True
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

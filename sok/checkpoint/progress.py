# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A bar on rank 0, where somebody sees it."""

from typing import Any

from sok import comm


class Progress:
    """Bytes that have been written or read.

    Args:
        label: beside the bar.
        show: None: if standard error is a terminal.

    Raises:
        TypeError: `show` is another thing.
    """

    def __init__(self, label: str, show: bool | None):
        if show is not None and not isinstance(show, bool):
            raise TypeError(f"progress must be True, False or None, got {show!r:.80}")
        self._label = label
        self._show = show if comm.rank() == 0 else False
        self._bar: Any = None

    def start(self, total: int) -> None:
        if self._show is False:
            return
        import tqdm  # not everybody needs it

        class Bar(tqdm.tqdm):
            monitor_interval = 0  # no thread: at the end of a process none can be started

        self._bar = Bar(
            total=total, desc=self._label, unit="B", unit_scale=True, disable=None if self._show is None else False
        )

    def advance(self, size: int) -> None:
        if self._bar is not None:
            self._bar.update(size)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

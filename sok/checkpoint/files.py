# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whole files of this machine, and the memory that they are read into and written from.

A dump passes through once: what it writes and reads goes past the page cache where the file system allows
that. Copying every byte into fresh pages of the cache costs more than all the rest of a dump, and pushes out
what others have there.
"""

import errno
import fcntl
import os
import queue
from pathlib import Path

import numpy as np

# What direct transfers are multiples of, in memory and in the file.
PAGE = 4096
_DIRECT = getattr(os, "O_DIRECT", 0)


def aligned(size: int) -> memoryview:
    """Memory for `size` bytes: whole pages."""
    pages = -(-max(size, 1) // PAGE) * PAGE
    memory = np.empty(pages + PAGE, np.uint8)
    first = -memory.ctypes.data % PAGE
    return memory[first : first + pages].data


class Buffers:
    """A few pieces of memory, used again and again: fresh pages for each shard would cost more than writing it.

    Args:
        count, size: so many, of so many bytes.
    """

    def __init__(self, count: int, size: int):
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(aligned(size))

    def take(self) -> memoryview:
        """Waits until one is free."""
        return self._free.get()

    def give(self, buffer: memoryview) -> None:
        self._free.put(buffer)


def _is_aligned(view: memoryview) -> bool:
    return np.frombuffer(view, np.uint8).ctypes.data % PAGE == 0


def _open(path: Path, flags: int, direct: bool) -> tuple[int, bool]:
    """A descriptor, and whether it is a direct one."""
    if direct and _DIRECT:
        try:
            return os.open(path, flags | _DIRECT, 0o666), True
        except OSError as error:
            if error.errno != errno.EINVAL:  # that file system has no direct files
                raise
    return os.open(path, flags, 0o666), False


def _make_plain(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_DIRECT)


def write(path: Path, data: bytes | memoryview) -> None:
    """Makes a file, and its folder; when this returns the bytes are on the disk.

    `data` goes past the page cache if it begins at a page.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    view = memoryview(data).cast("B")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor, direct = _open(path, flags, len(view) >= PAGE and _is_aligned(view))
    try:
        while view:
            if direct and len(view) < PAGE:
                _make_plain(descriptor)
                direct = False
            try:
                view = view[os.write(descriptor, view[: len(view) // PAGE * PAGE] if direct else view) :]
            except OSError as error:
                if not direct or error.errno != errno.EINVAL:
                    raise
                # Larger blocks than pages, or the rest of a write that was cut short.
                _make_plain(descriptor)
                direct = False
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path, buffer: memoryview, direct: bool) -> int:
    """Reads a file from its beginning until `buffer`, which begins at a page, is full.

    Args:
        direct: past the page cache, if it can be done.

    Returns:
        how many bytes the file has, or the buffer.
    """
    descriptor, direct = _open(path, os.O_RDONLY | os.O_CLOEXEC, direct)
    try:
        have = 0
        while have < len(buffer):
            try:
                size = os.readv(descriptor, [buffer[have:]])
            except OSError as error:
                if not direct or error.errno != errno.EINVAL:
                    raise
                _make_plain(descriptor)
                direct = False
                continue
            if not size:
                break
            have += size
        return have
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """A file's bytes, or the names of a folder's files, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

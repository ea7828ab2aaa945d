# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whole files of this machine, and the memory that they are read into and written from.

A dump passes through once: what it writes and reads goes past the page cache where the file system allows
that. Copying every byte into fresh pages of the cache costs more than all the rest of a dump, and pushes out
what others have there.
"""

import contextlib
import errno
import fcntl
import os
import queue
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

# What direct transfers are multiples of, in memory and in the file.
PAGE = 4096
_DIRECT = getattr(os, "O_DIRECT", 0)
# A pipe that nobody writes to would be waited for.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# What a name can stand for in place of a file.
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


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


def _size(path: Path, found: os.stat_result) -> int:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise ValueError(f"{path} is {kind}, not a file: put the file of the dump back in its place")
    return found.st_size


def size(path: Path) -> int:
    """How many bytes a file has.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is a folder, a pipe, or another thing that is not read like a file.
    """
    return _size(path, path.stat())


def write(path: Path, data: bytes | memoryview) -> None:
    """Makes a file, and its folder; when this returns the bytes are on the disk.

    `data` goes past the page cache if it begins at a page.

    Raises:
        OSError: it cannot be written. A symbolic link of this name, which would lead elsewhere, is not followed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    view = memoryview(data).cast("B")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
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

    Raises:
        ValueError: it is no file, but a folder or a pipe.
    """
    descriptor, direct = _open(path, _READ, direct)
    try:
        _size(path, os.fstat(descriptor))
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


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    """A descriptor to read a file from, and how many bytes the file has.

    Raises:
        ValueError: it is no file, but a folder or a pipe.
    """
    descriptor = os.open(path, _READ)
    try:
        yield descriptor, _size(path, os.fstat(descriptor))
    finally:
        os.close(descriptor)


def read_at(descriptor: int, begin: int, size: int, buffer: memoryview | None = None) -> memoryview:
    """Bytes of a file from `begin` on, in `buffer` or in memory of their own; fewer than `size` where it ends."""
    buffer, have = np.empty(size, np.uint8).data if buffer is None else buffer[:size], 0
    while have < size:
        more = os.preadv(descriptor, [buffer[have:]], begin + have)
        if not more:
            break
        have += more
    return buffer[:have]


def sync(path: Path) -> None:
    """A file's bytes, or the names of a folder's files, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders that processes of one machine keep from each other. A lock ends with its process.

Where a file system has no locks, there are none: that is no reason not to dump.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(folder: Path, shared: bool = False) -> Iterator[None]:
    """Holds a folder's lock, alone or with others who share it.

    Raises:
        BlockingIOError: somebody holds it, in a way that excludes this one.
        OSError: there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        # Not by closing alone: a process that was forked meanwhile has the folder open too.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Switches for debugging on a GPU."""

from sok import _native


def debug_sync(on: bool = True) -> None:
    """Makes every GPU op wait for its kernels and raise their errors itself.

    Without it, an id out of range of a static table is raised by a later op, at the step's
    synchronisation, so that a step need not wait for the GPU. On the CPU nothing changes.
    """
    _native.set_debug_sync(bool(on))

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Switches of what GPU ops do."""

from sok import _native


def debug_sync(on: bool = True) -> None:
    """Makes every GPU op wait for its kernels and raise their errors itself.

    Without it, an id out of range of a static table is raised by a later op, at the step's
    synchronisation, so that a step need not wait for the GPU. On the CPU nothing changes.

    >>> sok.debug_sync(True)
    >>> sok.debug_sync(False)
    """
    _native.set_gpu_switch("debug_sync", bool(on))


def deterministic(on: bool = True) -> None:
    """Makes GPU ops sum gradients in one order, that of the batch, so that a program gives the same bits
    in every run; it costs a sort of the ids of each batch. On the CPU sums always have one order.

    TensorFlow's own ops have `tf.config.experimental.enable_op_determinism()`.

    >>> sok.deterministic(True)
    >>> sok.deterministic(False)
    """
    _native.set_gpu_switch("fixed_order", bool(on))

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Communication between ranks. `base.py` states what a communicator must do."""

import warnings

from sok.comm.base import Communicator
from sok.comm.broadcast import broadcast_variables
from sok.comm.callbacks import AverageMetrics, BroadcastVariables
from sok.comm.local import LocalCommunicator

_TOOLS = ("horovod",)
_current: Communicator | None = None


def init(comm_tool: str | None = None, use_legacy_optimizer: bool | None = None) -> Communicator:
    """Chooses who connects the ranks of this job. Call it before tables are created.

    Args:
        comm_tool: "horovod" (after `horovod.tensorflow.init()`, which this calls if needed), or None:
            Horovod if the script was started by it, else one rank.
        use_legacy_optimizer: accepted for scripts written for SOK 2; ignored with a warning.

    Raises:
        ValueError: the tool is unknown.
        ImportError: it is not installed.

    >>> sok.init().size
    1
    """
    global _current
    if use_legacy_optimizer is not None:
        warnings.warn(
            "use_legacy_optimizer is ignored: sok.OptimizerWrapper takes Keras 3 and tf_keras "
            "optimizers alike",
            stacklevel=2,
        )
    if comm_tool not in (None, *_TOOLS):
        raise ValueError(f"comm_tool must be one of {', '.join(_TOOLS)} or None, got {comm_tool!r}")
    from sok.comm import horovod

    if comm_tool == "horovod" or horovod.was_launched():
        # Not at the top: it loads the native library, which a job of one rank may not need yet.
        from sok.comm.ordered import OrderedCommunicator

        if not isinstance(_current, OrderedCommunicator):
            _current = OrderedCommunicator(horovod.HorovodCommunicator())
    elif not isinstance(_current, LocalCommunicator):
        _current = LocalCommunicator()
    return _current


def current() -> Communicator:
    """The communicator of this process; `init()` where the script has not called it.

    >>> sok.comm.current().all_reduce(tf.constant([1.0, 2.0]), name="losses").numpy()
    array([1., 2.], dtype=float32)
    """
    return _current or init()


def rank() -> int:
    """This process's number among the ranks, from 0.

    >>> sok.rank()
    0
    """
    return current().rank


def size() -> int:
    """The number of ranks.

    >>> sok.size()
    1
    """
    return current().size

__all__ = [
    "AverageMetrics",
    "BroadcastVariables",
    "Communicator",
    "broadcast_variables",
    "current",
    "init",
    "rank",
    "size",
]

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks under Horovod."""

import functools
import math
import os

import tensorflow as tf

from sok import _native
from sok.comm.base import timeout_seconds

# Horovod moves these; others travel as the bit pattern beside them.
_BIT_PATTERNS = {tf.uint32: tf.int32, tf.uint64: tf.int64, tf.bfloat16: tf.float16}
_JOIN = (
    "hvd.join is not supported with table lookups, whose collectives would crash a rank that has joined: "
    "every rank must run the same number of steps. Repeat the shorter datasets, or stop all ranks at the "
    "shortest (tf.data.Dataset.take)"
)
_INSTALL = (
    "Horovod is not installed for this TensorFlow: run "
    "`python -m sok.comm.build_horovod --install` (in a checkout: make horovod)"
)


def was_launched() -> bool:
    """Whether `horovodrun` started this process."""
    return int(os.environ.get("HOROVOD_SIZE", "1")) > 1


def _import():
    try:
        import horovod.tensorflow as hvd
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    return hvd


def _limit_stalls() -> None:
    """Horovod's own time limits, unless they are set: its threads end soon after our collectives do."""
    seconds = math.ceil(timeout_seconds())
    for name, value in (
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", max(1, seconds // 4)),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", seconds),
        ("HOROVOD_GLOO_TIMEOUT_SECONDS", max(seconds, 30)),
    ):
        os.environ.setdefault(name, str(value))


def _guard_join(hvd) -> None:
    """Makes `hvd.join` an error once a table has been looked up: Horovod itself would crash."""
    join = hvd.join

    @functools.wraps(join)
    def guarded():
        if "exchange_counts" in _native.call_json("sok_stage_stats"):
            raise RuntimeError(_JOIN)
        return join()

    if not hasattr(join, "__wrapped__"):
        hvd.join = guarded


class HorovodCommunicator:
    """Transport of `sok.comm.ordered.OrderedCommunicator`, which gives order, limits and errors.

    See `sok.comm.base.Communicator` for the contract.
    """

    def __init__(self):
        self._hvd = _import()
        if not self._hvd.is_initialized():
            _limit_stalls()
            self._hvd.init()
        _guard_join(self._hvd)
        self.rank = self._hvd.rank()
        self.size = self._hvd.size()
        self.local_rank = self._hvd.local_rank()

    def _as_bits(self, tensor, function):
        travel = _BIT_PATTERNS.get(tensor.dtype)
        if travel is None:
            return function(tensor)
        return tf.bitcast(function(tf.bitcast(tensor, travel)), tensor.dtype)

    def _reduce(self, tensor, function):
        # Horovod does not compute with bfloat16.
        if tensor.dtype == tf.bfloat16:
            return tf.cast(function(tf.cast(tensor, tf.float32)), tf.bfloat16)
        return function(tensor)

    def all_to_all(self, tensor, splits, name):
        received = []

        def exchange(bits):
            out, received_splits = self._hvd.alltoall(bits, tf.cast(splits, tf.int32), name=name)
            received.append(tf.cast(received_splits, tf.int64))
            return out

        out = self._as_bits(tensor, exchange)
        return out, received[0]

    def all_gather(self, tensor, name):
        return self._as_bits(tensor, lambda bits: self._hvd.allgather(bits, name=name))

    def all_reduce(self, tensor, name, op="sum"):
        ops = {
            "sum": self._hvd.Sum,
            "mean": self._hvd.Average,
            "min": self._hvd.Min,
            "max": self._hvd.Max,
        }
        return self._reduce(tensor, lambda x: self._hvd.allreduce(x, name=name, op=ops[op]))

    def reduce_scatter(self, tensor, name):
        return self._reduce(
            tensor, lambda x: self._hvd.reducescatter(x, name=name, op=self._hvd.Sum)
        )

    def broadcast(self, tensor, root, name):
        return self._as_bits(tensor, lambda bits: self._hvd.broadcast(bits, root, name=name))

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks under Horovod."""

import os

import tensorflow as tf

# Horovod moves these; others travel as the bit pattern beside them.
_BIT_PATTERNS = {tf.uint32: tf.int32, tf.uint64: tf.int64, tf.bfloat16: tf.float16}
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


class HorovodCommunicator:
    """See `sok.comm.base.Communicator` for the contract."""

    def __init__(self):
        self._hvd = _import()
        if not self._hvd.is_initialized():
            self._hvd.init()
        self.rank = self._hvd.rank()
        self.size = self._hvd.size()
        self.local_rank = self._hvd.local_rank()

    def _as_bits(self, tensor, function):
        travel = _BIT_PATTERNS.get(tensor.dtype)
        if travel is None:
            return function(tensor)
        return tf.bitcast(function(tf.bitcast(tensor, travel)), tensor.dtype)

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
        return self._hvd.allreduce(tensor, name=name, op=ops[op])

    def broadcast(self, tensor, root, name):
        return self._as_bits(tensor, lambda bits: self._hvd.broadcast(bits, root, name=name))

    def barrier(self):
        self._hvd.barrier()

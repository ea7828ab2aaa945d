# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A communicator whose collectives keep their order, have a time limit, and are counted."""

import threading
from typing import Any

import tensorflow as tf

from sok import _native
from sok.comm.base import timeout_seconds
from sok.comm.presence import Presence

# What a graph remembers of its collectives: how many there are, and the last one.
_IN_GRAPH = "_sok_collectives"


class OrderedCommunicator:
    """Runs the collectives of a transport, one after the other.

    See `sok.comm.base.Communicator` for the contract. What this class adds to a transport:

    - Order. Every collective takes one resource, so that a `tf.function` runs all of them, of
      several lookups, forward and backward, in the order of the program, which is the same on all
      ranks.
    - Names: the stage, and in a graph the position among its collectives.
    - A time limit, `SOK_COMM_TIMEOUT`, and errors that name the collective and the missing ranks.
    - Bytes and times, in `sok.stats()`.
    """

    def __init__(self, transport):
        self.transport = transport
        self.rank = transport.rank
        self.size = transport.size
        self.local_rank = transport.local_rank
        self._timeout = timeout_seconds()
        self._presence = Presence(transport) if self.size > 1 else None
        self._bodies: dict[Any, Any] = {}
        self._lock = threading.Lock()
        with tf.init_scope(), tf.device("CPU:0"):
            self._order = tf.Variable(0, trainable=False, name="sok_order")

    def all_to_all(self, tensor, splits, name):
        tensor = tf.convert_to_tensor(tensor)
        splits = tf.cast(splits, tf.int64)
        out, received = self._run(
            name, "all_to_all", [tensor, splits], [tensor.dtype, tf.int64], sends="splits"
        )
        out.set_shape([None, *tensor.shape[1:]])
        received.set_shape([self.size])
        return out, received

    def all_gather(self, tensor, name):
        tensor = tf.convert_to_tensor(tensor)
        (out,) = self._run(name, "all_gather", [tensor], [tensor.dtype], sends="all")
        out.set_shape([None, *tensor.shape[1:]])
        return out

    def all_reduce(self, tensor, name, op="sum"):
        return self._same_shape(name, "all_reduce", tensor, "once", op=op)

    def broadcast(self, tensor, root, name):
        sends = "all" if root == self.rank else "nothing"
        return self._same_shape(name, "broadcast", tensor, sends, root=root)

    def reduce_scatter(self, tensor, name):
        tensor = tf.convert_to_tensor(tensor)
        (out,) = self._run(name, "reduce_scatter", [tensor], [tensor.dtype], sends="shares")
        out.set_shape([None, *tensor.shape[1:]])
        return out

    def barrier(self):
        self.all_reduce(tf.zeros([1], tf.int32), "barrier")

    def _same_shape(self, name, method, tensor, sends, **options):
        tensor = tf.convert_to_tensor(tensor)
        (out,) = self._run(name, method, [tensor], [tensor.dtype], sends=sends, **options)
        out.set_shape(tensor.shape)
        return out

    @tf.autograph.experimental.do_not_convert
    def _run(self, stage, method, inputs, output_types, *, sends, **options):
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        position, last = getattr(graph, _IN_GRAPH, (0, None))
        name = f"sok/{stage}" if graph is None else f"sok/{stage}.{position}"
        # The resource alone orders nothing in the backward half of a function within a function:
        # TensorFlow adds its automatic control dependencies to forward functions only.
        with tf.control_dependencies([] if last is None else [last]):
            outputs = _native.ops.sok_collective(
                order=self._order.handle,
                inputs=inputs,
                output_types=output_types,
                body=self._body(name, method, inputs, options),
                collective=name,
                stage=stage,
                rank=self.rank,
                ranks=self.size,
                sends=sends,
                timeout=self._timeout,
            )
        if graph is not None:
            setattr(graph, _IN_GRAPH, (position + 1, outputs[0].op))
        return outputs

    def _body(self, name, method, inputs, options):
        """The transport's collective as a function, traced once for each name and kind of tensors."""
        specs = [
            tf.TensorSpec([None, *x.shape[1:]] if x.shape.rank else x.shape, x.dtype) for x in inputs
        ]
        key = (name, method, tuple(specs), tuple(options.items()))
        with self._lock:
            if key not in self._bodies:
                collective = getattr(self.transport, method)

                def body(*tensors):
                    return collective(*tensors, name=name, **options)

                with tf.init_scope():
                    self._bodies[key] = tf.function(body, autograph=False).get_concrete_function(*specs)
            return self._bodies[key]


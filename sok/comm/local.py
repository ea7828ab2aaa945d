# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""One rank: every collective is the identity."""

import tensorflow as tf


class LocalCommunicator:
    """A job of one process. See `sok.comm.base.Communicator` for the contract."""

    rank = 0
    size = 1
    local_rank = 0

    def all_to_all(self, tensor, splits, name):
        del name
        return tf.identity(tensor), tf.cast(splits, tf.int64)

    def all_gather(self, tensor, name):
        del name
        return tf.identity(tensor)

    def all_reduce(self, tensor, name, op="sum"):
        del name, op
        return tf.identity(tensor)

    def reduce_scatter(self, tensor, name):
        del name
        return tf.identity(tensor)

    def broadcast(self, tensor, root, name):
        del root, name
        return tf.identity(tensor)

    def barrier(self):
        pass

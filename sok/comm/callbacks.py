# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras callbacks for jobs of several ranks. On one rank they do nothing."""

import keras
import tensorflow as tf

from sok import comm
from sok.comm.broadcast import broadcast_variables


class BroadcastVariables(keras.callbacks.Callback):
    """Starts training with the dense weights and the optimizer's variables of one rank on all ranks.

    Args:
        root: that rank.

    >>> _ = sok.comm.BroadcastVariables(root=0)
    """

    def __init__(self, root: int = 0):
        super().__init__()
        self.root = root
        self._done = False

    def on_train_begin(self, logs=None):
        self._done = False

    # Before the first batch and not before training: what Keras builds by then is there.
    def on_train_batch_begin(self, batch, logs=None):
        if self._done:
            return
        optimizer = getattr(self.model, "optimizer", None)
        broadcast_variables([*self.model.variables, *(optimizer.variables if optimizer else [])], self.root)
        self._done = True


class AverageMetrics(keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their mean over ranks, for the callbacks after this one and
    for the history.

    Each rank counts the same, also with fewer samples; and a mean of AUCs is not the AUC of all samples.

    >>> _ = sok.comm.AverageMetrics()
    """

    def _average(self, logs):
        communicator = comm.current()
        if communicator.size == 1 or not logs:
            return
        names = sorted(logs)
        values = tf.constant([float(logs[name]) for name in names], tf.float64)
        means = communicator.all_reduce(values, "average_metrics", "mean").numpy()
        logs.update(zip(names, (float(mean) for mean in means)))

    def on_epoch_end(self, epoch, logs=None):
        self._average(logs)

    def on_test_end(self, logs=None):
        self._average(logs)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit` and `evaluate` of Keras 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


class RunAhead(keras.callbacks.Callback):
    """Lets the host enqueue the next step while a GPU still works on this one.

    After every step Keras reads whether there was a batch for it. TensorFlow takes that answer to the GPU and back,
    behind all work that is enqueued there: the host waits for the end of the step, and the GPU then for the host.
    This callback makes the end of the data an error that Keras takes for the end of the epoch, so that nothing is
    read after a step.

    The first `fit` or `evaluate` with it sets the model's `train_function` or `test_function`, which stay until the
    model is compiled again. Keras's own stay where nothing waits anyway or where they are needed: with
    `run_eagerly=True`, and with the iterators of a `tf.distribute` strategy. So do functions that are not Keras's, as
    those of a model with a `make_train_function` of its own. Callbacks that read the loss of every batch in the
    training loop, as those with an `on_train_batch_end` do that are not `async_safe`, make the host wait again.

    Raises:
        ValueError: the model was compiled with `steps_per_execution` above 1: the loop that Keras makes of them
            reads the same answer for each.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
        >>> model.compile("sgd", "mse")
        >>> data = tf.data.Dataset.from_tensors((tf.ones((2, 1)), tf.ones((2, 1)))).repeat(3)
        >>> model.fit(data, verbose=0, callbacks=[sok.callbacks.RunAhead()]).epoch
        [0]
    """

    def on_train_begin(self, logs=None):
        self.model.train_function = _ahead(self.model, self.model.train_function, self.model.train_step)

    def on_test_begin(self, logs=None):
        self.model.test_function = _ahead(self.model, self.model.test_function, self.model.test_step)


def _ahead(
    model: keras.Model, waiting: Callable[[Any], Any] | None, step: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    """A function that does one step with the iterator's next batch.

    Args:
        model: whose step it is.
        waiting: the function that does the same and waits. It is returned if it is not Keras's: one from here or of
            others, or none, as in a loop of one's own around a `CallbackList`.
        step: of a batch.

    Raises:
        tf.errors.OutOfRangeError: (the function) there is no batch.
    """
    is_of_keras = getattr(waiting, "__module__", None) == keras.Model.make_train_function.__module__
    if model.run_eagerly or not is_of_keras:
        return waiting
    if model.steps_per_execution != 1:
        raise ValueError(
            "sok.callbacks.RunAhead needs steps_per_execution=1, which is as fast with it as more are; the model was "
            f"compiled with {model.steps_per_execution}"
        )
    of_batch = tf.function(step, jit_compile=model.jit_compile, reduce_retracing=True, autograph=False)
    are_metrics = False

    @tf.function(reduce_retracing=True, autograph=False)
    def of_iterator(iterator):
        # Keras puts an Optional where an element has nothing.
        batch = keras.tree.map_structure(
            lambda value: None if isinstance(value, tf.experimental.Optional) else value, iterator.get_next()
        )
        logs = of_batch(batch)
        nonlocal are_metrics
        are_metrics = isinstance(logs, dict) and logs.keys() == model.get_metrics_result().keys()
        return logs

    def function(iterator):
        if not isinstance(iterator, tf.data.Iterator):
            return waiting(iterator)
        logs = of_iterator(iterator)
        # At the end of an epoch Keras asks the metrics, and takes other logs as they are.
        return {name: _Log(value) for name, value in logs.items()} if are_metrics else logs

    return function


class _Log:
    """A number that Keras reads for callbacks after every step, on a thread of its own."""

    def __init__(self, value: tf.Tensor):
        self._value = value

    def __float__(self) -> float:
        # By an op, which waits for the step without Python's lock. A tensor's own methods hold it meanwhile, so that
        # the training loop stands still.
        with tf.device("CPU:0"):
            return float(tf.identity(self._value))

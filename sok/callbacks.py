# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit` and `evaluate` of Keras 3."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Set
from typing import Any

import keras
import tensorflow as tf

from sok import checks


class RunAhead(keras.callbacks.Callback):
    """Lets the host enqueue the next step while a GPU still works on this one.

    After every step Keras reads whether there was a batch for it. TensorFlow takes that answer to the GPU and back,
    behind all work that is enqueued there: the host waits for the end of the step, and the GPU then for the host.
    Callbacks, the progress bar among them, read loss and metrics after every step too, and while one thread waits for
    such a copy, no other can enqueue kernels. With this callback the end of the data is an error that Keras takes for
    the end of the epoch, and the others get what was read some steps before. `History`, and all that happens at the
    end of an epoch, has exact values. Callbacks that act on a step's loss, as `TerminateOnNaN` and a `ModelCheckpoint`
    with a number as `save_freq`, act that much later; `logs_every=1` has them act at once.

    The first `fit` or `evaluate` with it sets the model's `train_function` or `test_function`, which stay until the
    model is compiled again. Keras's own stay where nothing waits anyway or where they are needed: with
    `run_eagerly=True`, and with the iterators of a `tf.distribute` strategy. So do functions that are not Keras's, as
    those of a model with a `make_train_function` of its own. A `train_step` that returns something else than the
    model's metrics has it read after every step.

    Args:
        logs_every: steps from one reading of the loss and the metrics for other callbacks to the next. An epoch's first
            step is read. 1: they get those of every step, and the host waits for it.

    Raises:
        ValueError: `logs_every` is no positive whole number; (`fit`, `evaluate`) the model was compiled with
            `steps_per_execution` above 1: the loop that Keras makes of them reads the same answer for each.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
        >>> model.compile("sgd", "mse")
        >>> data = tf.data.Dataset.from_tensors((tf.ones((2, 1)), tf.ones((2, 1)))).repeat(3)
        >>> model.fit(data, verbose=0, callbacks=[sok.callbacks.RunAhead()]).epoch
        [0]
    """

    def __init__(self, logs_every: int = 50):
        super().__init__()
        self.logs_every = checks.whole("logs_every", logs_every, 1)

    def on_train_begin(self, logs=None):
        self.model.train_function = _ahead(self.model, self.model.train_function, self.model.train_step)

    def on_epoch_begin(self, epoch, logs=None):
        self._start_over(self.model.train_function)

    def on_test_begin(self, logs=None):
        self.model.test_function = _ahead(self.model, self.model.test_function, self.model.test_step)
        self._start_over(self.model.test_function)

    def _start_over(self, function):
        if isinstance(function, _Ahead):
            function.start_over(self.logs_every)


def _ahead(
    model: keras.Model, waiting: Callable[[Any], Any] | None, step: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    """What takes the place of a function of Keras that does a step of a model and waits.

    One that is not Keras's stays: one from here or of others, or none, as in a loop of one's own around a
    `CallbackList`.
    """
    of_keras = keras.Model.make_train_function.__module__
    if waiting is None or getattr(waiting, "__module__", None) != of_keras or model.run_eagerly:
        return waiting
    if model.steps_per_execution != 1:
        raise ValueError(
            "sok.callbacks.RunAhead needs steps_per_execution=1, which is as fast with it as more are; the model was "
            f"compiled with {model.steps_per_execution}"
        )
    return _Ahead(model, waiting, step)


class _Ahead:
    """A function that does one step with an iterator's next batch, and returns its logs.

    Raises:
        tf.errors.OutOfRangeError: there is no batch.
    """

    def __init__(self, model: keras.Model, waiting: Callable[[Any], Any], step: Callable[[Any], Any]):
        self._waiting = waiting
        self._metrics: Set[str] = frozenset()
        of_batch = tf.function(step, jit_compile=model.jit_compile, reduce_retracing=True, autograph=False)

        @tf.function(reduce_retracing=True, autograph=False)
        def of_iterator(iterator):
            # Keras puts an Optional where an element has nothing.
            batch = keras.tree.map_structure(
                lambda value: None if isinstance(value, tf.experimental.Optional) else value, iterator.get_next()
            )
            logs = of_batch(batch)
            self._metrics = model.get_metrics_result().keys()
            return logs

        self._of_iterator = of_iterator
        self.start_over(1)

    def start_over(self, logs_every: int) -> None:
        """Reads the next step's logs, and then those of every `logs_every`-th while the iterator is the same."""
        self._logs_every, self._steps = logs_every, 0
        self._last_read: dict[str, Any] = {}
        self._iterator: Callable[[], Any] | None = None

    def __call__(self, iterator: Any) -> Any:
        if not isinstance(iterator, tf.data.Iterator):
            return self._waiting(iterator)
        if self._iterator is not None and self._iterator() is not iterator:
            # A later `fit` without the callback, which reads every step.
            self.start_over(1)
        self._iterator = weakref.ref(iterator)
        logs = self._of_iterator(iterator)
        # Metrics Keras asks of the model at the end of an epoch; other logs it takes as the last step returned them.
        if not isinstance(logs, dict) or logs.keys() != self._metrics:
            return logs
        if self._steps % self._logs_every == 0:
            self._last_read = keras.tree.map_structure(lambda v: v.numpy() if tf.is_tensor(v) else v, logs)
        self._steps += 1
        return dict(self._last_read)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The optimizer wrapper: dense variables go to the wrapped optimizer, table rows to fused ops."""

from typing import Any

import keras
import tensorflow as tf

from sok.optimizers import rules
from sok.stages.merge import merge_slices
from sok.stages.update import TableStep, update
from sok.variables import TableVariable


@keras.saving.register_keras_serializable("sok")
class OptimizerWrapper(keras.optimizers.Optimizer):
    """Trains tables and dense variables with one Keras optimizer.

    Args:
        optimizer: a Keras optimizer (see `sok.optimizers.supported()`), its name or its config. Its
            learning rate, schedule, clipping and weight decay hold for tables too.
        update: "local" (default): only rows of the batch change. "global": every row is treated as
            a dense optimizer would, with a zero gradient if it is not in the batch.

    The gradients of one row are summed before the one update it gets.

    >>> optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1))
    >>> table = sok.DynamicVariable(1, initializer="ones")
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant([[5, 5]]), combiners="sum"))
    >>> optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table]))  # doctest: +SKIP
    """

    def __init__(self, optimizer, update="local", name=None):
        optimizer = keras.optimizers.get(optimizer)
        if update not in ("local", "global"):
            raise ValueError(f"update must be one of local, global, got {update!r}")
        for option in ("use_ema", "gradient_accumulation_steps"):
            if getattr(optimizer, option, None):
                raise ValueError(
                    f"{option} would need a dense array of a table's shape; construct the optimizer "
                    "without it"
                )
        rule = rules.rule_of(optimizer)
        super().__init__(learning_rate=0.0, name=name or f"sok_{optimizer.name}")
        self._rule = rule
        self.inner = optimizer
        self._reach = update

    # One step counter and one learning rate, the wrapped optimizer's.

    @property
    def iterations(self):
        return self.inner.iterations

    @property
    def learning_rate(self):
        return self.inner.learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        self.inner.learning_rate = value

    @property
    def variables(self):
        return self.inner.variables

    def scale_loss(self, loss):
        return self.inner.scale_loss(loss)

    def build(self, variables):
        if self.built:
            return
        self.inner.build([v for v in variables if not isinstance(v, TableVariable)])
        self.built = True

    def apply(self, grads, trainable_variables=None):
        if trainable_variables is None:
            raise ValueError("pass the variables: optimizer.apply(gradients, variables)")
        pairs = [(g, v) for g, v in zip(grads, trainable_variables) if g is not None]
        if not self.built:
            self.build(list(trainable_variables))
        dense = [(g, v) for g, v in pairs if not isinstance(v, TableVariable)]
        tables = [
            (merge_slices(v.handle, v.dimension, _as_slices(g, v)), v)
            for g, v in pairs
            if isinstance(v, TableVariable)
        ]
        dense, tables = self._clip(dense, tables)
        # Everything below uses the step's number and learning rate before the dense step advances
        # them.
        step = tf.cast(self.inner.iterations, tf.int64) + 1
        learning_rate = tf.convert_to_tensor(self.inner._get_current_learning_rate())
        if tables:
            with tf.control_dependencies([step, learning_rate]):
                self._update_tables(tables, step, learning_rate)
        with tf.control_dependencies([step, learning_rate]):
            if dense:
                self.inner.apply(*map(list, zip(*dense)))
            else:
                self.inner._iterations.assign_add(1)

    def _update_tables(self, tables, step, learning_rate):
        factor = self.inner.loss_scale_factor
        update(
            [
                TableStep(
                    variable.table,
                    gradient,
                    self._rule,
                    rules.hyper_of(self.inner, self._rule, learning_rate),
                    self._reach,
                )
                for gradient, variable in tables
            ],
            step,
            scale=1.0 / factor if factor else 1.0,
        )

    def _clip(self, dense, tables):
        """Clipping as the wrapped optimizer says, over merged rows and dense gradients together."""
        inner = self.inner
        if inner.clipvalue is not None:
            limit = inner.clipvalue
            return dense, _map_values(tables, lambda x: tf.clip_by_value(x, -limit, limit))
        if inner.clipnorm is not None:
            return dense, _map_values(tables, lambda x: tf.clip_by_norm(x, inner.clipnorm))
        if inner.global_clipnorm is not None:
            # The wrapped optimizer clips the dense part again, which then is short enough.
            values = [g for g, _ in dense] + [g.values for g, _ in tables]
            norm = tf.linalg.global_norm(values)
            factor = inner.global_clipnorm / tf.maximum(norm, inner.global_clipnorm)
            dense = [(g * tf.cast(factor, g.dtype), v) for g, v in dense]
            return dense, _map_values(tables, lambda x: x * factor)
        return dense, tables

    def get_config(self):
        return {
            "optimizer": keras.saving.serialize_keras_object(self.inner),
            "update": self._reach,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        optimizer = keras.saving.deserialize_keras_object(
            config.pop("optimizer"), custom_objects=custom_objects
        )
        return cls(optimizer, **config)


def _map_values(tables, function):
    return [(type(g)(function(g.values), g.indices), v) for g, v in tables]


def _as_slices(gradient: Any, variable: TableVariable) -> tf.IndexedSlices:
    if not isinstance(gradient, tf.IndexedSlices):
        raise TypeError(
            f"the gradient of the table {variable.name!r} must be the tf.IndexedSlices that the tape "
            f"gave, got {type(gradient).__name__}"
        )
    return gradient


def SGD(lr=0.01):  # noqa: N802  the name that SOK 2 has
    """Plain gradient descent for tables and dense variables.

    Args:
        lr: learning rate.
    """
    return OptimizerWrapper(keras.optimizers.SGD(lr))

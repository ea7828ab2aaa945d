# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrappers that are optimizers of tf_keras, new and legacy. Imported only where tf_keras is in use."""

from typing import Any

import keras
import tensorflow as tf
import tf_keras

from sok.lookup import filter_variables
from sok.optimizers.wrapper import SCALE_LINE, OptimizerWrapper

_LegacyOptimizer: Any = tf_keras.optimizers.legacy.Optimizer
# `tf_keras.mixed_precision.LossScaleOptimizer` only chooses between these two.
_ScaledNew: Any = tf_keras.src.mixed_precision.loss_scale_optimizer.LossScaleOptimizerV3
_ScaledLegacy: Any = tf_keras.src.mixed_precision.loss_scale_optimizer.LossScaleOptimizer


def _dense(variable: Any) -> tf.Variable:
    # Layers of Keras 3 may be trained by an optimizer of tf_keras, which knows only TensorFlow's class.
    return variable.value if isinstance(variable, keras.Variable) else variable


class _TfKerasBase(OptimizerWrapper):
    """What the wrappers of both generations share."""

    @classmethod
    def _resolve(cls, optimizer):
        return tf_keras.optimizers.get(optimizer)

    def _create_variables(self, dense: list[tf.Variable]) -> None:
        """Builds the wrapped optimizer, and what of those of `per_table` is a variable."""
        raise NotImplementedError

    def _build(self, variables: list) -> None:
        self._check_names(variables)
        with tf.init_scope():
            self._create_variables([_dense(v) for v in filter_variables(variables)[1]])

    def _apply(self, grads_and_vars, name, **kwargs) -> tf.Variable:
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            raise ValueError("No gradients provided for any variable.")
        self._build([v for _, v in pairs])

        def apply_dense(dense):
            if dense:
                self.inner_optimizer.apply_gradients([(g, _dense(v)) for g, v in dense], name=name, **kwargs)
            else:
                self.inner_optimizer.iterations.assign_add(1)

        self._apply_pairs(pairs, apply_dense)
        return self.iterations

    def _apply_pairs(self, pairs, apply_dense):
        self._step(pairs, apply_dense)

    def _watch(self, tape: tf.GradientTape, loss: Any, variables: Any) -> Any:
        """The value of a callable loss. Tapes see tables by themselves, and refuse to be told."""
        with tape:
            if not callable(variables):
                tape.watch([_dense(v) for v in filter_variables(variables)[1]])
            return loss()

    def get_config(self):
        return self._config(tf_keras.optimizers.serialize)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        def restore(optimizer):
            return tf_keras.optimizers.deserialize(
                optimizer, custom_objects, use_legacy_optimizer=issubclass(cls, _LegacyOptimizer)
            )

        config = dict(config)
        config["optimizer"] = restore(config["optimizer"])
        config["per_table"] = {name: restore(other) for name, other in config["per_table"].items()}
        return cls(config.pop("optimizer"), **config)


class _Unscaled(_TfKerasBase):
    # A LossScaleOptimizer that is put around an optimizer sets this, and does no more before it is used.

    @property
    def _is_wrapped_by_loss_scale_optimizer(self):
        return False

    @_is_wrapped_by_loss_scale_optimizer.setter
    def _is_wrapped_by_loss_scale_optimizer(self, value):
        line = SCALE_LINE.replace("keras.", "tf_keras.")
        raise ValueError(
            "a loss scale goes inside of sok.OptimizerWrapper, where it sees the gradients of tables on "
            f"all ranks. Write: {line}"
        )


class _Scaled(_TfKerasBase):
    """As in tf_keras, the loop scales the loss and unscales the gradients: `get_scaled_loss`,
    `get_unscaled_gradients`."""

    def _initialize_scaled(self, base: Any, optimizer: Any, loss_scale: Any) -> None:
        dynamic = loss_scale == "dynamic"
        base.__init__(self, optimizer, dynamic, initial_scale=None if dynamic else loss_scale)

    def _apply_pairs(self, pairs, apply_dense):
        if not self.dynamic:
            self._step(pairs, apply_dense)
            return
        finite = self._step(pairs, apply_dense, check_finite=True)
        # tf_keras counts the steps that it leaves out.
        self.inner_optimizer.iterations.assign_add(tf.cast(tf.logical_not(finite), tf.int64))
        # The state asks for gradients, and looks only whether they are finite.
        self._loss_scale.update([tf.where(finite, 0.0, float("nan"))])


class _NewBase(_TfKerasBase):
    """For optimizers of `tf_keras.optimizers`."""

    @property
    def variables(self):
        return self.inner_optimizer.variables

    def build(self, var_list):
        self._build(list(var_list))

    def _create_variables(self, dense):
        if dense:
            self.inner_optimizer.build(dense)

    def apply_gradients(self, grads_and_vars, name=None, skip_gradients_aggregation=False, **kwargs):
        return self._apply(grads_and_vars, name, skip_gradients_aggregation=skip_gradients_aggregation, **kwargs)

    def compute_gradients(self, loss, var_list, tape=None):
        if callable(loss):
            tape = tape or tf.GradientTape()
            loss = self._watch(tape, loss, var_list)
        return super().compute_gradients(loss, var_list() if callable(var_list) else var_list, tape)


class _LegacyBase(_TfKerasBase):
    """For optimizers of `tf_keras.optimizers.legacy`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for table, optimizer in self.per_table.items():
            self._track_trackable(optimizer, f"per_table_{table}")

    @classmethod
    def _resolve(cls, optimizer):
        return tf_keras.optimizers.get(optimizer, use_legacy_optimizer=True)

    @property
    def weights(self):
        return self.inner_optimizer.weights

    def variables(self):
        return self.inner_optimizer.variables()

    def _create_all_weights(self, var_list):
        self._build(list(var_list))

    def _create_variables(self, dense):
        self.inner_optimizer._create_all_weights(dense)
        for optimizer in self.per_table.values():
            optimizer._create_hypers()

    def apply_gradients(self, grads_and_vars, name=None, experimental_aggregate_gradients=True):
        return self._apply(grads_and_vars, name, experimental_aggregate_gradients=experimental_aggregate_gradients)

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        if callable(loss):
            tape = tape or tf.GradientTape()
            loss = self._watch(tape, loss, var_list)
        variables = var_list() if callable(var_list) else var_list
        return super()._compute_gradients(loss, variables, grad_loss, tape)

    def _assert_valid_dtypes(self, tensors):
        super()._assert_valid_dtypes([v for v in tensors if not isinstance(v, keras.Variable)])


class TfKerasWrapper(_NewBase, _Unscaled, tf_keras.optimizers.Optimizer):
    """A wrapper of a `tf_keras.optimizers.Optimizer`."""

    def _initialize_base(self, optimizer, loss_scale, name):
        tf_keras.optimizers.Optimizer.__init__(self, name=name)
        self.inner_optimizer = optimizer


class ScaledTfKerasWrapper(_NewBase, _Scaled, _ScaledNew):
    """The same with a loss scale."""

    def _initialize_base(self, optimizer, loss_scale, name):
        self._initialize_scaled(_ScaledNew, optimizer, loss_scale)


class LegacyWrapper(_LegacyBase, _Unscaled, _LegacyOptimizer):
    """A wrapper of a `tf_keras.optimizers.legacy.Optimizer`."""

    def _initialize_base(self, optimizer, loss_scale, name):
        _LegacyOptimizer.__init__(self, name=name)
        self.inner_optimizer = optimizer
        self._track_trackable(optimizer, "inner_optimizer")


class ScaledLegacyWrapper(_LegacyBase, _Scaled, _ScaledLegacy):
    """The same with a loss scale."""

    def _initialize_base(self, optimizer, loss_scale, name):
        self._initialize_scaled(_ScaledLegacy, optimizer, loss_scale)

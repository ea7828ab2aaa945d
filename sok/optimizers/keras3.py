# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrappers that are Keras 3 optimizers."""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sok.lookup import filter_variables
from sok.optimizers import before_build
from sok.optimizers.clipping import map_values
from sok.optimizers.wrapper import SCALE_LINE, OptimizerWrapper


class _Keras3Base(OptimizerWrapper):
    """What the wrappers with and without a loss scale share."""

    name: str
    _saved: "_Saved | None" = None

    @classmethod
    def _resolve(cls, optimizer):
        return keras.optimizers.get(optimizer)

    @property
    def _own_variables(self) -> list[keras.Variable]:
        return []

    @property
    def variables(self):
        others = [v for optimizer in self.per_table.values() for v in optimizer.variables]
        return self._own_variables + self.inner_optimizer.variables + others

    def build(self, variables):
        if self.built:
            return
        self._check_names(variables)
        _, dense = filter_variables(variables)
        self.inner_optimizer.build(dense)
        self._known = _Known(list(variables))
        if self._saved is not None:
            # One saved before its first step has no variables either.
            if self._saved.own != [] or self._saved.inner.has_arrays:
                self._assign_own(self._saved.own)
            self._saved.inner.finish()
            self._saved = None
        self.built = True

    def apply_gradients(self, grads_and_vars):
        gradients, variables = zip(*grads_and_vars)
        self.apply(gradients, variables)
        return self.iterations

    def apply(self, grads, trainable_variables=None):
        """Updates variables and tables.

        Args:
            grads: gradients, None where there is none; of tables: the tape's `tf.IndexedSlices`.
            trainable_variables: their variables; None: those that the optimizer was built with. Tables
                may be new ones.
        """
        if len(grads) == 0:
            return
        if trainable_variables is None:
            if not self.built or len(grads) != len(self._known.variables):
                raise ValueError(
                    f"{len(grads)} gradients without their variables: call optimizer.build(variables) "
                    "first, or pass them: optimizer.apply(gradients, variables)"
                )
            trainable_variables = self._known.variables
        trainable_variables = list(trainable_variables)
        self.build(trainable_variables)
        self._check_names(trainable_variables)
        pairs = zip(*self._filter_empty_gradients(grads, trainable_variables))
        self._apply_pairs(list(pairs))

    def _apply_pairs(self, pairs: list[tuple[Any, Any]]) -> None:
        raise NotImplementedError

    def _apply_dense(self, dense):
        if dense:
            gradients, variables = map(list, zip(*dense))

            def step(gradients):
                self.inner_optimizer.apply(gradients, variables)

            if self._settings.jit_compile and _is_one_program(gradients):
                # Not kept: a later trace sees what has been assigned to the optimizer.
                tf.function(step, jit_compile=True, autograph=False)(gradients)
            else:
                step(gradients)
        else:
            # TensorFlow's variable adds in place; Keras's would read, cast, add and assign.
            self.inner_optimizer.iterations.value.assign_add(tf.constant(1, tf.int64))

    def finalize_variable_values(self, var_list):
        self.inner_optimizer.finalize_variable_values(filter_variables(var_list)[1])

    # Keras walks the attributes, and saves the optimizers inside of this one by itself.

    def save_own_variables(self, store):
        arrays = [v.numpy() for v in self._own_variables] if self._saved is None else self._saved.own
        before_build.write(arrays or [], store)

    def load_own_variables(self, store):
        arrays = before_build.read(store)
        if self.built:
            self._assign_own(arrays)
        else:
            # Those of the optimizer inside Keras loads next.
            self._saved = _Saved(arrays, before_build.Waiting(self.inner_optimizer))

    def _assign_own(self, arrays: list[np.ndarray] | None) -> None:
        before_build.assign(self.name, self._own_variables, arrays, "its loss scale is as it was")

    def get_config(self):
        return self._config(keras.saving.serialize_keras_object)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        def restore(optimizer):
            return keras.saving.deserialize_keras_object(optimizer, custom_objects=custom_objects)

        config = dict(config)
        config["optimizer"] = restore(config["optimizer"])
        config["per_table"] = {name: restore(other) for name, other in config["per_table"].items()}
        return cls(config.pop("optimizer"), **config)

    @property
    def loss_scale_factor(self):
        inner = self.__dict__.get("inner_optimizer")
        return None if inner is None else inner.loss_scale_factor

    def __setattr__(self, name, value):
        if name != "loss_scale_factor":
            super().__setattr__(name, value)
        elif "inner_optimizer" in self.__dict__:
            # A LossScaleOptimizer that is put around an optimizer sets this, as the first thing. (Here
            # and not in a setter: Keras does not call one to set what is there already.)
            raise ValueError(
                "a loss scale goes inside of sok.OptimizerWrapper, where it sees the gradients of tables "
                f"on all ranks. Write: {SCALE_LINE}"
            )


@dataclasses.dataclass(frozen=True)
class _Saved:
    """What was loaded before the optimizer was built: its own variables, None if the file has others, and
    who keeps those of the one inside."""

    own: list[np.ndarray] | None
    inner: before_build.Waiting


def _is_one_program(gradients: list[Any]) -> bool:
    """Whether XLA can make one program of a step with these gradients, and of all later ones of the same trace."""
    # An eager step reads the optimizer's attributes each time; under a strategy replicas meet in the step.
    if tf.executing_eagerly() or tf.distribute.has_strategy():
        return False
    # XLA compiles for every number of ids anew.
    return all(g.values.shape.is_fully_defined() for g in gradients if isinstance(g, tf.IndexedSlices))


class _Known:
    """The variables that an optimizer was built with, out of sight of tracking."""

    def __init__(self, variables: list):
        self.variables = variables


@keras.saving.register_keras_serializable("sok", "OptimizerWrapper")
class Keras3Wrapper(_Keras3Base, keras.optimizers.Optimizer):
    """A wrapper without a loss scale of its own; `loss_scale_factor` of the wrapped optimizer holds."""

    def _initialize_base(self, optimizer, loss_scale, name):
        keras.optimizers.Optimizer.__init__(self, learning_rate=0.0, name=name)
        self.inner_optimizer = optimizer

    def scale_loss(self, loss):
        return self.inner_optimizer.scale_loss(loss)

    def _apply_pairs(self, pairs):
        self._step(pairs, self._apply_dense, loss_scale=self.inner_optimizer.loss_scale_factor)


@keras.saving.register_keras_serializable("sok", "ScaledOptimizerWrapper")
class ScaledKeras3Wrapper(_Keras3Base, keras.optimizers.LossScaleOptimizer):
    """A wrapper with a loss scale; the dynamic one starts at `initial_scale`, and doubles after
    `dynamic_growth_steps` steps without a gradient that is not finite."""

    def _initialize_base(self, optimizer, loss_scale, name):
        dynamic = loss_scale == "dynamic"
        keras.optimizers.LossScaleOptimizer.__init__(
            self, optimizer, **({} if dynamic else {"initial_scale": loss_scale}), name=name
        )

    @property
    def _is_dynamic(self) -> bool:
        return self._settings.loss_scale == "dynamic"

    @property
    def _own_variables(self):
        # From the middle of `build` on.
        return [self.step_counter, self.dynamic_scale] if hasattr(self, "dynamic_scale") else []

    def build(self, variables):
        if not self.built and self._is_dynamic:
            self.step_counter = self.add_variable((), dtype="int", name="step_counter")
            self.dynamic_scale = self.add_variable(
                (),
                keras.initializers.Constant(self.initial_scale),
                dtype="float32",
                name="dynamic_scale",
            )
        super().build(variables)

    def scale_loss(self, loss):
        scale = self.dynamic_scale if self.built and self._is_dynamic else self.initial_scale
        return keras.ops.multiply(loss, scale)

    def _apply_pairs(self, pairs):
        scale = tf.convert_to_tensor(self.dynamic_scale if self._is_dynamic else self.initial_scale)

        def apply_dense(dense):
            self._apply_dense([(map_values(g, lambda x: x / tf.cast(scale, x.dtype)), v) for g, v in dense])

        finite = self._step(pairs, apply_dense, loss_scale=scale, check_finite=self._is_dynamic)
        if self._is_dynamic:
            self._adapt(scale, finite)

    def _adapt(self, scale: tf.Tensor, finite: tf.Tensor) -> None:
        """Keras's rule, without a branch."""
        count = tf.convert_to_tensor(self.step_counter) + 1
        grow = tf.logical_and(finite, count >= self.dynamic_growth_steps)
        self.step_counter.assign(tf.where(tf.logical_or(grow, tf.logical_not(finite)), tf.zeros_like(count), count))
        self.dynamic_scale.assign(tf.where(grow, scale * 2.0, tf.where(finite, scale, scale * 0.5)))

    def get_config(self):
        return {
            **super().get_config(),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        adjusted = {name: config.pop(name) for name in ("initial_scale", "dynamic_growth_steps")}
        wrapper = super().from_config(config, custom_objects)
        for name, value in adjusted.items():
            setattr(wrapper, name, value)
        return wrapper

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Row-wise Adagrad, which Keras lacks."""

import keras
import tensorflow as tf
from keras import ops


@keras.saving.register_keras_serializable("sok")
class RowWiseAdagrad(keras.optimizers.Optimizer):
    """Adagrad with one accumulator a row, which grows by the mean of the row's squared gradient.

    The state of a table of width d is d times smaller than Adagrad's. A dense variable's rows run over
    its first axis; a vector's rows are its entries.

    Args:
        learning_rate: a number or a schedule.
        initial_accumulator_value: where accumulators start.
        epsilon: added to the accumulator under the root.
        **kwargs: as for every Keras optimizer.

    >>> weights = keras.Variable([[1.0, 1.0]])
    >>> optimizer = RowWiseAdagrad(0.1, initial_accumulator_value=0.0)
    >>> optimizer.apply([tf.constant([[3.0, 4.0]])], [weights])  # the mean of the squares is 12.5
    >>> weights.numpy().round(4)
    array([[0.9151, 0.8869]], dtype=float32)
    """

    def __init__(self, learning_rate=0.001, initial_accumulator_value=0.1, epsilon=1e-7, name=None, **kwargs):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def build(self, var_list):
        if self.built:
            return
        super().build(var_list)
        initializer = keras.initializers.Constant(self.initial_accumulator_value)
        self._accumulators = [
            self.add_variable(variable.shape[:1], initializer, variable.dtype, name=f"accumulator_{number}")
            for number, variable in enumerate(var_list)
        ]

    def update_step(self, gradient, variable, learning_rate):
        # A sparse gradient becomes dense, which sums the gradients of equal rows before they are squared.
        gradient = tf.cast(tf.convert_to_tensor(gradient), variable.dtype)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        others = tuple(range(1, len(variable.shape)))
        square = ops.square(gradient)
        self.assign_add(accumulator, ops.mean(square, axis=others) if others else square)
        rate = ops.cast(learning_rate, variable.dtype) / ops.sqrt(accumulator + self.epsilon)
        rate = ops.reshape(rate, tuple(rate.shape) + (1,) * len(others))
        self.assign_sub(variable, rate * gradient)

    def get_config(self):
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }

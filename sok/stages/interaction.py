# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The dot interaction: an op with its gradient."""

import tensorflow as tf

from sok import _native


def dot_interaction(vectors: list[tf.Tensor], beside: int) -> tf.Tensor:
    """[batch, beside * width + N (N - 1) / 2] of N vectors [batch, width]; see `sok.layers.DotInteraction`."""
    return _native.ops.sok_dot_interaction(vectors=vectors, beside=beside)


@tf.RegisterGradient("Sok>DotInteraction")
def _gradient(op, gradient):
    return _native.ops.sok_dot_interaction_grad(
        vectors=list(op.inputs), gradient=gradient, beside=op.get_attr("beside")
    )


@tf.RegisterGradient("Sok>DotInteractionGrad")
def _no_second_gradient(op, *gradients):
    raise NotImplementedError("DotInteraction: gradients of its gradients are not supported")


def dot_interaction_in_plain_ops(vectors: list[tf.Tensor], beside: int) -> tf.Tensor:
    """The same in TensorFlow's own ops."""
    count = len(vectors)
    stacked = tf.stack(vectors, axis=1)
    products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [-1, count**2])
    pairs = [i * count + j for i in range(count) for j in range(i + 1, count)]
    return tf.concat([*vectors[:beside], tf.gather(products, pairs, axis=1)], axis=1)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""One training step of a table with Adagrad: lookup, backward, merge of repeated ids, update.

The gradient of the lookup's output is given, so that nothing but the table's own work is timed. TensorFlow
sums repeated ids and applies ResourceSparseApplyAdagradV2, as its optimizers do; the best of three ways to
look up counts.
"""

import defaults
import keras
import numpy as np
import tables
import tensorflow as tf

import sok

RATE, START, EPSILON = 0.01, 0.1, 1e-7


def tensorflow_steps(values: np.ndarray, gradient: tf.Tensor) -> dict:
    variable = tf.Variable(values)
    accumulator = tf.Variable(tf.fill(values.shape, START))

    def apply(keys, rows):
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=variable.handle,
            accum=accumulator.handle,
            lr=RATE,
            epsilon=EPSILON,
            grad=rows,
            indices=keys,
        )

    @tf.function(reduce_retracing=True)
    def fast(ids):
        with tf.GradientTape() as tape:
            output = tf.nn.embedding_lookup_sparse(variable, ids, None, combiner="sum", allow_fast_lookup=True)
        slices = tape.gradient(output, variable, output_gradients=gradient)
        keys, places = tf.unique(slices.indices)
        apply(keys, tf.math.unsorted_segment_sum(slices.values, places, tf.size(keys)))

    @tf.function(reduce_retracing=True)
    def unique(ids):
        keys, places = tf.unique(ids.values)
        rows = tf.gather(variable, keys)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            output = tf.sparse.segment_sum(rows, places, ids.value_rowids())
        apply(keys, tape.gradient(output, rows, output_gradients=gradient))

    return {"tf sparse": (fast, "sparse"), "tf ragged": (fast, "ragged"), "tf unique": (unique, "ragged")}


def sok_step(table, gradient: tf.Tensor):
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(RATE, START, EPSILON))
    optimizer.build([table])

    @tf.function(reduce_retracing=True)
    def step(ids):
        with tf.GradientTape() as tape:
            output = sok.lookup_sparse(table, ids, combiners="sum")
        slices = tape.gradient(output, table, output_gradients=gradient)
        optimizer.apply_gradients([(slices, table)])

    return step


def functions_of(shape: defaults.Shape, batches: tables.Batches, static, hashed) -> dict:
    gradient = tf.constant(np.random.default_rng(3).standard_normal((shape.bags, shape.width), np.float32))
    peers = tensorflow_steps(static.numpy().state["values"], gradient)
    functions = {peer: batches.each(*step) for peer, step in peers.items()}
    functions["static"] = batches.each(sok_step(static, gradient), "ragged")
    functions["hash"] = batches.each(sok_step(hashed, gradient), "ragged")
    return functions


if __name__ == "__main__":
    tables.beside_tensorflow("train_step", __doc__, functions_of, {"static": "static", "hash": "hash"})

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages 7 and 7' on several ranks, combine: bags out of rows that have been fetched."""

import dataclasses

import tensorflow as tf

from sok import _native
from sok.stages.lookup import FeatureRead, feature_arguments


def _arguments(variables: list, reads: list[FeatureRead], slots: list[tf.Tensor]):
    positions = [
        dataclasses.replace(read, record=dataclasses.replace(read.record, ids=slot))
        for read, slot in zip(reads, slots)
    ]
    # The owner has applied max_norm to the rows.
    no_norms = [0.0] * len(variables)
    inputs, attributes = feature_arguments([v.table for v in variables], positions, no_norms)
    return inputs, {**attributes, "num_tables": len(variables)}


def combine(
    variables: list, reads: list[FeatureRead], slots: list[tf.Tensor], rows: list[tf.Tensor]
) -> list[tf.Tensor]:
    """Outputs of all features, [batch, dimension] each.

    Args:
        variables: the tables.
        reads: the features.
        slots: for each feature positions in its table's rows, laid out as its ids.
        rows: of each table, [n, dimension].
    """
    inputs, attributes = _arguments(variables, reads, slots)
    return _native.ops.sok_combine(
        rows=rows, **inputs, **attributes, output_types=[read.dtype for read in reads]
    )


def combine_gradients(
    variables: list,
    reads: list[FeatureRead],
    slots: list[tf.Tensor],
    rows: list[tf.Tensor],
    gradients: list[tf.Tensor],
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Gradients of the rows, float32, and of the weights of each feature (zeros without weights)."""
    inputs, attributes = _arguments(variables, reads, slots)
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return _native.ops.sok_combine_gradients(
        rows=rows, **inputs, gradients=gradients, **attributes
    )


def divide(read: FeatureRead, sums: tf.Tensor) -> tf.Tensor:
    """The output of a feature, from the weighted sums of its bags.

    The divisor is that of the whole bag, so that it does not matter who has summed which part. Weights
    get their gradients through it.

    Args:
        read: the feature.
        sums: float32 [batch, dimension].
    """
    if read.combiner != "sum":
        sums = _scaled(sums, _scale(read)[:, tf.newaxis])
    return tf.cast(sums, read.dtype)


@tf.custom_gradient
def _scaled(sums: tf.Tensor, scale: tf.Tensor):
    # Not x * 0: an infinite row or gradient must not leak through a divisor of 0.
    is_zero = tf.equal(scale, 0.0)

    def gradient(upstream):
        to_scale = tf.reduce_sum(upstream * sums, axis=1, keepdims=True)
        return tf.where(is_zero, 0.0, upstream * scale), tf.where(is_zero, 0.0, to_scale)

    return tf.where(is_zero, 0.0, sums * scale), gradient


def _scale(read: FeatureRead) -> tf.Tensor:
    """One over the divisor of each bag, 0 where that is 0; float32 [batch]."""
    record = read.record
    if record.weights is None:
        lengths = _lengths(read)
        total = tf.cast(lengths, tf.float32)
    else:
        parts = tf.reshape(record.weights, [-1])
        if read.combiner == "sqrtn":
            parts = tf.square(parts)
        bag = tf.repeat(tf.range(record.batch_size()), _lengths(read))
        total = tf.math.unsorted_segment_sum(parts, bag, record.batch_size())
    if read.combiner == "mean":
        return tf.math.divide_no_nan(1.0, total)
    # The root's derivative at 0 is infinite.
    is_zero = tf.equal(total, 0.0)
    return tf.where(is_zero, 0.0, tf.math.rsqrt(tf.where(is_zero, 1.0, total)))


def _lengths(read: FeatureRead) -> tf.Tensor:
    record = read.record
    if record.row_splits is not None:
        return record.row_splits[1:] - record.row_splits[:-1]
    return tf.fill([record.batch_size()], tf.shape(record.ids, out_type=tf.int64)[1])

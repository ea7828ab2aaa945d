# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 7' and 2', merge: gradients of bags become one summed gradient a different key."""

import tensorflow as tf

from sok import _native


class MergedSlices(tf.IndexedSlices):
    """The gradient of a table whose keys are all different.

    What changes it on the way to the optimizer (the tape, when it adds two of them; clipping by the
    user) makes a plain `tf.IndexedSlices`, so this type is proof enough to skip a second merge.
    """


def merge(
    tables: list[tf.Tensor], features: dict, gradients: list[tf.Tensor], attributes: dict
) -> list[MergedSlices]:
    """One gradient a table: keys int64 [n], values float32 [n, dimension].

    Args:
        tables: handles.
        features: "ids", "row_splits" and "weights", as the lookup had them.
        gradients: of the lookup's outputs.
        attributes: of the lookup.
    """
    keys, values = _native.ops.sok_merge(
        tables=tables, **features, gradients=gradients, **attributes
    )
    return [MergedSlices(v, k) for k, v in zip(keys, values)]


def merge_slices(table: tf.Tensor, dimension: int, slices: tf.IndexedSlices) -> MergedSlices:
    """Sums the gradients of equal keys, unless that has been done."""
    if isinstance(slices, MergedSlices):
        return slices
    features = {
        "ids": [tf.cast(slices.indices, tf.int64)[:, tf.newaxis]],
        "row_splits": [tf.zeros([0], tf.int64)],
        "weights": [tf.zeros([0], tf.float32)],
    }
    attributes = {
        "table_of": [0],
        "combiners": ["sum"],
        "ragged": [False],
        "weighted": [False],
        "dimensions": [dimension],
        "max_norms": [0.0],
    }
    (merged,) = merge([table], features, [tf.cast(slices.values, tf.float32)], attributes)
    return merged

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 7' and 2', merge: gradients of bags become one summed gradient a different key."""

import tensorflow as tf

from sok import _native
from sok.table import TableValue


class MergedSlices(tf.IndexedSlices):
    """The gradient of a table whose keys are all different.

    What changes it on the way to the optimizer (the tape, when it adds two of them; clipping by the
    user) makes a plain `tf.IndexedSlices`, so this type is proof enough to skip a second merge.
    """


def merge(tables: list[tf.Tensor], features: dict, gradients: list[tf.Tensor], attributes: dict) -> list[MergedSlices]:
    """One gradient a table: keys int64 [n], values float32 [n, dimension].

    Args:
        tables: handles.
        features: "ids", "row_splits" and "weights", as the lookup had them.
        gradients: of the lookup's outputs.
        attributes: of the lookup.
    """
    keys, values = _native.ops.sok_merge(tables=tables, **features, gradients=gradients, **attributes)
    return [MergedSlices(v, k) for k, v in zip(keys, values)]


def merge_slices(tables: list[TableValue], gradients: list[tf.IndexedSlices]) -> list[MergedSlices]:
    """Sums the gradients of equal keys of each table, in one op, where that has not been done."""
    unmerged = [i for i, slices in enumerate(gradients) if not isinstance(slices, MergedSlices)]
    if not unmerged:
        return list(gradients)
    count = len(unmerged)
    features = {
        "ids": [_keys(gradients[i].indices)[:, tf.newaxis] for i in unmerged],
        "row_splits": [tf.zeros([0], tf.int64)] * count,
        "weights": [tf.zeros([0], tf.float32)] * count,
    }
    attributes = {
        "table_of": list(range(count)),
        "combiners": ["sum"] * count,
        "ragged": [False] * count,
        "weighted": [False] * count,
        "dimensions": [tables[i].attributes.dimension for i in unmerged],
        "max_norms": [0.0] * count,
    }
    merged = merge(
        [tables[i].handle for i in unmerged],
        features,
        [tf.cast(gradients[i].values, tf.float32) for i in unmerged],
        attributes,
    )
    result = list(gradients)
    for i, slices in zip(unmerged, merged):
        result[i] = slices
    return result


def _keys(indices: tf.Tensor) -> tf.Tensor:
    return tf.bitcast(indices, tf.int64) if indices.dtype == tf.uint64 else tf.cast(indices, tf.int64)

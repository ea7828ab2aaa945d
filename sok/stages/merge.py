# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 7' and 2', merge: gradients of bags become one summed gradient a different key."""

import contextlib
from typing import Any

import tensorflow as tf

from sok import _native
from sok.table import TableValue


class Merge:
    """One merge, done when its result is asked for.

    An update that nobody stands before (clipping, a look at the gradients) does the merging itself, so
    that this never runs and the gradients of rows are never stored.

    Args:
        tables: handles.
        features: "ids", "row_splits" and "weights", as the lookup had them.
        gradients: of the lookup's outputs.
        attributes: of the lookup.
    """

    def __init__(self, tables: list[tf.Tensor], features: dict, gradients: list[tf.Tensor], attributes: dict):
        self.tables = tables
        self.features = features
        self.gradients = gradients
        self.attributes = attributes
        self._result: Any = None

    def result(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """For each table keys int64 [n] and values float32 [n, dimension]."""
        if self._result is None:
            # In the graph of the backward pass, also when a branch asks first.
            symbolic = tf.is_symbolic_tensor(self.gradients[0])
            with self.gradients[0].graph.as_default() if symbolic else contextlib.nullcontext():
                self._result = _native.ops.sok_merge(
                    tables=self.tables, **self.features, gradients=self.gradients, **self.attributes
                )
        assert self._result is not None
        return self._result


class MergedSlices(tf.IndexedSlices):
    """The gradient of a table whose keys are all different.

    What changes it on the way to the optimizer (the tape, when it adds two of them; clipping by the
    user) makes a plain `tf.IndexedSlices`, so this type is proof enough to skip a second merge.

    origin: the merge that gives the values, and this table's place in it; None if they are given.
    """

    def __init__(self, values=None, indices=None, origin: tuple[Merge, int] | None = None):
        self.origin = origin
        super().__init__(values, indices)

    # TensorFlow reads these attributes itself, so they, and not only their public names, are late.

    @property
    def _values(self):
        return self._given_values if self.origin is None else self.origin[0].result()[1][self.origin[1]]

    @_values.setter
    def _values(self, values):
        self._given_values = values

    @property
    def _indices(self):
        return self._given_indices if self.origin is None else self.origin[0].result()[0][self.origin[1]]

    @_indices.setter
    def _indices(self, indices):
        self._given_indices = indices


def merge(tables: list[tf.Tensor], features: dict, gradients: list[tf.Tensor], attributes: dict) -> list[MergedSlices]:
    """One gradient a table. The arguments are those of `Merge`."""
    origin = Merge(tables, features, gradients, attributes)
    return [MergedSlices(origin=(origin, place)) for place in range(len(tables))]


def unread(slices: list[MergedSlices]) -> list[Merge]:
    """The merges of which these are all results, and which an update can do itself: without clipping of rows to
    max_norm, which bends their gradients."""
    places: dict[Merge, set[int]] = {}
    for each in slices:
        if each.origin is not None:
            places.setdefault(each.origin[0], set()).add(each.origin[1])
    return [
        merge
        for merge, of_merge in places.items()
        if len(of_merge) == len(merge.tables) and not any(merge.attributes["max_norms"])
    ]


def merge_slices(tables: list[TableValue], gradients: list[tf.IndexedSlices]) -> list[MergedSlices]:
    """Sums the gradients of equal keys (int64) of each table, in one op, where that has not been done."""
    unmerged = [i for i, slices in enumerate(gradients) if not isinstance(slices, MergedSlices)]
    if not unmerged:
        return list(gradients)
    count = len(unmerged)
    features = {
        "ids": [gradients[i].indices[:, tf.newaxis] for i in unmerged],
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

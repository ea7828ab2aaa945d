# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clipping of dense gradients and merged rows together, as the wrapped optimizer says.

A gradient that is not finite stays where it is: where a dense optimizer would spread a NaN over all
variables by the norm, other rows get a zero gradient here.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from sok import _native
from sok.optimizers.rules import Source
from sok.stages.merge import Merge, MergedSlices
from sok.variables import TableVariable


@dataclasses.dataclass
class TableGradient:
    """One table's gradient in a step, and the optimizer that applies to it."""

    variable: TableVariable
    slices: MergedSlices
    source: Source

    def map(self, function) -> "TableGradient":
        return self.with_slices(MergedSlices(function(self.slices.values), self.slices.indices))

    def with_slices(self, slices: MergedSlices) -> "TableGradient":
        return dataclasses.replace(self, slices=slices)

    @property
    def is_sharded(self) -> bool:
        """Whether other ranks have other rows of the table."""
        return not self.variable.placement.is_replicated


def clip(
    source: Source,
    dense: list[tuple[Any, Any]],
    tables: list[TableGradient],
    dense_scale: Any,
    table_scale: Any,
    sum_over_ranks,
) -> tuple[list[tuple[Any, Any]], list[TableGradient], Any]:
    """Clips the gradients of a step.

    Args:
        source: the wrapped optimizer.
        dense: (gradient, variable); the wrapped optimizer itself clips these by value and by norm.
        tables: the tables' gradients, to be clipped as the optimizer of each says.
        dense_scale, table_scale: what the gradients are still to be multiplied with.
        sum_over_ranks: makes square norms of this rank's shards those of all.

    Returns:
        dense and tables, clipped, and the tables' new scale.
    """
    tables = _clip_tables(tables, table_scale, sum_over_ranks)
    clips = source.clips()
    limit = dict(clips).get("global_norm")
    if limit is None:
        return dense, tables, table_scale
    # The wrapped optimizer repeats what is done to dense gradients here, to no effect.
    for kind, value in clips[:-1]:
        dense = [
            (map_values(g, lambda x, k=kind, v=value: _clip_values(k, v, x, dense_scale)), variable)
            for g, variable in dense
        ]
    squares = tf.add_n([tf.constant(0.0), *_square_norms(tables, sum_over_ranks)]) * table_scale**2
    squares += _square_norm([_values(g) for g, _ in dense]) * dense_scale**2
    factor = _norm_factor(tf.sqrt(squares), limit)
    dense = [(map_values(g, lambda x: x * tf.cast(factor, x.dtype)), variable) for g, variable in dense]
    return dense, tables, table_scale * factor


def _clip_tables(tables: list[TableGradient], scale: Any, sum_over_ranks) -> list[TableGradient]:
    """Clips each table by value and then by its own norm, as its optimizer says."""
    limits = [dict(gradient.source.clips()) for gradient in tables]
    by_norm = [place for place, limit in enumerate(limits) if "norm" in limit]
    tables = [
        gradient.map(lambda x, v=limit["value"]: _clip_values("value", v, x, scale))
        if "value" in limit
        else gradient
        for gradient, limit in zip(tables, limits)
    ]
    squares = _square_norms([tables[place] for place in by_norm], sum_over_ranks)
    for place, square in zip(by_norm, squares):
        factor = _norm_factor(tf.sqrt(square) * scale, limits[place]["norm"])
        tables[place] = tables[place].map(lambda x, f=factor: x * f)
    return tables


def _square_norms(tables: list[TableGradient], sum_over_ranks) -> list[tf.Tensor]:
    """The square norm of each table's gradient: of a table in shards over all of them."""
    squares = [_square_norm([gradient.slices.values]) for gradient in tables]
    sharded = [place for place, gradient in enumerate(tables) if gradient.is_sharded]
    if sharded:
        sums = sum_over_ranks(tf.stack([squares[place] for place in sharded]))
        for place, total in zip(sharded, tf.unstack(sums, len(sharded))):
            squares[place] = total
    return squares


def _clip_values(kind: str, limit: float, values: tf.Tensor, scale: Any) -> tf.Tensor:
    if kind == "value":
        limit = tf.cast(limit / scale, values.dtype)
        return tf.clip_by_value(values, -limit, limit)
    norm = tf.sqrt(_square_norm([values])) * scale
    return values * tf.cast(_norm_factor(norm, limit), values.dtype)


def _norm_factor(norm: tf.Tensor, limit: float) -> tf.Tensor:
    return tf.where(tf.math.is_finite(norm), limit / tf.maximum(norm, limit), 0.0)


def _square_norm(values: list[tf.Tensor]) -> tf.Tensor:
    squares = [tf.reduce_sum(tf.square(tf.cast(x, tf.float32))) for x in values]
    return tf.add_n(squares) if squares else tf.constant(0.0)


def map_values(gradient: Any, function) -> Any:
    """`function` of a dense gradient, or of the values of a sparse one."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def all_finite(dense: list[tuple[Any, Any]], tables: list[TableGradient], unmerged: list[Merge]) -> tf.Tensor:
    """Whether every gradient is finite: a boolean scalar.

    Those of the merges in `unmerged` are not summed for this: `Sok>BagsFinite` says whether the sums would be finite.
    """
    merged = [t.slices.values for t in tables if t.slices.origin is None or t.slices.origin[0] not in unmerged]
    values = [_values(g) for g, _ in dense] + merged
    native = [x for x in values if x.dtype.name in _native.ROW_DTYPES]
    flags = [tf.reduce_all(tf.math.is_finite(x)) for x in values if x.dtype.name not in _native.ROW_DTYPES]
    if native:
        flags.append(_native.ops.sok_all_finite(native))
    flags += [
        _native.ops.sok_bags_finite(
            **merge.features, gradients=merge.gradients, **merge.attributes, num_tables=len(merge.tables)
        )
        for merge in unmerged
    ]
    if len(flags) == 1:
        return flags[0]
    return tf.reduce_all(tf.stack(flags)) if flags else tf.constant(True)

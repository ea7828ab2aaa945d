# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages 5 and 7 on one rank, lookup and combine: one op for all features of a call."""

import dataclasses

import tensorflow as tf

from sok import _native
from sok.inputs import Record
from sok.stages.merge import MergedSlices, merge
from sok.table import TableValue


@dataclasses.dataclass(frozen=True)
class FeatureRead:
    """One feature of a lookup: the ids, and how their rows become an output.

    table: position of its table in the call's list of tables.
    combiner: "sum", "mean" or "sqrtn".
    dtype: of the output.
    """

    table: int
    record: Record
    combiner: str
    dtype: tf.DType


def feature_arguments(
    tables: list[TableValue], reads: list[FeatureRead], max_norms: list[float]
) -> tuple[dict, dict]:
    """The inputs and attributes that every op over features takes (see the ops' documentation)."""
    empty_splits = tf.zeros([0], tf.int64)
    empty_weights = tf.zeros([0], tf.float32)
    inputs = {
        "ids": [read.record.ids for read in reads],
        "row_splits": [
            read.record.row_splits if read.record.is_ragged else empty_splits for read in reads
        ],
        "weights": [
            empty_weights if read.record.weights is None else read.record.weights for read in reads
        ],
    }
    attributes = {
        "table_of": [read.table for read in reads],
        "combiners": [read.combiner for read in reads],
        "ragged": [read.record.is_ragged for read in reads],
        "weighted": [read.record.weights is not None for read in reads],
        "dimensions": [table.attributes.dimension for table in tables],
        "max_norms": max_norms,
    }
    return inputs, attributes


def lookup(
    tables: list[TableValue],
    reads: list[FeatureRead],
    *,
    training: bool,
    max_norms: list[float] | None = None,
) -> list[tf.Tensor]:
    """Combined rows of every feature, [batch, dimension] each.

    With `training`, unknown ids are inserted; without, they read the table's default and no table
    changes.
    """
    inputs, attributes = feature_arguments(tables, reads, max_norms or [0.0] * len(tables))
    return _native.ops.sok_lookup(
        tables=[table.watch() for table in tables],
        **inputs,
        **attributes,
        output_types=[read.dtype for read in reads],
        training=training,
    )


_ATTRIBUTES = ("table_of", "combiners", "ragged", "weighted", "dimensions", "max_norms")


# The graphs in which TensorFlow differentiates a branch or a loop. It adds up what they return as dense
# arrays, or compares it with zeros of the variable's shape, and a table has neither.
_DENSE_GRADIENT_GRAPHS = ("_CondGradFuncGraph", "_WhileBodyGradFuncGraph")


def _refuse_in_branches(op: tf.Operation) -> None:
    graph = tf.compat.v1.get_default_graph()
    if not tf.executing_eagerly() and type(graph).__name__ in _DENSE_GRADIENT_GRAPHS:
        raise NotImplementedError(
            f"the lookup {op.name!r} stands inside a tf.cond, a tf.while_loop or a loop over tensors, where "
            "a table cannot be trained: look up before it, and use the vectors inside"
        )


@tf.RegisterGradient("Sok>Lookup")
def _lookup_gradient(op, *gradients):
    _refuse_in_branches(op)
    num_tables = op.get_attr("num_tables")
    num_features = op.get_attr("num_features")
    attributes = {name: op.get_attr(name) for name in _ATTRIBUTES}
    attributes["combiners"] = [
        name.decode() if isinstance(name, bytes) else name for name in attributes["combiners"]
    ]
    tables = list(op.inputs[:num_tables])
    features = {
        name: list(op.inputs[start : start + num_features])
        for name, start in zip(
            ("ids", "row_splits", "weights"),
            range(num_tables, num_tables + 3 * num_features, num_features),
        )
    }
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    slices = merge(tables, features, gradients, attributes)
    weight_gradients = [None] * num_features
    if any(attributes["weighted"]):
        computed = _native.ops.sok_weight_gradients(
            tables=tables,
            **features,
            gradients=[tf.cast(gradient, tf.float32) for gradient in gradients],
            **attributes,
        )
        weight_gradients = [
            gradient if weighted else None
            for gradient, weighted in zip(computed, attributes["weighted"])
        ]
    return [*slices, *[None] * (2 * num_features), *weight_gradients]


@tf.RegisterGradient("Sok>Merge")
@tf.RegisterGradient("Sok>WeightGradients")
def _no_second_gradient(op, *gradients):
    raise NotImplementedError(
        f"{op.type}: gradients of gradients do not pass through a table's lookup: use the looked-up vectors "
        "in the inner tape"
    )


__all__ = ["FeatureRead", "MergedSlices", "feature_arguments", "lookup"]

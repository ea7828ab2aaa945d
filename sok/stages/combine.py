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

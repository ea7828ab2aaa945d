# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 2, dedupe: what a feature asks for twice travels once."""

import dataclasses

import tensorflow as tf

from sok import _native
from sok.stages.lookup import FeatureRead


@dataclasses.dataclass(frozen=True)
class Unique:
    """The different ids of a call.

    keys: for each table, its different ids, int64 [n].
    slots: for each feature, for each of its ids the position of its key; -1 if it has no row.
    refused: int64 [4]: table, feature, position and id of the first one out of range, or -1s. It
        becomes an error only once all ranks know of it.
    """

    keys: list[tf.Tensor]
    slots: list[tf.Tensor]
    refused: tf.Tensor


def dedupe(variables: list, reads: list[FeatureRead]) -> Unique:
    """The different ids of each table."""
    keys, slots, refused = _native.ops.sok_dedupe(
        ids=[read.record.ids for read in reads],
        num_tables=len(variables),
        table_of=[read.table for read in reads],
        rows=[variable.total_rows for variable in variables],
        out_of_range=[variable.attributes.out_of_range for variable in variables],
    )
    return Unique(keys, slots, refused)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 3, route: ids grouped by the rank that owns their rows."""

import dataclasses

import tensorflow as tf

from sok import _native
from sok.stages.lookup import FeatureRead, feature_arguments


@dataclasses.dataclass(frozen=True)
class Routed:
    """ids: int64 [n], as their owners know them, ordered by (rank, table).
    counts: int64 [ranks, tables]: how many ids go where.
    slots: those that were given, as positions in the table's ids in this order.
    """

    ids: tf.Tensor
    counts: tf.Tensor
    slots: list[tf.Tensor]


def route(
    variables: list, keys: list[tf.Tensor], slots: list[tf.Tensor], table_of: list[int]
) -> Routed:
    """Groups the keys of tables by owner.

    Args:
        variables: the tables.
        keys: of each table, int64 [n].
        slots: positions in them, one tensor a feature.
        table_of: for each feature the position of its table.
    """
    return Routed(
        *_native.ops.sok_route(
            keys=keys,
            slots=slots,
            table_of=table_of,
            ranks=variables[0].placement.ranks,
            owners=[variable.placement.owner for variable in variables],
            rows=[variable.total_rows for variable in variables],
        )
    )


@dataclasses.dataclass(frozen=True)
class RoutedBags:
    """Bags cut into parts, one for each rank that owns some of their ids.

    buffer: int64: for each rank the ids of each table, then for each table the lengths of its parts.
    counts: int64 [ranks, 2 * tables]: the lengths of these blocks.
    refused: see `sok.stages.dedupe.Unique`.
    sources: int64: for each id its place among those of all features; empty if none is weighted.
    targets: for each table int64 [parts]: the bag of each part, among those of the table's features.
    """

    buffer: tf.Tensor
    counts: tf.Tensor
    refused: tf.Tensor
    sources: tf.Tensor
    targets: list[tf.Tensor]


def route_bags(variables: list, reads: list[FeatureRead], *, keep_empty: bool) -> RoutedBags:
    """Cuts bags into parts by owner, for owners that combine.

    Args:
        variables: the tables.
        reads: the features.
        keep_empty: every bag has a part on every rank, also one without ids.
    """
    inputs, attributes = feature_arguments([v.table for v in variables], reads, [0.0] * len(variables))
    return RoutedBags(
        *_native.ops.sok_route_bags(
            **inputs,
            **attributes,
            num_tables=len(variables),
            ranks=variables[0].placement.ranks,
            owners=[variable.placement.owner for variable in variables],
            rows=[variable.total_rows for variable in variables],
            out_of_range=[variable.attributes.out_of_range for variable in variables],
            keep_empty=keep_empty,
        )
    )


def kept_here(variable, keys: tf.Tensor, *rows: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Of some keys those that this rank keeps, as the ids under which it knows them; then their part of each of
    `rows`, tensors [number of keys, ...].

    Raises:
        tf.errors.InvalidArgumentError: a key is out of range of a static table.
    """
    placement = variable.placement
    if placement.is_replicated:
        return keys, *rows
    positions = tf.range(tf.size(keys, out_type=tf.int64))
    checks = []
    if variable.is_static:
        inside = tf.reduce_all((keys >= 0) & (keys < variable.total_rows))
        message = f"table {variable.name!r} has {variable.total_rows} rows; ids are"
        checks = [tf.debugging.Assert(inside, [message, keys])]
    with tf.control_dependencies([check for check in checks if check is not None]):
        routed = route([variable], [keys], [positions], [0])
    counts = routed.counts[:, 0]
    first = tf.reduce_sum(counts[: placement.here])
    here = slice(first, first + counts[placement.here])
    order = tf.math.invert_permutation(routed.slots[0])[here]
    return routed.ids[here], *(tf.gather(each, order) for each in rows)

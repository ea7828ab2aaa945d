# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which of the ways of `sok.checks.EXCHANGES` a lookup over several ranks takes.

"rows": the different ids of a rank travel to their owners and rows come back; bags are combined where
    the examples are.
"partials": every id travels, bag by bag; owners add the rows of a bag that they have, and one sum for
    each bag and owner comes back. Less travels when bags are long and ids hardly repeat.
"reduce_scatter": as "partials", but every owner answers for every bag, and the transport adds on the way
    (reduce-scatter forward, all-gather backward). What travels is never less than for "partials", and no
    more if every owner has part of every bag. It is for networks that add in their switches, so it is
    taken only if it is asked for.
"auto": of "rows" and "partials" the one that moves fewer bytes over all ranks together, in the batch at
    hand; "partials" must move fewer both forward and backward. Bytes, of what goes to other ranks, in
    tables of width w whose rows have b bytes a number:

                 forward                                       backward
    rows         different ids * (8 + b w)                     different ids * 4 w
    partials     ids * (8 + 8 if weighted) + parts * (8 + 4 w) ids * (4 if weighted) + parts * 4 w

    where parts are the pairs of a bag and an owner that has some of its ids. Every rank adds up what it
    would send and tells all others together with its counts, so that all of them decide alike. Where
    no bag can have more than one id nothing is counted: rows are taken.

What comes out differs by the rounding of sums only. max_norm (which owners apply to rows) and
uncombined features (bags of one id) work with every way.
"""

import tensorflow as tf

from sok.comm.base import Communicator
from sok.stages.lookup import FeatureRead

_ID_BYTES = 8  # also of a length, and of a weight among them
_SUM_BYTES = 4  # of each number in a sum or a gradient
# Columns of `bytes_of`: forward and backward of rows, then of partials.
COSTS = 4


def bags_may_be_long(reads: list[FeatureRead]) -> bool:
    """Whether a bag may have more than one id, so that "partials" may be worth it."""
    return any(read.record.is_ragged or read.record.ids.shape[1] not in (0, 1) for read in reads)


def bytes_of(
    communicator: Communicator,
    variables: list,
    weighted: bool,
    row_counts: tf.Tensor,
    bag_counts: tf.Tensor,
) -> tf.Tensor:
    """What this rank would make travel, int64 [COSTS].

    Args:
        communicator: connects the ranks.
        variables: the tables.
        weighted: whether a feature is.
        row_counts: of `Routed`.
        bag_counts: of `RoutedBags`.
    """
    here = tf.one_hot(communicator.rank, communicator.size, on_value=0, off_value=1, dtype=tf.int64)
    unique = tf.linalg.matvec(row_counts, here, transpose_a=True)
    ids, parts = tf.split(tf.linalg.matvec(bag_counts, here, transpose_a=True), 2)
    widths = tf.constant([variable.dimension for variable in variables], tf.int64)
    row_bytes = tf.constant(
        [v.dimension * tf.as_dtype(v.attributes.row_type).size for v in variables], tf.int64
    )
    forward, backward = (2 * _ID_BYTES, _SUM_BYTES) if weighted else (_ID_BYTES, 0)
    return tf.stack(
        [
            tf.reduce_sum(unique * (_ID_BYTES + row_bytes)),
            tf.reduce_sum(unique * _SUM_BYTES * widths),
            tf.reduce_sum(ids * forward + parts * (_ID_BYTES + _SUM_BYTES * widths)),
            tf.reduce_sum(ids * backward + parts * _SUM_BYTES * widths),
        ]
    )


def partials_move_less(costs: tf.Tensor) -> tf.Tensor:
    """The decision, a scalar; costs: int64 [ranks, COSTS], what each rank has told, by `bytes_of`."""
    total = tf.reduce_sum(costs, axis=0)
    return (total[2] < total[0]) & (total[3] < total[1])

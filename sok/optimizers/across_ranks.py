# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What an optimizer step exchanges between ranks. On one rank every function here is the identity.

How many collectives there are depends on the variables only, so that all ranks make the same ones.
"""

from typing import Any

import tensorflow as tf

from sok.comm.base import Communicator
from sok.optimizers.clipping import TableGradient
from sok.stages.exchange import part_from
from sok.stages.merge import merge_slices

SPARSE_REDUCTIONS = ("mean", "sum")
DENSE_REDUCTIONS = ("mean", None)


def table_scale(communicator: Communicator, reduction: str) -> float:
    """What turns a row's gradient, summed over ranks, into what `reduction` asks for."""
    return 1.0 / communicator.size if reduction == "mean" else 1.0


def reduce_dense(
    communicator: Communicator, reduction: str | None, dense: list[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
    """Dense gradients averaged over ranks: one collective for all of a type. Sparse ones (of Keras's
    Embedding) are gathered and stay sparse."""
    if communicator.size == 1 or reduction is None:
        return dense
    gradients = [g if isinstance(g, tf.IndexedSlices) else tf.convert_to_tensor(g) for g, _ in dense]
    by_type: dict[tf.DType, list[int]] = {}
    for place, gradient in enumerate(gradients):
        if isinstance(gradient, tf.IndexedSlices):
            gradients[place] = _gather_slices(communicator, gradient)
        else:
            by_type.setdefault(gradient.dtype, []).append(place)
    for places in by_type.values():
        flat = tf.concat([tf.reshape(gradients[place], [-1]) for place in places], 0)
        flat = communicator.all_reduce(flat, "reduce_dense", "mean")
        parts = tf.split(flat, [tf.size(gradients[place]) for place in places])
        for place, part in zip(places, parts):
            reduced = tf.reshape(part, tf.shape(gradients[place]))
            reduced.set_shape(gradients[place].shape)
            gradients[place] = reduced
    return [(gradient, variable) for gradient, (_, variable) in zip(gradients, dense)]


def _gather_slices(communicator: Communicator, slices: tf.IndexedSlices) -> tf.IndexedSlices:
    indices = communicator.all_gather(slices.indices, "gather_indices")
    values = communicator.all_gather(slices.values, "gather_values")
    return tf.IndexedSlices(values / communicator.size, indices, slices.dense_shape)


def gather_replicated(
    communicator: Communicator, tables: list[TableGradient]
) -> list[TableGradient]:
    """Gradients of data-parallel tables summed over ranks, alike on all of them: the different rows of
    every rank are gathered, for all such tables at once, and merged."""
    places = [i for i, t in enumerate(tables) if t.variable.placement.kind == "data_parallel"]
    if communicator.size == 1 or not places:
        return tables
    slices = [tables[place].slices for place in places]
    keys = [tf.cast(s.indices, tf.int64) for s in slices]
    lengths = tf.stack([tf.size(k, out_type=tf.int64) for k in keys])
    counts = communicator.all_gather(lengths[tf.newaxis], "gather_counts")
    counts = tf.ensure_shape(counts, [communicator.size, len(places)])
    # What all_gather gives is ordered by (rank, table), as buffers of the exchange are.
    all_keys = communicator.all_gather(tf.concat(keys, 0), "gather_keys")
    flat = tf.concat([tf.reshape(s.values, [-1]) for s in slices], 0)
    all_values = communicator.all_gather(flat, "gather_gradients")
    gathered_keys = part_from(all_keys, counts, [tf.int64] * len(places), [1] * len(places))
    widths = [tables[place].variable.dimension for place in places]
    gathered_values = part_from(all_values, counts, [tf.float32] * len(places), widths)
    merged = merge_slices(
        [tables[place].variable.table for place in places],
        [tf.IndexedSlices(v, k[:, 0]) for v, k in zip(gathered_values, gathered_keys)],
    )
    result = list(tables)
    for place, slices_ in zip(places, merged):
        result[place] = tables[place].with_slices(slices_)
    return result


def sum_squares(communicator: Communicator, squares: tf.Tensor) -> tf.Tensor:
    """Square norms of all shards from those of this rank's."""
    if communicator.size == 1:
        return squares
    return communicator.all_reduce(squares, "reduce_square_norm", "sum")


def agree(communicator: Communicator, flag: tf.Tensor) -> tf.Tensor:
    """Whether `flag` is true on every rank."""
    if communicator.size == 1:
        return flag
    return communicator.all_reduce(tf.cast(flag, tf.int32), "agree_finite", "min") > 0

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages 4 and 6, exchange: one buffer for all tables travels to the ranks, and another one back."""

import tensorflow as tf

from sok import _native
from sok.comm.base import Communicator


def exchange_counts(
    communicator: Communicator, counts: tf.Tensor, refused: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Tells every rank how many ids it will get.

    Args:
        counts: int64 [ranks, tables], ids for each rank.
        refused: int64 [4], of `Unique`.

    Returns:
        int64 [ranks, tables], ids from each rank; int64 [ranks, 4], what each rank refused.
    """
    tables = counts.shape[1]
    message = tf.concat([counts, tf.tile(refused[tf.newaxis], [communicator.size, 1])], axis=1)
    ones = tf.ones([communicator.size], tf.int64)
    received, _ = communicator.all_to_all(message, ones, "exchange_counts")
    received = tf.ensure_shape(received, [communicator.size, tables + 4])
    return received[:, :tables], received[:, tables:]


def exchange_ids(
    communicator: Communicator, ids: tf.Tensor, counts: tf.Tensor, received_counts: tf.Tensor
) -> list[tf.Tensor]:
    """Sends ids to their owners: for each table the ids that came here, int64 [n, 1], by rank."""
    buffer, _ = communicator.all_to_all(ids, tf.reduce_sum(counts, axis=1), "exchange_ids")
    tables = counts.shape[1]
    return part_from(buffer, received_counts, [tf.int64] * tables, [1] * tables)


def exchange_rows(
    communicator: Communicator,
    parts: list[tf.Tensor],
    counts: tf.Tensor,
    received_counts: tf.Tensor,
    stage: str,
) -> list[tf.Tensor]:
    """Sends rows of all tables in one buffer.

    Args:
        parts: for each table [n, width], ordered by the receiving rank.
        counts, received_counts: int64 [ranks, tables]: rows to and from each rank.
        stage: name of the collective.

    Returns:
        for each table what came, [n, width], ordered by the sending rank.
    """
    types = [part.dtype for part in parts]
    received, _ = communicator.all_to_all(*join(parts, counts), stage)
    return part_from(received, received_counts, types, [part.shape[1] for part in parts])


def join(
    parts: list[tf.Tensor], counts: tf.Tensor, carrier: tf.DType | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows of all tables as one buffer that can travel, and how many of its elements each rank gets.

    Args: as for `exchange_rows`.
        carrier: the buffer's type; None: what suits the parts.
    """
    return _native.ops.sok_interleave(
        parts=parts,
        counts=counts,
        widths=[part.shape[1] for part in parts],
        carrier=carrier or carrier_of([part.dtype for part in parts]),
    )


def part_from(
    buffer: tf.Tensor, counts: tf.Tensor, types: list[tf.DType], widths: list[int]
) -> list[tf.Tensor]:
    """The inverse of `join`."""
    return _native.ops.sok_deinterleave(buffer=buffer, counts=counts, types=types, widths=widths)


def carrier_of(types: list[tf.DType]) -> tf.DType:
    """The type of a buffer that holds rows of several ones.

    16-bit rows travel as they are. Only copies happen, so the carrier's type says no more than how many
    bits an element has.
    """
    return tf.half if any(dtype.size == 2 for dtype in types) else tf.float32

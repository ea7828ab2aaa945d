# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages 4 and 6, exchange: one buffer for all tables travels to the ranks, and another one back."""

import dataclasses
import hashlib

import tensorflow as tf

from sok import _native
from sok.comm.base import Communicator


@dataclasses.dataclass(frozen=True)
class LookupFacts:
    """What all ranks must have alike, or rows would be read and trained where they are not.

    digest: a number that stands for it.
    text: it, and what the tables are called here.
    """

    digest: int
    text: str

    @classmethod
    def of(cls, variables: list, way: str) -> "LookupFacts":
        """The lookup in some tables; `way`: what travels, see `sok.stages.choice`."""
        each = [variable.shared_facts() for variable in variables]
        # Their numbers themselves would refuse ranks of which one has made other tables too.
        made = {number: place for place, number in enumerate(sorted(v.number for v in variables))}
        order = [made[variable.number] for variable in variables]
        alike = str((way, each, order)).encode()
        tables = ", ".join(f"{variable.name!r} {fact}" for variable, fact in zip(variables, each))
        text = f"exchange={way!r} of {tables}; their order of creation: {order}"
        # Seven bytes, which an int64 holds whatever they are.
        return cls(int.from_bytes(hashlib.blake2b(alike, digest_size=7).digest(), "little"), text)


def exchange_counts(
    communicator: Communicator, variables: list, facts: LookupFacts, counts: tf.Tensor, refused: tf.Tensor
) -> tf.Tensor:
    """Tells every rank how many ids it will get, and what this one looks up.

    Args:
        communicator: connects the ranks.
        variables: the tables of these ids.
        facts: what all ranks must have alike.
        counts: int64 [ranks, n], numbers for each rank.
        refused: int64 [4], of `Unique`.

    Returns:
        int64 [ranks, n], numbers from each rank. It fails on all ranks or on none: what travels next must
        depend on it.

    Raises:
        tf.errors.InvalidArgumentError: a rank met an id out of range, or makes another lookup.
    """
    ranks, columns = communicator.size, counts.shape[1]
    report = tf.concat([refused, tf.constant([facts.digest], tf.int64)], 0)
    message = tf.concat([tf.tile(report[tf.newaxis], [ranks, 1]), counts], 1)
    # Flat, so that ranks with other numbers of tables hear of it too.
    splits = tf.fill([ranks], tf.size(message, tf.int64) // ranks)
    received, sizes = communicator.all_to_all(tf.reshape(message, [-1]), splits, "exchange_counts")
    return _native.ops.sok_receive_counts(
        message=received,
        sizes=sizes,
        columns=columns,
        tables=[variable.table.name for variable in variables],
        rows=[variable.total_rows for variable in variables],
        here=communicator.rank,
        lookup=facts.text,
    )


def exchange_ids(
    communicator: Communicator, ids: tf.Tensor, counts: tf.Tensor, received_counts: tf.Tensor
) -> list[tf.Tensor]:
    """Sends ids to their owners: for each table the ids that came here, int64 [n, 1], by rank."""
    # All ranks send ids, or none does: in a graph nothing else would make this wait for the check.
    with tf.control_dependencies([received_counts]):
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

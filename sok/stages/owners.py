# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages 2 to 7 where owners combine: each rank adds up the rows that it has of every rank's bags.

Also where that is decided batch by batch: then what "rows" would send takes the same way, as bags of one
id each, so that every rank makes the same collectives whatever the decision. No collective stands in a
branch. See `sok.stages.choice`.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sok.inputs import Record
from sok.stages import choice
from sok.stages.combine import combine, combine_gradients, divide
from sok.stages.dedupe import dedupe
from sok.stages.exchange import LookupFacts, carrier_of, exchange_counts, exchange_ids, join, part_from
from sok.stages.lookup import FeatureRead
from sok.stages.lookup import lookup as lookup_here
from sok.stages.route import route, route_bags


def lookup(
    communicator, variables, reads, *, training, max_norms, exchange, facts: LookupFacts
) -> list[tf.Tensor]:
    """Outputs of all features of tables that are in parts; see `sok.stages.ranks.lookup`.

    exchange: "partials", "reduce_scatter" or "auto".
    """
    request = _Request(communicator, variables, reads, exchange, facts)
    received = exchange_ids(communicator, request.buffer, request.counts, request.received_counts)
    count = len(variables)
    received = [part[:, 0] for part in received]
    ids, lengths, bits = received[:count], received[count : 2 * count], received[2 * count :]
    splits = [request.row_splits(*pair) for pair in zip(ids, lengths)]
    weights = request.weights_here(ids, bits) if bits else [None] * count
    sums = lookup_here(
        [variable.table for variable in variables],
        [
            FeatureRead(t, Record(ids[t], splits[t], weights[t]), "sum", tf.float32)
            for t in range(count)
        ],
        training=training,
        max_norms=max_norms,
    )
    return [divide(read, total) for read, total in zip(reads, request.sums_home(sums))]


def is_weighted(reads: list[FeatureRead]) -> bool:
    """Whether weights travel."""
    return any(read.record.weights is not None for read in reads)


def _choose(flag: bool | tf.Tensor, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """One of two local computations; the flag may be known now. Not differentiable."""
    if isinstance(flag, bool):
        return yes() if flag else no()
    return tf.cond(flag, yes, no)


class _Request:
    """What one lookup asks the owners for.

    by_bag: whether they combine; else the different ids travel as bags of one id.
    buffer, counts, received_counts: of ids, of the lengths of bags (see `RoutedBags`) and, if a feature is
        weighted, of weights, as bits in integers, so that all travel at once.
    """

    def __init__(self, communicator, variables, reads, exchange, facts):
        self.communicator = communicator
        self.facts = facts
        self.variables = variables
        self.reads = reads
        self.widths = [variable.dimension for variable in variables]
        self.scatters = exchange == "reduce_scatter"
        self.bags = route_bags(variables, reads, keep_empty=self.scatters)
        if exchange == "auto":
            self._decide()
        else:
            self.by_bag = True
            received = exchange_counts(
                communicator, variables, facts, self.bags.counts, self.bags.refused
            )
            self.buffer, self.counts, self.received_counts = self._bags_message(received)
        # Of ids, and of what comes back: one sum a bag.
        self.id_counts, self.sum_counts = self._columns(self.counts)
        self.received_id_counts, self.received_sum_counts = self._columns(self.received_counts)

    def _columns(self, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        tables = len(self.variables)
        ids, lengths = counts[:, :tables], counts[:, tables : 2 * tables]
        return ids, _choose(self.by_bag, lambda: lengths, lambda: ids)

    def _bags_message(self, received: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """buffer, counts and received_counts for owners that combine; received: of ids and lengths."""
        if not self.is_weighted:
            return self.bags.buffer, self.bags.counts, received
        tables = len(self.variables)
        ids, received_ids = self.bags.counts[:, :tables], received[:, :tables]
        bits = tf.bitcast(tf.gather(self._flat_weights(), self.bags.sources), tf.int32)
        blocks = [
            *part_from(self.bags.buffer, self.bags.counts, [tf.int64] * 2 * tables, [1] * 2 * tables),
            *part_from(tf.cast(bits, tf.int64), ids, [tf.int64] * tables, [1] * tables),
        ]
        counts = tf.concat([self.bags.counts, ids], 1)
        return join(blocks, counts, tf.int64)[0], counts, tf.concat([received, received_ids], 1)

    def _flat_weights(self) -> tf.Tensor:
        """Of the ids of all features; 1 where there are none."""
        flat = [
            tf.ones(tf.shape(read.record.ids, out_type=tf.int64), tf.float32)
            if read.record.weights is None
            else read.record.weights
            for read in self.reads
        ]
        return tf.concat([tf.reshape(weights, [-1]) for weights in flat], 0)

    def _decide(self) -> None:
        c, bags, tables = self.communicator, self.bags, len(self.variables)
        unique = dedupe(self.variables, self.reads)
        self.routed = route(self.variables, unique.keys, unique.slots, [read.table for read in self.reads])
        costs = choice.bytes_of(c, self.variables, self.is_weighted, self.routed.counts, bags.counts)
        message = tf.concat(
            [bags.counts, self.routed.counts, tf.tile(costs[tf.newaxis], [c.size, 1])], axis=1
        )
        received = exchange_counts(c, self.variables, self.facts, message, bags.refused)
        by_bag, by_row, costs = tf.split(received, [2 * tables, tables, choice.COSTS], axis=1)
        self.by_bag = choice.partials_move_less(costs)
        nothing = tf.zeros([c.size, (2 if self.is_weighted else 1) * tables], tf.int64)
        self.buffer, self.counts, self.received_counts = tf.cond(
            self.by_bag,
            lambda: self._bags_message(by_bag),
            lambda: (
                self.routed.ids,
                tf.concat([self.routed.counts, nothing], 1),
                tf.concat([by_row, nothing], 1),
            ),
        )

    def _weighted_reads(self) -> list[int]:
        return [i for i, read in enumerate(self.reads) if read.record.weights is not None]

    @property
    def is_weighted(self) -> bool:
        return is_weighted(self.reads)

    def row_splits(self, ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Of one table's bags that have come here."""
        count = tf.size(ids, out_type=tf.int64)
        return _choose(
            self.by_bag,
            lambda: tf.concat([[tf.constant(0, tf.int64)], tf.cumsum(lengths)], 0),
            lambda: tf.range(count + 1),
        )

    def weights_here(self, ids: list[tf.Tensor], bits: list[tf.Tensor]) -> list[tf.Tensor]:
        """For each table the weight of each id that has come here, whose gradients go back to where it
        came from. Different ids have none: their weights are applied at home.

        Args:
            ids, bits: of each table what has come here.
        """
        no_splits = tf.zeros([self.communicator.size], tf.int64)

        @tf.custom_gradient
        def travelled(flat):
            here = _choose(
                self.by_bag,
                lambda: [tf.bitcast(tf.cast(b, tf.int32), tf.float32) for b in bits],
                lambda: [tf.ones_like(i, tf.float32) for i in ids],
            )

            def gradient(*gradients):
                buffer, splits = _choose(
                    self.by_bag,
                    lambda: tuple(join([g[:, tf.newaxis] for g in gradients], self.received_id_counts)),
                    lambda: (tf.zeros([0], tf.float32), no_splits),
                )
                home, _ = self.communicator.all_to_all(buffer, splits, "exchange_weight_gradients")
                return _choose(
                    self.by_bag,
                    lambda: tf.math.unsorted_segment_sum(home, self.bags.sources, tf.size(flat)),
                    lambda: tf.zeros_like(flat),
                )

            return here, gradient

        return travelled(self._flat_weights())

    def sums_home(self, sums: list[tf.Tensor]) -> list[tf.Tensor]:
        """For each feature the weighted sums of its bags, float32 [batch, dimension].

        Args:
            sums: for each table those of the bags that have come here, float32 [bags, dimension].
        """
        # Weights that have travelled get their gradients on the same way.
        weighted = [] if self.by_bag is True else self._weighted_reads()

        @tf.custom_gradient
        def travel(*arguments):
            sums = list(arguments[: len(self.variables)])
            if self.scatters:
                parts = self._scatter(sums)
                outputs = self._to_features(parts)
            else:
                received, _ = self.communicator.all_to_all(*self._outgoing(sums), "exchange_rows")
                outputs = _choose(
                    self.by_bag,
                    lambda: self._to_features(self._add_parts(received)),
                    lambda: combine(self.variables, self._plain_sums(), self.routed.slots, self._rows(received)),
                )

            def gradient(*gradients):
                gradients = [tf.convert_to_tensor(g) for g in gradients]
                if self.scatters:
                    return self._gather(self._to_tables(gradients))
                (buffer, splits), of_weights = _choose(
                    self.by_bag,
                    lambda: self._gradients_of_parts(gradients, weighted),
                    lambda: self._gradients_of_rows(gradients, received, weighted),
                )
                returned, _ = self.communicator.all_to_all(buffer, splits, "exchange_gradients")
                back = part_from(
                    returned, self.received_sum_counts, [tf.float32] * len(sums), self.widths
                )
                return [*back, *of_weights]

            return outputs, gradient

        return travel(*sums, *(self.reads[i].record.weights for i in weighted))

    # Sums of parts, by all-to-all.

    def _outgoing(self, sums: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums as float32, rows as what they are."""
        if self.by_bag is True:
            return join(sums, self.received_sum_counts)
        types = self._row_types()
        carrier = carrier_of(types)
        return tf.cond(
            self.by_bag,
            lambda: tuple(join(sums, self.received_sum_counts, carrier)),
            lambda: tuple(
                join([tf.cast(s, t) for s, t in zip(sums, types)], self.received_sum_counts, carrier)
            ),
        )

    def _row_types(self) -> list[tf.DType]:
        return [tf.as_dtype(variable.attributes.row_type) for variable in self.variables]

    def _add_parts(self, received: tf.Tensor) -> list[tf.Tensor]:
        """For each table the sums of all bags of its features."""
        parts = part_from(received, self.sum_counts, [tf.float32] * len(self.variables), self.widths)
        return [
            tf.math.unsorted_segment_sum(part, target, tf.reduce_sum(self._bags_of(t)))
            for t, (part, target) in enumerate(zip(parts, self.bags.targets))
        ]

    def _gradients_of_parts(self, gradients: list[tf.Tensor], weighted: list[int]):
        of_tables = self._to_tables(gradients)
        parts = [tf.gather(g, target) for g, target in zip(of_tables, self.bags.targets)]
        zeros = [tf.zeros_like(self.reads[i].record.weights) for i in weighted]
        return tuple(join(parts, self.sum_counts)), zeros

    # Rows, which are combined here.

    def _plain_sums(self) -> list[FeatureRead]:
        return [FeatureRead(read.table, read.record, "sum", tf.float32) for read in self.reads]

    def _rows(self, received: tf.Tensor) -> list[tf.Tensor]:
        return part_from(received, self.sum_counts, self._row_types(), self.widths)

    def _gradients_of_rows(self, gradients: list[tf.Tensor], received: tf.Tensor, weighted: list[int]):
        of_rows, of_weights = combine_gradients(
            self.variables, self._plain_sums(), self.routed.slots, self._rows(received), gradients
        )
        return tuple(join(of_rows, self.sum_counts)), [of_weights[i] for i in weighted]

    # Sums of bags, by reduce-scatter: every rank knows how many bags every other one has.

    def _scatter(self, sums: list[tf.Tensor]) -> list[tf.Tensor]:
        """For each table the sums over ranks for this rank's bags."""
        buffer, splits = join(sums, self.received_sum_counts)
        padded = tf.RaggedTensor.from_row_lengths(buffer, splits, validate=False).to_tensor()
        total = self.communicator.reduce_scatter(padded, "exchange_rows")
        here = self.communicator.rank
        mine = tf.reshape(total, [-1])[: splits[here]]
        return part_from(mine, self._own_counts(), [tf.float32] * len(sums), self.widths)

    def _gather(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """For each table the gradients of all ranks' bags."""
        buffer, _ = join(gradients, self._own_counts())
        everything = self.communicator.all_gather(buffer, "exchange_gradients")
        return part_from(
            everything, self.received_sum_counts, [tf.float32] * len(gradients), self.widths
        )

    def _own_counts(self) -> tf.Tensor:
        here = self.communicator.rank
        return self.received_sum_counts[here : here + 1]

    # Tables and features.

    def _bags_of(self, table: int) -> list[tf.Tensor]:
        return [read.record.batch_size() for read in self.reads if read.table == table]

    def _to_features(self, of_tables: list[tf.Tensor]) -> list[tf.Tensor]:
        """Each feature's part of what its table has for all of its features."""
        parts = [iter(tf.split(value, self._bags_of(t))) for t, value in enumerate(of_tables)]
        return [next(parts[read.table]) for read in self.reads]

    def _to_tables(self, of_features: list[tf.Tensor]) -> list[tf.Tensor]:
        return [
            tf.concat([x for x, read in zip(of_features, self.reads) if read.table == t], 0)
            for t in range(len(self.variables))
        ]

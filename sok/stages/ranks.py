# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages 2 to 7 on several ranks: one exchange of ids and one of rows, whatever the number of tables.

Every rank makes the same collectives in the same order, also with an empty batch: what happens here
depends on the program, never on the data of one rank.
"""

import dataclasses
import functools

import tensorflow as tf

from sok.comm.base import Communicator
from sok.stages import choice, owners
from sok.stages.combine import combine, combine_gradients
from sok.stages.dedupe import dedupe
from sok.stages.exchange import LookupFacts, exchange_counts, exchange_ids, exchange_rows
from sok.stages.lookup import FeatureRead, Record
from sok.stages.lookup import lookup as lookup_here
from sok.stages.route import route


def lookup(
    communicator: Communicator,
    variables: list,
    reads: list[FeatureRead],
    *,
    training: bool,
    max_norms: list[float],
    exchange: str,
) -> list[tf.Tensor]:
    """Outputs of all features, [batch, dimension] each; see `sok.stages.lookup.lookup`.

    Args:
        communicator: connects the ranks.
        variables: the tables.
        reads: the features.
        training: whether unknown ids are inserted, on the ranks that own them.
        max_norms: of each table; 0: none.
        exchange: what travels; see `sok.stages.choice`.

    Raises:
        ValueError: a table was created for another number of ranks.
        tf.errors.InvalidArgumentError: on every rank, if one of them met an id out of range, or if they
            look up tables that differ in shape, type, placement or order, or in another way. Tables that are
            all replicated are not compared, since nothing travels.
    """
    for variable in variables:
        if variable.placement.ranks != communicator.size:
            raise ValueError(
                f"the table {variable.name!r} was created for {variable.placement.ranks} ranks, but "
                f"there are {communicator.size}: call sok.init() before creating tables"
            )
    outputs: list = [None] * len(reads)
    sharded = functools.partial(_lookup_sharded, of_call=variables, exchange=exchange)
    for replicated, run in ((True, _lookup_replicated), (False, sharded)):
        tables = [t for t, v in enumerate(variables) if v.placement.is_replicated is replicated]
        places = [i for i, read in enumerate(reads) if read.table in tables]
        if not places:
            continue
        part = [dataclasses.replace(reads[i], table=tables.index(reads[i].table)) for i in places]
        results = run(
            communicator,
            [variables[t] for t in tables],
            part,
            training=training,
            max_norms=[max_norms[t] for t in tables],
        )
        for place, result in zip(places, results):
            outputs[place] = result
    return outputs


def _lookup_replicated(communicator, variables, reads, *, training, max_norms):
    # Every rank has all rows; gradients are exchanged in the optimizer.
    del communicator
    tables = [variable.table for variable in variables]
    return lookup_here(tables, reads, training=training, max_norms=max_norms)


def _lookup_sharded(communicator, variables, reads, *, of_call, training, max_norms, exchange):
    """of_call: all tables of the call. Those that are replicated travel with no lookup, but must be the same
    on all ranks too."""
    if exchange == "auto" and not choice.bags_may_be_long(reads):
        exchange = "rows"
    options = {"training": training, "max_norms": max_norms}
    if exchange == "rows":
        return _lookup_rows(communicator, variables, reads, **options, facts=LookupFacts.of(of_call, exchange))
    way = f"{exchange}, with weights" if owners.is_weighted(reads) else exchange
    return owners.lookup(
        communicator, variables, reads, **options, exchange=exchange, facts=LookupFacts.of(of_call, way)
    )


def _lookup_rows(communicator, variables, reads, *, facts, training, max_norms):
    unique = dedupe(variables, reads)
    routed = route(variables, unique.keys, unique.slots, [read.table for read in reads])
    received_counts = exchange_counts(
        communicator, variables, facts, routed.counts, unique.refused
    )
    ids = exchange_ids(communicator, routed.ids, routed.counts, received_counts)
    rows = lookup_here(
        [variable.table for variable in variables],
        [
            FeatureRead(t, Record(ids[t]), "sum", tf.as_dtype(variable.attributes.row_type))
            for t, variable in enumerate(variables)
        ],
        training=training,
        max_norms=max_norms,
    )
    weighted = [i for i, read in enumerate(reads) if read.record.weights is not None]

    @tf.custom_gradient
    def bring_home(*arguments):
        rows = list(arguments[: len(variables)])
        fetched = exchange_rows(
            communicator, rows, received_counts, routed.counts, "exchange_rows"
        )
        outputs = combine(variables, reads, routed.slots, fetched)

        def gradient(*output_gradients):
            row_gradients, weight_gradients = combine_gradients(
                variables, reads, routed.slots, fetched, list(output_gradients)
            )
            # As float32 whatever the rows' type: they are summed and averaged before they are used.
            sent_back = exchange_rows(
                communicator, row_gradients, routed.counts, received_counts, "exchange_gradients"
            )
            return [*sent_back, *(weight_gradients[i] for i in weighted)]

        return outputs, gradient

    return bring_home(*rows, *(reads[i].record.weights for i in weighted))

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""READ FIRST: one lookup from ids to outputs, a stage a line.

    forward                                             backward (the stages' registered gradients)
    1 inputs    ids of any kind -> CSR records
    2 dedupe    ids -> unique ids, inverse
    3 route     unique ids grouped by owning rank
    4 exchange  ids to their owners                     4' gradients of unique rows to their owners
    5 lookup    find or insert -> rows                  5' merge, then update (in the optimizer)
    6 exchange  rows back
    7 combine   rows of a bag -> one vector             7' merge: bag gradients -> unique rows
    8 outputs

Where owners combine (`sok/stages/choice.py`), 7 stands before 6 and 2 vanishes.
On one rank stages 2, 3, 4 and 6 vanish and 5 and 7 are one op. All features of a call make one pass,
whatever the number of tables.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sok import checks, inputs
from sok import comm as comm_module
from sok.stages import lookup as lookup_stage
from sok.stages import ranks as rank_stages
from sok.variables import TableVariable


@dataclasses.dataclass
class Feature:
    """One feature of a pass.

    table: the variable its ids are rows of.
    ids, weights: see `sok.inputs.to_record`.
    combiner: "sum", "mean", "sqrtn", or None for one vector an id.
    name: in messages.
    mask_value: dense ids equal to it are left out.
    dtype: of the output; None: the rows'.
    """

    table: TableVariable
    ids: Any
    weights: Any = None
    combiner: str | None = "mean"
    name: str = "ids"
    mask_value: int | None = None
    dtype: Any = None


# Called as (variables, reads, max_norms) instead of the native stages.
_reader: contextvars.ContextVar[Callable[..., list[tf.Tensor]] | None] = contextvars.ContextVar("reader", default=None)


@contextlib.contextmanager
def reading_through(reader: Callable[..., list[tf.Tensor]]):
    """Lookups that are traced inside of this read rows with `reader`: for exports to plain TensorFlow."""
    token = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(token)


def in_plain_ops() -> bool:
    """Whether what is traced now must do without the library's ops."""
    return _reader.get() is not None


def run(
    features: list[Feature],
    *,
    training: bool,
    max_norms: dict[int, float] | None = None,
    exchange: str = "auto",
) -> list[Any]:
    """The outputs of all features: [batch, dimension], or one vector an id where uncombined.

    exchange: what travels between ranks; see `sok.stages.choice`.
    """
    variables = _distinct([feature.table for feature in features])
    position = {id(variable): place for place, variable in enumerate(variables)}
    tables = [variable.table for variable in variables]
    norms = [float((max_norms or {}).get(id(variable), 0.0)) for variable in variables]

    records = [_record(feature) for feature in features]
    same_batch = _batch_checks(features, records)
    reads = [
        lookup_stage.FeatureRead(
            table=position[id(feature.table)],
            record=record if feature.combiner else record.flat(),
            combiner=feature.combiner or "sum",
            dtype=tf.as_dtype(feature.dtype or feature.table.attributes.row_type),
        )
        for feature, record in zip(features, records)
    ]
    communicator = comm_module.current()
    reader = _reader.get()
    with tf.control_dependencies(same_batch):
        if reader is not None:
            outputs = reader(variables, reads, norms)
        elif communicator.size == 1:
            outputs = lookup_stage.lookup(tables, reads, training=training, max_norms=norms)
        else:
            outputs = rank_stages.lookup(
                communicator,
                variables,
                reads,
                training=training,
                max_norms=norms,
                exchange=exchange,
            )
    return [
        output if feature.combiner else record.outer(output)
        for feature, record, output in zip(features, records, outputs)
    ]


def _distinct(variables: list[TableVariable]) -> list[TableVariable]:
    return list({id(variable): variable for variable in variables}.values())


def _record(feature: Feature) -> inputs.Record:
    return inputs.to_record(
        feature.ids,
        feature.weights,
        key_dtype=feature.table.key_dtype,
        name=feature.name,
        mask_value=feature.mask_value,
    )


def _batch_checks(features: list[Feature], records: list[inputs.Record]) -> list[tf.Operation]:
    """Features of one call have one batch size: an error now where it is known, else a check."""
    rule = "features of one call must have one batch size"
    sizes = [record.static_batch_size() for record in records]
    known = [(feature.name, size) for feature, size in zip(features, sizes) if size is not None]
    for name, size in known[1:]:
        first_name, first = known[0]
        if size != first:
            message = f"{rule}: {first_name!r} has {first}, {name!r} has {size}"
            raise tf.errors.InvalidArgumentError(None, None, message)
    if len(known) == len(features) or len(features) < 2:
        return []
    dynamic = tf.stack([record.batch_size() for record in records])
    same = tf.reduce_all(tf.equal(dynamic, dynamic[0]))
    names = [feature.name for feature in features]
    return checks.require(same, f"{rule}; these have", names, dynamic)

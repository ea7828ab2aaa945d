# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Equal weights on all ranks: what every rank keeps as a whole starts as on one of them."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from sok.comm.base import Communicator


def broadcast_variables(
    variables: Iterable[Any], root: int = 0, communicator: Communicator | None = None
) -> None:
    """Gives all ranks the values that dense variables and data-parallel tables have on one.

    Every rank must call it with the same variables. Rows of other tables live on one rank each and stay
    as they are, so that `model.variables` may be passed as it is. On one rank nothing happens.

    Args:
        variables: `tf.Variable`s, Keras variables and tables.
        root: the rank whose values count.
        communicator: None: the current one.

    Raises:
        ValueError: there is no such rank.

    >>> sok.comm.broadcast_variables([tf.Variable([1.0, 2.0])])
    """
    from sok import comm  # this module is part of it

    communicator = communicator or comm.current()
    if not 0 <= root < communicator.size:
        raise ValueError(f"root must be one of the {communicator.size} ranks, from 0; got {root!r}")
    if communicator.size == 1:
        return
    by_type: dict[tf.DType, list[Any]] = {}
    for variable in variables:
        placement = getattr(variable, "placement", None)
        if placement is None:
            by_type.setdefault(tf.as_dtype(variable.dtype), []).append(variable)
        elif placement.is_replicated:
            _broadcast_table(communicator, variable, root)
    for dtype, same in by_type.items():
        values = [tf.convert_to_tensor(variable) for variable in same]
        flat = tf.concat([tf.reshape(value, [-1]) for value in values], 0)
        # Booleans and small integers travel as int32.
        travels = dtype.is_floating or dtype in (tf.int64, tf.uint32, tf.uint64)
        flat = communicator.broadcast(flat if travels else tf.cast(flat, tf.int32), root, "broadcast")
        parts = tf.split(tf.cast(flat, dtype), [tf.size(value) for value in values])
        for variable, value, part in zip(same, values, parts):
            variable.assign(tf.reshape(part, tf.shape(value)))


def _broadcast_table(communicator: Communicator, table: Any, root: int) -> None:
    keys, (values,) = table.table.export(("values",))
    values = communicator.broadcast(values, root, "broadcast_tables")
    table.table.write(keys, {"values": values}, {}, replace=False)

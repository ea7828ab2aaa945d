# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What an optimizer step exchanges between ranks. On one rank every function here is the identity."""

from typing import Any

import tensorflow as tf

from sok.comm.base import Communicator
from sok.optimizers.clipping import map_values

SPARSE_REDUCTIONS = ("mean", "sum")
DENSE_REDUCTIONS = ("mean", None)


def table_scale(communicator: Communicator, reduction: str) -> float:
    """What turns a row's gradient, summed over ranks, into what `reduction` asks for."""
    return 1.0 / communicator.size if reduction == "mean" else 1.0


def reduce_dense(
    communicator: Communicator, reduction: str | None, dense: list[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
    """Dense gradients averaged over ranks."""
    if communicator.size == 1 or reduction is None:
        return dense
    return [
        (
            map_values(
                tf.convert_to_tensor(gradient),
                lambda x, n=number: communicator.all_reduce(x, f"sok_dense_{n}", "mean"),
            ),
            variable,
        )
        for number, (gradient, variable) in enumerate(dense)
    ]


def sum_squares(communicator: Communicator, squares: tf.Tensor) -> tf.Tensor:
    """The square norm of all shards from that of this rank's."""
    if communicator.size == 1:
        return squares
    return communicator.all_reduce(squares, "sok_square_norm", "sum")


def agree(communicator: Communicator, flag: tf.Tensor) -> tf.Tensor:
    """Whether `flag` is true on every rank."""
    if communicator.size == 1:
        return flag
    return communicator.all_reduce(tf.cast(flag, tf.float32), "sok_finite", "min") > 0.5

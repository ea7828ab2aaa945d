# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a communicator must do. The contract is stated here once; implementations say what differs."""

import os
from typing import Protocol

import tensorflow as tf

# All communicators move these; those that cannot move one by itself move its bit pattern.
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint32", "uint64")
# What all_reduce and reduce_scatter compute with.
REDUCED_DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
REDUCTIONS = ("sum", "mean", "min", "max")

_DEFAULT_TIMEOUT = "600"


def timeout_seconds() -> float:
    """SOK_COMM_TIMEOUT: seconds after which a collective that some rank does not join fails.

    Raises:
        ValueError: it is not a positive number.
    """
    text = os.environ.get("SOK_COMM_TIMEOUT", _DEFAULT_TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"SOK_COMM_TIMEOUT must be a positive number of seconds, got {text!r}")
    return seconds


class Communicator(Protocol):
    """Collectives over all ranks.

    - Every rank calls the same collectives in the same order, also with nothing to send; the order of
      the program is the order in which they run, in a `tf.function` too.
    - Tensors may be empty on some ranks or on all. Dimensions after the first agree on all ranks.
    - dtypes: DTYPES; REDUCED_DTYPES where numbers are added or compared. 16-bit floats may be added up
      in float32.
    - A rank that vanishes, or does not come within `SOK_COMM_TIMEOUT` seconds (600), gives an error on
      the others, never a hang. The error names the collective, its step and the ranks that are missing.
      After it, the job must be started again.
    - `name` is the stage that a collective belongs to, the same on all ranks: under it bytes and times
      are counted.
    - Nothing here is differentiable by itself; stages that need a gradient define it.

    >>> communicator = sok.comm.current()
    >>> received, counts = communicator.all_to_all(tf.constant([5, 6]), tf.constant([2]), name="ids")
    >>> received.numpy(), counts.numpy()
    (array([5, 6], dtype=int32), array([2]))
    """

    rank: int
    size: int
    local_rank: int

    def all_to_all(self, tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Sends `splits[r]` consecutive slices of `tensor` to rank r.

        Args:
            tensor: [n, ...], ordered by the receiving rank.
            splits: integers [size], with the sum n.

        Returns:
            What the ranks sent here, ordered by the sending rank, and how much each sent, int64 [size].
        """
        ...

    def all_gather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """The tensors of all ranks [n, ...], one after the other; their n may differ."""
        ...

    def all_reduce(self, tensor: tf.Tensor, name: str, op: str = "sum") -> tf.Tensor:
        """The elementwise "sum", "mean", "min" or "max" over ranks of tensors of one shape, the same on
        all ranks to the last bit."""
        ...

    def reduce_scatter(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """This rank's part of the elementwise sum over ranks: of n slices along the first dimension, the
        first n % size ranks get one more than the others."""
        ...

    def broadcast(self, tensor: tf.Tensor, root: int, name: str) -> tf.Tensor:
        """The tensor of rank `root`, on all ranks. Shapes agree."""
        ...

    def barrier(self) -> None:
        """Returns when all ranks have called it. Not in a `tf.function`."""
        ...

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a communicator must do. The contract is stated here once; implementations say what differs."""

from typing import Protocol

import tensorflow as tf


class Communicator(Protocol):
    """Collectives over all ranks.

    - Every rank calls the same collectives in the same order, also with nothing to send. In a
      `tf.function` the caller orders them by control dependencies.
    - Tensors may be empty on some ranks or on all. Dimensions after the first agree on all ranks.
    - dtypes: float16, bfloat16, float32, float64, int32, int64, uint32, uint64.
    - A rank that vanishes gives an error on the others within the time-out, never a hang.
    - `all_to_all` and `all_gather` are not differentiable by themselves; stages that need a gradient
      define it.
    """

    rank: int
    size: int
    local_rank: int

    def all_to_all(self, tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Sends `splits[r]` consecutive slices of `tensor` to rank r.

        Args:
            tensor: [n, ...], ordered by the receiving rank.
            splits: int64 [size], with the sum n.
            name: of the collective, the same on all ranks.

        Returns:
            What the ranks sent here, ordered by the sending rank, and how much each sent, int64 [size].
        """
        ...

    def all_gather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """The tensors of all ranks, one after the other; first dimensions may differ."""
        ...

    def all_reduce(self, tensor: tf.Tensor, name: str, op: str = "sum") -> tf.Tensor:
        """The elementwise "sum", "mean", "min" or "max" over ranks of tensors of one shape."""
        ...

    def broadcast(self, tensor: tf.Tensor, root: int, name: str) -> tf.Tensor:
        """The tensor of rank `root`, on all ranks."""
        ...

    def barrier(self) -> None:
        """Returns when all ranks have called it. Not in a `tf.function`."""
        ...

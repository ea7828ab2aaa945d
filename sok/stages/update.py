# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 5', update: an optimizer's rule on the rows of keys."""

import dataclasses

import tensorflow as tf

from sok import _native
from sok.stages.merge import MergedSlices
from sok.table import TableValue

OPTIMIZERS = {spec["name"]: spec for spec in _native.DESCRIPTION["optimizers"]}


@dataclasses.dataclass(frozen=True)
class TableStep:
    """One table's part of a step.

    gradient: of different keys, [n] and [n, dimension].
    optimizer: a name of `OPTIMIZERS`.
    hyper: its hyper-parameters, float32, in the order of `OPTIMIZERS[optimizer]["hyper"]`.
    reach: one of `sok._native.REACHES`.
    initial: what the states start with that start at a hyper-parameter; see `initial_of`.
    """

    table: TableValue
    gradient: MergedSlices
    optimizer: str
    hyper: tf.Tensor
    reach: str = "local"
    initial: float = 0.0


def initial_of(optimizer: str, value) -> float:
    """What an optimizer's accumulators start with; `value(name)` gives a hyper-parameter.

    The host must know it when the states are created, while hyper-parameters may live on a GPU.
    """
    names = {state["initial"] for state in OPTIMIZERS[optimizer]["states"]} - {""}
    return float(value(names.pop())) if names else 0.0


def update(steps: list[TableStep], step, *, scale=1.0, apply=True) -> tf.Operation | None:
    """Applies one optimizer step to every table, in one op.

    Args:
        steps: one entry a table.
        step: the number of this step, from 1.
        scale: multiplied with every gradient.
        apply: a scalar; false leaves every table as it is.
    """
    return _native.ops.sok_update(
        tables=[step_.table.handle for step_ in steps],
        keys=[step_.gradient.indices for step_ in steps],
        gradients=[step_.gradient.values for step_ in steps],
        hyper=[step_.hyper for step_ in steps],
        step=tf.cast(step, tf.int64),
        scale=tf.cast(scale, tf.float32),
        apply=apply,
        optimizers=[step_.optimizer for step_ in steps],
        reaches=[step_.reach for step_ in steps],
        unique=[isinstance(step_.gradient, MergedSlices) for step_ in steps],
        initials=[step_.initial for step_ in steps],
    )

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 5', update: an optimizer's rule on the rows of keys."""

import dataclasses
import numbers

import tensorflow as tf

from sok import _native
from sok.stages.merge import MergedSlices, unread
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


def hyper_parameters(optimizer: str, value) -> tf.Tensor:
    """An optimizer's hyper-parameters, float32 [number of them]; `value(name)` gives one, or None for 0.

    On a GPU those that are tensors or variables are put between the numbers by one kernel.
    """
    scalars, places, values = [], [], []
    for place, name in enumerate(OPTIMIZERS[optimizer]["hyper"]):
        given = value(name)
        if given is None:
            given = 0.0
        if isinstance(given, numbers.Real):
            values.append(float(given))
            continue
        scalars.append(tf.cast(tf.convert_to_tensor(given), tf.float32))
        places.append(place)
        values.append(0.0)
    return _native.ops.sok_hyper_parameters(scalars=scalars, places=places, values=values)


def update(steps: list[TableStep], iterations, *, scale=1.0, apply=True, fuse=False) -> None:
    """Applies one optimizer step to every table.

    Args:
        steps: one entry a table.
        iterations: the number of steps before this one.
        scale: multiplied with every gradient.
        apply: a scalar; false leaves every table as it is.
        fuse: nobody else reads the rows' gradients: updates of the local reach do the merging themselves.
    """
    scalars = {
        "iterations": tf.cast(iterations, tf.int64),
        "scale": tf.cast(scale, tf.float32),
        "apply": apply,
    }
    if fuse:
        steps = _fuse(steps, scalars)
    if not steps:
        return
    _native.ops.sok_update(
        tables=[step_.table.handle for step_ in steps],
        keys=[step_.gradient.indices for step_ in steps],
        gradients=[step_.gradient.values for step_ in steps],
        hyper=[step_.hyper for step_ in steps],
        **scalars,
        optimizers=[step_.optimizer for step_ in steps],
        reaches=[step_.reach for step_ in steps],
        unique=[isinstance(step_.gradient, MergedSlices) for step_ in steps],
        initials=[step_.initial for step_ in steps],
    )


def _fuse(steps: list[TableStep], scalars: dict) -> list[TableStep]:
    """Updates the tables whose gradients are all that one merge gives; the steps that are left."""
    local = [step_ for step_ in steps if step_.reach == "local"]
    done: set[int] = set()
    for merge in unread([step_.gradient for step_ in local]):
        group = {}
        for step_ in local:
            if step_.gradient.origin is not None and step_.gradient.origin[0] is merge:
                group[step_.gradient.origin[1]] = step_
        ordered = [group[place] for place in range(len(group))]
        _native.ops.sok_merge_update(
            tables=merge.tables,
            **merge.features,
            gradients=merge.gradients,
            hyper=[step_.hyper for step_ in ordered],
            **scalars,
            **merge.attributes,
            optimizers=[step_.optimizer for step_ in ordered],
            initials=[step_.initial for step_ in ordered],
        )
        done.update(id(step_) for step_ in ordered)
    return [step_ for step_ in steps if id(step_) not in done]

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which part of a dump goes where, and what does not fit."""

import dataclasses
from typing import Any

import numpy as np

from sok.checkpoint import manifest, variables
from sok.optimizers.wrapper import OptimizerWrapper
from sok.table_state import STATE_WIDTHS
from sok.table_variable import TableVariable


@dataclasses.dataclass(frozen=True)
class Match:
    """A table of a dump and the variable it goes into.

    planes: those that are read. fresh: states that start anew.
    needed: the shards that this rank reads. is_shared: other ranks, if there are any, read them too.
    is_filtered: not all of their rows are this rank's.
    """

    table: manifest.Table
    variable: TableVariable
    planes: tuple[manifest.Plane, ...]
    fresh: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        return not self._same_layout

    @property
    def is_filtered(self) -> bool:
        return self.is_shared and not self.variable.placement.is_replicated

    @property
    def needed(self) -> tuple[manifest.Shard, ...]:
        if self.is_shared:
            return self.table.shards
        here = self.variable.placement.here
        return tuple(shard for shard in self.table.shards if shard.rank == here)

    @property
    def _same_layout(self) -> bool:
        """Whether each rank wrote the rows that it keeps now."""
        placement, then = self.variable.placement, self.table.placement
        now = {"kind": placement.kind, "owner": placement.owner, "ranks": placement.ranks}
        return not placement.is_replicated and {name: then.get(name) for name in now} == now


def match_tables(
    held: manifest.Manifest,
    tables: dict[str, TableVariable],
    optimizer: Any,
    *,
    strict: bool,
    values_only: bool,
    place: str,
) -> list[Match]:
    """Tables of a dump and their variables.

    Raises:
        ValueError: one is missing, or is another table.
    """
    by_name = {table.name: table for table in held.tables}
    missing = sorted(set(tables) - set(by_name))
    if missing:
        raise ValueError(
            f"{place} has no table {', '.join(map(repr, missing))}; it has {', '.join(map(repr, by_name)) or 'none'}"
        )
    extra = sorted(set(by_name) - set(tables))
    if extra and strict:
        raise ValueError(
            f"{place} also has the tables {', '.join(map(repr, extra))}, which load_vars leaves out; strict=False "
            "ignores them"
        )
    matches = []
    for name, variable in tables.items():
        _check_same(by_name[name], variable, strict, place)
        used = list(variable.table.planes())[1:]
        used += [state for state in states_of(optimizer, variable) or () if state not in used]
        known = by_name[name].states
        absent = tuple(state for state in used if state not in known)
        is_known = True
        if not held.values_only and not by_name[name].rows:
            absent = ()
        elif not held.values_only and not known:
            # Rows that were never trained have no states, and they would start so. Nor have those that plain SGD
            # trained; in a dump without an optimizer nobody knows which of them these are, and the caller is told.
            is_known = by_name[name].optimizer_states is not None
            absent = tuple(state for state in absent if state not in (by_name[name].optimizer_states or ()))
        if absent and strict and not values_only and is_known:
            raise ValueError(
                f"{place}: table {name!r} has no state {', '.join(map(repr, absent))}; it has "
                f"{', '.join(map(repr, known)) or 'none'}. strict=False starts them anew, values_only=True all"
            )
        planes = by_name[name].planes
        widths = _widths(variable)
        for plane in planes:
            if widths.get(plane.name, plane.width) != plane.width:
                raise ValueError(
                    f"{place}: table {name!r}: {plane.name!r} has the width {plane.width}, here {widths[plane.name]}"
                )
        fresh = tuple(used) if values_only else absent
        matches.append(Match(by_name[name], variable, planes[:1] if values_only else planes, fresh))
    return matches


def _widths(variable: TableVariable) -> dict[str, int]:
    """Of planes that the variable has, or that an optimizer would give it."""
    known = {name: width for name, (width, _) in variable.table.planes().items()}
    return {name: width or variable.dimension for name, width in STATE_WIDTHS.items()} | known


def _check_same(table: manifest.Table, variable: TableVariable, strict: bool, place: str) -> None:
    kind = "static" if variable.is_static else "hash"
    values = table.planes[0]
    comparisons = [
        ("is a table of the kind", table.kind, kind),
        ("has the dimension", values.width, variable.dimension),
    ]
    if kind == "static":
        comparisons.append(("has rows", table.rows, variable.total_rows))
    if strict:
        comparisons.append(("has rows of the type", values.dtype, variable.attributes.row_type))
    if not np.can_cast(table.key_dtype, variable.key_dtype):
        comparisons.append(("has keys of the type", table.key_dtype, variable.key_dtype))
    for what, theirs, ours in comparisons:
        if theirs != ours:
            raise ValueError(f"{place}: table {table.name!r} {what} {theirs}, the variable {ours}")


def states_of(optimizer: Any, variable: TableVariable) -> tuple[str, ...] | None:
    """States that the optimizer gives the rows at their first step; None: there is none, or it is no wrapper."""
    return tuple(optimizer.state_names(variable)) if isinstance(optimizer, OptimizerWrapper) else None


def match_variables(
    held: manifest.Manifest, others: dict[str, Any], *, strict: bool, place: str
) -> list[tuple[Any, int]]:
    """Ordinary variables and the numbers of their tensors in the dump.

    Raises:
        ValueError: one is missing or has another shape or type.
    """
    numbers = {v.name: i for i, v in enumerate(held.variables) if v.group == "variables"}
    missing = sorted(set(others) - set(numbers))
    if missing:
        raise ValueError(f"{place} has no variable {', '.join(map(repr, missing))}; it has {sorted(numbers)}")
    extra = sorted(set(numbers) - set(others))
    if extra and strict:
        raise ValueError(
            f"{place} also has the variables {extra}, which load_vars leaves out; strict=False ignores them"
        )
    pairs = [(variable, numbers[name]) for name, variable in others.items()]
    _check_alike(held, pairs, place)
    return pairs


def of_optimizer(held: manifest.Manifest) -> list[int]:
    """The numbers of an optimizer's variables."""
    return [i for i, v in enumerate(held.variables) if v.group == "optimizer"]


# What makes an optimizer the one that was dumped.
_BUILD = "build it with the same variables first"
_BUILD_ANOTHER = "make a new optimizer, and build it with the same variables first"


def match_optimizer(
    held: manifest.Manifest, optimizer: Any, *, strict: bool, place: str, is_copy: bool = False
) -> list[tuple[Any, int]]:
    """As `match_variables`, for those of an optimizer that has been built.

    Args:
        is_copy: the caller's own has not been built yet.
    """
    ours, theirs = variables.of_optimizer(optimizer), of_optimizer(held)
    if len(ours) != len(theirs) and (theirs or strict):
        raise ValueError(
            f"{place}: the dump has {len(theirs)} variables of an optimizer, this one has {len(ours)}: give the same "
            f"one, {_BUILD if is_copy else _BUILD_ANOTHER} (optimizer.build(variables)), or leave it out"
        )
    pairs = list(zip(ours, theirs))
    _check_alike(held, pairs, place)
    return pairs


def _check_alike(held: manifest.Manifest, pairs: list[tuple[Any, int]], place: str) -> None:
    for variable, number in pairs:
        there = held.variables[number]
        found = variables.value_of(variable)
        if found.shape != there.shape or found.dtype.name != there.dtype:
            raise ValueError(
                f"{place}: the variable {there.name!r} of the {there.group} is {there.dtype} {list(there.shape)}, here "
                f"{found.dtype.name} {list(found.shape)}"
            )

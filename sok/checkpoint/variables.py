# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `dump` and `load` are given: tables, ordinary variables, an optimizer; and their names."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sok.checkpoint import manifest
from sok.table_variable import TableVariable


def _name_of(variable: Any, argument: str) -> str:
    if isinstance(variable, TableVariable):
        return variable.name
    if isinstance(variable, keras.Variable):
        return variable.path
    if isinstance(variable, tf.Variable):
        return variable.name.removesuffix(":0")
    raise TypeError(f"{argument}: expected tables and variables, got {type(variable).__name__}: {variable!r:.120}")


def named(variables: Any, argument: str) -> tuple[dict[str, TableVariable], dict[str, Any]]:
    """Tables and ordinary variables by name.

    Args:
        variables: one, a list of them, or a dict from the name in the dump.
        argument: its name, for messages.

    Raises:
        TypeError: there is something else among them.
        ValueError: two have one name.
    """
    if isinstance(variables, dict):
        pairs = list(variables.items())
        for name, _ in pairs:
            if not isinstance(name, str) or not name:
                raise TypeError(f"{argument} is a dict from names to variables: the name {name!r:.80} must be a string")
    else:
        several = isinstance(variables, (list, tuple))
        pairs = [(_name_of(variable, argument), variable) for variable in (variables if several else [variables])]
    tables: dict[str, TableVariable] = {}
    others: dict[str, Any] = {}
    for name, variable in pairs:
        _name_of(variable, argument)
        group: dict[str, Any] = tables if isinstance(variable, TableVariable) else others
        if group.get(name, variable) is not variable:
            raise ValueError(
                f"{argument} has two variables of the name {name!r}: give them names of their own, or pass a dict "
                "from names to variables"
            )
        group[name] = variable
    return tables, others


def check_named_once(variables: dict[str, Any], argument: str) -> None:
    """Refuses a variable under two names, of what is loaded: the last would take the place of the others.

    Raises:
        ValueError: there is one.
    """
    names: dict[int, str] = {}
    for name, variable in variables.items():
        other = names.setdefault(id(variable), name)
        if other != name:
            kind = "table" if isinstance(variable, TableVariable) else "variable"
            raise ValueError(
                f"{argument} has one {kind} under the names {other!r} and {name!r}, of which only the last would stay: "
                f"give each a {kind} of its own"
            )


def flag(value: Any, argument: str) -> bool:
    """An argument that is True or False.

    Raises:
        TypeError: it is neither: "False" would be true.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{argument} must be True or False, got {value!r:.80}")
    return bool(value)


def check_given(variables: Any, optimizer: Any, argument: str) -> None:
    """Refuses a call that has nothing to do, and what is no optimizer.

    Args:
        variables: all that `named` has found.

    Raises:
        TypeError: `optimizer` has no step or no variables.
        ValueError: there are neither variables nor an optimizer.
    """
    if optimizer is None:
        if not variables:
            raise ValueError(f"{argument} is empty: pass at least one table or variable")
    elif isinstance(optimizer, type) or not (hasattr(optimizer, "variables") and hasattr(optimizer, "iterations")):
        raise TypeError(f"optimizer must be a sok.OptimizerWrapper or another optimizer, got {optimizer!r:.120}")


def of_optimizer(optimizer: Any) -> list[Any]:
    """All variables of an optimizer, its step among them, in its own order."""
    variables = optimizer.variables
    if callable(variables):  # tf_keras
        variables = variables()
    # The state of tf_keras's dynamic loss scale is in no list.
    scale = getattr(optimizer, "_loss_scale", None)
    extra = [getattr(scale, name, None) for name in ("_current_loss_scale", "_counter")]
    return list(variables) + [variable for variable in extra if variable is not None]


def step_of(optimizer: Any) -> int:
    return int(tf.convert_to_tensor(optimizer.iterations))


def build(optimizer: Any, variables: list[Any]) -> None:
    """Creates the variables of an optimizer that has not made a step."""
    create = getattr(optimizer, "_create_all_weights", None)  # of tf_keras's legacy ones
    if create is not None:
        create(variables)
    elif not getattr(optimizer, "built", False):
        optimizer.build(variables)


def is_built(optimizer: Any) -> bool:
    """Whether an optimizer has its variables."""
    if hasattr(optimizer, "built"):
        return optimizer.built
    # Of tf_keras, or a wrapper of one. Legacy ones have slots only.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return bool(getattr(inner, "_built", False) or getattr(inner, "_slots", None))


def built_copy(optimizer: Any, variables: list[Any]) -> Any:
    """Another optimizer of the kind, built; None: this one cannot be copied.

    An optimizer can be built once: what may be refused is tried with a copy.
    """
    try:
        copy = type(optimizer).from_config(optimizer.get_config())
    except Exception:  # whatever the code of a class that is not ours raises, or of a schedule that has no config
        return None
    build(copy, variables)
    return copy


def value_of(variable: Any) -> np.ndarray:
    """A copy: a variable's own memory changes with the next step."""
    return np.array(tf.convert_to_tensor(variable))


def describe(group: str, variables: dict[str, Any]) -> list[tuple[manifest.Variable, np.ndarray]]:
    """Variables as a manifest has them, with their values.

    Raises:
        TypeError: one holds neither numbers nor booleans, or complex numbers.
    """
    result = []
    for name, variable in variables.items():
        value = value_of(variable)
        if value.dtype.name not in manifest.DTYPES:
            raise TypeError(f"the variable {name!r} holds {variable.dtype}, which a dump cannot hold")
        result.append((manifest.Variable(group, name, value.dtype.name, value.shape), value))
    return result

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The argument `per_table`: optimizers and learning rates that some tables have of their own."""

from collections.abc import Callable
from typing import Any

from sok.optimizers.rules import source_type
from sok.variables import TableVariable


def resolve_per_table(optimizer: Any, per_table: Any, resolve: Callable[[Any], Any]) -> dict[str, Any]:
    """An optimizer for each name of a table.

    Args:
        optimizer: the wrapped one, which lends its hyper-parameters to those that are only a learning rate.
        resolve: an optimizer from one, its name or its config.

    Raises:
        TypeError: a key is no table, or a value neither an optimizer of the same Keras nor a learning rate.
        ValueError: an optimizer has an option that spans all variables.
    """
    resolved = {}
    if not isinstance(per_table, dict):
        raise TypeError(f"per_table is a dict by table or by its name, got {per_table!r}")
    for key, value in per_table.items():
        table = key.name if isinstance(key, TableVariable) else key
        if not isinstance(table, str):
            raise TypeError(f"per_table's keys are tables or their names, got {key!r}")
        if isinstance(value, bool):
            raise TypeError(f"per_table[{table!r}] is an optimizer or a learning rate, got {value!r}")
        if isinstance(value, (int, float)) or callable(value):
            other = _with_learning_rate(optimizer, value, table)
        else:
            other = resolve(value)
            if source_type(other) is not source_type(optimizer):
                raise TypeError(
                    f"per_table[{table!r}] is of {type(other).__module__}, but the wrapped optimizer "
                    f"is of {type(optimizer).__module__}: use one Keras for both"
                )
            for option in ("global_clipnorm", "loss_scale_factor"):
                if getattr(other, option, None):
                    raise ValueError(
                        f"per_table[{table!r}]: {option} spans all variables; give it to the wrapped optimizer only"
                    )
        resolved[table] = other
    return resolved


def _with_learning_rate(optimizer: Any, learning_rate: Any, table: str) -> Any:
    """An optimizer with the same hyper-parameters, but for the learning rate."""
    if isinstance(learning_rate, int):
        learning_rate = float(learning_rate)
    config = optimizer.get_config()
    config |= {"learning_rate": learning_rate, "name": f"{config['name']}_{table}"}
    if config.get("global_clipnorm"):
        config["global_clipnorm"] = None
    return type(optimizer).from_config(config)

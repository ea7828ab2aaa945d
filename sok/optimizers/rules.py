# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which native rule does what a Keras optimizer does, and with which hyper-parameters.

A rule's hyper-parameters carry the names of the Keras optimizer's attributes, so that one function
reads them all.
"""

from typing import Any

import keras

from sok.stages.update import OPTIMIZERS


def _momentum(optimizer: Any) -> str:
    return "momentum" if optimizer.momentum else "sgd"


def _rmsprop(optimizer: Any) -> str:
    centered = "_centered" if optimizer.centered else ""
    return f"rmsprop{centered}_momentum" if optimizer.momentum else f"rmsprop{centered}"


def _adam(optimizer: Any) -> str:
    return "adam_amsgrad" if optimizer.amsgrad else "adam"


# Exact types: a subclass may have changed the formula.
_RULES = {
    "SGD": _momentum,
    "Adagrad": lambda optimizer: "adagrad",
    "RMSprop": _rmsprop,
    "Adam": _adam,
    "AdamW": _adam,
    "Adamax": lambda optimizer: "adamax",
    "Adadelta": lambda optimizer: "adadelta",
    "Ftrl": lambda optimizer: "ftrl",
}
# Hyper-parameters that an optimizer has under another name, or not at all.
_DEFAULTS = {"weight_decay": 0.0, "nesterov": 0.0}


def supported() -> tuple[str, ...]:
    """Names of the Keras optimizers that can train tables."""
    return tuple(sorted(_RULES))


def rule_of(optimizer: Any) -> str:
    """The name of the native rule.

    Raises:
        ValueError: there is none; the message lists the optimizers that have one.
    """
    name = type(optimizer).__name__
    if name not in _RULES or type(optimizer) is not getattr(keras.optimizers, name, None):
        raise ValueError(
            f"sok.OptimizerWrapper cannot train tables with {name}: it supports "
            f"{', '.join(supported())}"
        )
    return _RULES[name](optimizer)


def hyper_of(optimizer: Any, rule: str, learning_rate: Any) -> dict[str, Any]:
    """The rule's hyper-parameters as the optimizer has them now."""
    values = {}
    for name in OPTIMIZERS[rule]["hyper"]:
        if name == "learning_rate":
            values[name] = learning_rate
            continue
        value = getattr(optimizer, name, None)
        values[name] = _DEFAULTS.get(name, 0.0) if value is None else value
        if isinstance(values[name], bool):
            values[name] = float(values[name])
    return values

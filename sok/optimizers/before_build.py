# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a file has of an optimizer that has not been built yet.

Keras loads the weights of a compiled model before its first step, when the optimizer has no variables but its step and
learning rate, and passes over the rest with a warning. The rows of tables come with their states, to which the step
belongs; so the arrays wait here until the optimizer is built.
"""

import warnings
from typing import Any

import numpy as np
import tensorflow as tf


class Waiting:
    """Arrays for the variables of an optimizer. While it lives, Keras loads and saves these.

    Only `finish` ends that, which is for when the optimizer has been built.
    """

    def __init__(self, optimizer: Any):
        self._optimizer = optimizer
        self._arrays: list[np.ndarray] | None = None
        optimizer.load_own_variables = self._load
        optimizer.save_own_variables = self._save

    def _load(self, store: Any) -> None:
        arrays = read(store)
        if arrays is None or len(arrays) <= len(self._optimizer.variables):
            type(self._optimizer).load_own_variables(self._optimizer, store)
            return
        self._arrays = arrays
        # The step, and the learning rate if it is not a schedule.
        self._assign()

    def _save(self, store: Any) -> None:
        if self._arrays is None:
            type(self._optimizer).save_own_variables(self._optimizer, store)
        else:
            write(self._arrays, store)

    @property
    def has_arrays(self) -> bool:
        return self._arrays is not None

    def finish(self) -> None:
        del self._optimizer.load_own_variables
        del self._optimizer.save_own_variables
        if self._arrays is not None:
            self._assign()
            self._arrays = None

    def _assign(self) -> None:
        arrays, variables = self._arrays or [], self._optimizer.variables
        if not self._optimizer.built:
            arrays = arrays[: len(variables)]
        assign(self._optimizer.name, variables, arrays, "its step is as it was saved, its slots start anew")


def read(store: Any) -> list[np.ndarray] | None:
    """The arrays of a store, if it has them by number."""
    names = [str(number) for number in range(len(store.keys()))]
    return [np.asarray(store[name]) for name in names] if set(names) == set(store.keys()) else None


def write(arrays: list[np.ndarray], store: Any) -> None:
    for number, array in enumerate(arrays):
        store[str(number)] = array


def assign(optimizer: str, variables: list[Any], arrays: list[np.ndarray] | None, otherwise: str) -> None:
    """All of an optimizer's variables; at once, not in the function that is being traced.

    Args:
        arrays: what `read` gave. If they are not for these variables, none is assigned, and a warning says so, and
            what is the case `otherwise`.
    """
    if arrays is None or len(arrays) != len(variables) or not all(map(_fits, variables, arrays)):
        warnings.warn(
            f"Skipping variable loading for optimizer {optimizer!r}, because its variables are not those of the "
            f"saved one: {otherwise}",
            stacklevel=2,
        )
        return
    with tf.init_scope():
        for variable, array in zip(variables, arrays):
            variable.assign(array)


def _fits(variable: Any, array: np.ndarray) -> bool:
    """The shape, and a number of the same kind."""
    ours, theirs = tf.as_dtype(variable.dtype), tf.as_dtype(array.dtype)
    return tuple(variable.shape) == array.shape and (ours.is_floating, ours.is_integer) == (
        theirs.is_floating,
        theirs.is_integer,
    )

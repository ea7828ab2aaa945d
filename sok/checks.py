# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments: each returns the argument in its final form, or says what is wanted."""

import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from sok import _native

VAR_TYPES = ("hbm", "hybrid")
OUT_OF_RANGE = ("error", "zero", "clip")
EXCHANGES = ("auto", "rows", "partials", "reduce_scatter")


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def count(name: str, value: Any) -> int:
    """A number of rows of at least 1; 0 for None."""
    return 0 if value is None else whole(name, value, 1)


def seed(value: Any) -> int:
    """A seed: any 64-bit number."""
    number = whole("seed", value, -(2**63))
    if number >= 2**63:
        raise ValueError(f"seed must be below 2**63, got {value!r}")
    return number


def mask_value(value: Any) -> int | None:
    is_id = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if value is not None and not is_id:
        raise ValueError(f"mask_value must be an id, a whole number, or None, got {value!r}")
    return value


def combiner(value: Any) -> str | None:
    if value is not None and value not in _native.COMBINERS:
        raise ValueError(f"combiner must be one of {', '.join(_native.COMBINERS)} or None, got {value!r}")
    return value


def max_norm(value: Any) -> float:
    """The norm; 0 for None."""
    if value is None:
        return 0.0
    if not isinstance(value, numbers.Real) or not float(value) > 0:
        raise ValueError(f"max_norm must be above 0, or None, got {value!r}")
    return float(value)


def row_dtype(dtype: Any) -> str:
    return one_of("dtype", tf.as_dtype(dtype or "float32").name, _native.ROW_DTYPES)


def key_dtype(key_type: Any) -> str:
    return one_of("key_type", tf.as_dtype(key_type or "int64").name, _native.KEY_DTYPES)


def default_row(default: Any, dimension: int) -> str | tuple[float, ...]:
    """What an unknown id reads: "initial", "zeros" or a vector."""
    if default is None or (isinstance(default, str) and default in ("initial", "zeros")):
        return default or "initial"
    if isinstance(default, str):
        raise ValueError(f'default must be "initial", "zeros" or a vector of {dimension} numbers, got {default!r}')
    vector = np.asarray(default, np.float32)
    if vector.shape != (dimension,):
        raise ValueError(f"default must have the shape [{dimension}], got {list(vector.shape)}")
    return tuple(float(x) for x in vector)

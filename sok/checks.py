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
    if value >= 2**63:
        raise ValueError(f"{name} must be below 2**63, got {value!r}")
    return int(value)


def count(name: str, value: Any) -> int:
    """A number of rows of at least 1; 0 for None."""
    return 0 if value is None else whole(name, value, 1)


def device_bytes(var_type: str, max_hbm_for_vectors: Any) -> int:
    """Bytes of rows in a GPU's own memory; -1: all of them."""
    if max_hbm_for_vectors is None:
        return 2**63 - 1 if var_type == "hybrid" else -1
    if var_type != "hybrid":
        raise ValueError(
            f"max_hbm_for_vectors is for var_type='hybrid': with {var_type!r} a GPU keeps all rows in "
            "its own memory"
        )
    return whole("max_hbm_for_vectors", max_hbm_for_vectors, 0)


def seed(value: Any) -> int:
    """A seed: any 64-bit number."""
    return whole("seed", value, -(2**63))


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
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # As a float32, in which a smaller number would be 0, which stands for None.
    if not is_number or not np.float32(float(value)) > 0:
        raise ValueError(f"max_norm must be above 0, or None, got {value!r}")
    return float(value)


def _dtype_name(dtype: Any) -> Any:
    """The name of a dtype; what is none stays as it is."""
    try:
        return tf.as_dtype(dtype).name
    except TypeError:
        return dtype


def row_dtype(dtype: Any) -> str:
    return one_of("dtype", _dtype_name(dtype or "float32"), _native.ROW_DTYPES)


def key_dtype(key_type: Any) -> str:
    return one_of("key_type", _dtype_name(key_type or "int64"), _native.KEY_DTYPES)


def table_shape(shape: Any) -> tuple[int, int]:
    """[rows, dimension] of a static table."""
    sizes = list(shape) if hasattr(shape, "__iter__") else shape
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise ValueError(f"a table has the shape [rows, dimension], got {sizes!r}")
    return whole("rows", sizes[0], 0), whole("dimension", sizes[1], 1)


def default_row(default: Any, dimension: int) -> str | tuple[float, ...]:
    """What an unknown id reads: "initial", "zeros" or a vector."""
    if default is None or (isinstance(default, str) and default in ("initial", "zeros")):
        return default or "initial"
    try:
        vector = None if isinstance(default, str) else np.asarray(default, np.float32)
    except (TypeError, ValueError):
        vector = None
    if vector is None:
        raise ValueError(f'default must be "initial", "zeros" or a vector of {dimension} numbers, got {default!r}')
    if vector.shape != (dimension,):
        raise ValueError(f"default must have the shape [{dimension}], got {list(vector.shape)}")
    return tuple(float(x) for x in vector)


def require(condition: Any, *message: Any) -> list[tf.Operation]:
    """Checks a boolean scalar: now, if its value is known, else when the graph runs.

    Args:
        condition: what must hold.
        message: texts, numbers and tensors of the error.

    Returns:
        in a graph the op to wait for.

    Raises:
        tf.errors.InvalidArgumentError: it does not hold.
    """
    known = tf.get_static_value(condition)
    if known is None:
        return [tf.debugging.Assert(condition, list(message), summarize=1000)]
    if known:
        return []
    parts = (part.numpy().tolist() if hasattr(part, "numpy") else part for part in message)
    raise tf.errors.InvalidArgumentError(None, None, " ".join(str(part) for part in parts))

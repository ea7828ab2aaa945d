# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Inputs of layers, and the shapes and symbolic tensors of their outputs."""

from typing import Any

import keras
import tensorflow as tf

from sok.inputs import check_integers


def split(inputs: Any) -> tuple[Any, Any]:
    """Ids and weights (or None) of one feature: ids alone, or a pair."""
    if not isinstance(inputs, (tuple, list)):
        return inputs, None
    if len(inputs) != 2:
        raise ValueError(f"give ids, or a pair (ids, weights); got {len(inputs)} values")
    return inputs[0], inputs[1]


def output_shape(input_shape: Any, combiner: str | None, dimension: int) -> tuple:
    """From the shape of ids, or of a pair (ids, weights)."""
    if input_shape and isinstance(input_shape[0], (tuple, list)):
        input_shape = input_shape[0]
    kept = tuple(input_shape) if combiner is None else tuple(input_shape[:1])
    return (*kept, dimension)


def output_spec(inputs: Any, combiner: str | None, dimension: int, dtype: str, name: str) -> keras.KerasTensor:
    """The symbolic output for symbolic ids, or for a pair (ids, weights).

    Raises:
        TypeError: the ids are not integers.
        ValueError: their rank has no rule.
    """
    ids, _ = split(inputs)
    check_integers(tf.as_dtype(keras.backend.standardize_dtype(ids.dtype)), name)
    ragged = getattr(ids, "ragged", False)
    if len(ids.shape) not in ((2, 3) if ragged else (1, 2)):
        raise ValueError(f"{name}: ids must have the shape [batch] or [batch, hotness], got {tuple(ids.shape)}")
    shape = output_shape(ids.shape, combiner, dimension)
    variable = combiner is None and (ragged or getattr(ids, "sparse", False))
    return keras.KerasTensor(shape, dtype=dtype, ragged=variable)

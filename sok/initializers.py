# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial values of rows: names and Keras initializers, translated to the library's own.

A row's initial value is a pure function of the table's seed, the key and the column, so that it does
not depend on when, where or in which batch the key first appears.
"""

import dataclasses
import math
from typing import Any

import keras
import numpy as np

_NAMES = ("random", "uniform", "normal", "zeros", "ones", 'a number as text such as "0.1"')


@dataclasses.dataclass(frozen=True)
class InitializerSpec:
    """What the native library understands.

    kind: "constant" (a), "uniform" (in [a, b)), "normal" or "truncated_normal" (mean a, standard
    deviation b; the latter redrawn inside two deviations).
    """

    kind: str
    a: float = 0.0
    b: float = 0.0
    seed: int | None = None


def _variance_scaling(initializer: Any, dimension: int) -> InitializerSpec:
    # A table has no fan of its own: an id's row feeds `dimension` units, as one unit's weights do.
    scale = initializer.scale / max(1.0, float(dimension))
    if initializer.distribution == "uniform":
        limit = math.sqrt(3.0 * scale)
        return InitializerSpec("uniform", -limit, limit)
    if initializer.distribution == "untruncated_normal":
        return InitializerSpec("normal", 0.0, math.sqrt(scale))
    # The deviation of a standard normal cut at two deviations.
    return InitializerSpec("truncated_normal", 0.0, math.sqrt(scale) / 0.87962566103423978)


def _constant(value: float) -> InitializerSpec:
    # As the rows' arithmetic has it: a number beyond float32 is infinite there.
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.float32(value))
    if not finite:
        raise ValueError(f"initializer must be a finite float32 number, got {value!r}")
    return InitializerSpec("constant", float(value))


def _from_name(name: str) -> InitializerSpec | None:
    known = {
        "random": InitializerSpec("uniform", -0.05, 0.05),
        "uniform": InitializerSpec("uniform", 0.0, 1.0),
        "normal": InitializerSpec("normal", 0.0, 1.0),
        "zeros": InitializerSpec("constant", 0.0),
        "ones": InitializerSpec("constant", 1.0),
    }
    if name in known:
        return known[name]
    try:
        number = float(name)
    except ValueError:
        return None
    return _constant(number)


def refusal(initializer: Any) -> str:
    """Why an initializer that has no form of the library's own cannot start a hash table's rows."""
    return (
        f"initializer {initializer!r} cannot fill a hash table row by row: use a constant, uniform, "
        "normal, truncated normal or variance scaling initializer"
    )


def resolve(initializer: Any, dimension: int) -> InitializerSpec | None:
    """The library's own form of an initializer; None if it has none (a static table may use any).

    Args:
        initializer: one of "random" (U(-0.05, 0.05)), "uniform" (U(0, 1)), "normal" (N(0, 1)),
            "zeros", "ones", a number or a number as text, a Keras initializer or its config; None
            is "random".
        dimension: width of the rows, the fan of variance-scaling initializers.

    Raises:
        ValueError: the name is unknown.

    >>> resolve("13", 4)
    InitializerSpec(kind='constant', a=13.0, b=0.0, seed=None)
    """
    if initializer is None:
        initializer = "random"
    if isinstance(initializer, (int, float)):
        return _constant(initializer)
    if isinstance(initializer, str):
        spec = _from_name(initializer)
        if spec is not None:
            return spec
        try:
            initializer = keras.initializers.get(initializer)
        except ValueError as error:
            raise ValueError(
                f"unknown initializer {initializer!r}: use one of {', '.join(_NAMES)}, or a Keras "
                "initializer"
            ) from error
    if isinstance(initializer, dict):
        initializer = keras.initializers.get(initializer)
    if isinstance(initializer, type):
        initializer = initializer()
    spec = None
    init = keras.initializers
    if isinstance(initializer, init.Zeros):
        spec = InitializerSpec("constant", 0.0)
    elif isinstance(initializer, init.Ones):
        spec = InitializerSpec("constant", 1.0)
    elif isinstance(initializer, init.Constant) and isinstance(initializer.value, (int, float)):
        spec = _constant(initializer.value)
    elif isinstance(initializer, init.RandomUniform):
        spec = InitializerSpec("uniform", float(initializer.minval), float(initializer.maxval))
    elif isinstance(initializer, init.RandomNormal):
        spec = InitializerSpec("normal", float(initializer.mean), float(initializer.stddev))
    elif isinstance(initializer, init.TruncatedNormal):
        spec = InitializerSpec("truncated_normal", float(initializer.mean), float(initializer.stddev))
    elif isinstance(initializer, init.VarianceScaling):
        spec = _variance_scaling(initializer, dimension)
    if spec is None:
        return None
    seed = getattr(initializer, "_init_seed", None)
    return dataclasses.replace(spec, seed=seed if isinstance(seed, int) else None)

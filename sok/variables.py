# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The variables that users make: hash tables and static tables."""

from typing import Any

import keras
import tensorflow as tf

from sok import _native, checks, comm, initializers, placement
from sok.table import TableAttributes, UnwrappedOptimizerError, random_seed
from sok.table_variable import TableVariable, from_keys


def _agreed_seed() -> int:
    """A drawn seed, the same on all ranks: rows start alike wherever they live."""
    communicator = comm.current()
    seed = random_seed()
    if communicator.size == 1:
        return seed
    with tf.init_scope():
        return int(communicator.broadcast(tf.constant([seed], tf.int64), 0, "seed")[0])


def _default_attributes(default: Any, dimension: int) -> dict[str, Any]:
    default = checks.default_row(default, dimension)
    if isinstance(default, str):
        return {"default_row": default}
    return {"default_row": "vector", "default_vector": default}


class DynamicVariable(TableVariable):
    """A hash table of rows: any id, no vocabulary.

    Args:
        dimension: width of the rows, at least 1.
        initializer: what a new row holds; see `sok.initializers.resolve`. Default "random",
            U(-0.05, 0.05).
        var_type: where a GPU keeps the rows. "hbm" (default): in its own memory. "hybrid": there while
            it has room, and further rows, with their states, in pinned host memory, which kernels read
            and write where it is: as fast as the bus. Without a GPU both mean host memory.
        name: name in summaries and messages.
        constraint: not supported; must be None.
        trainable: whether tapes and optimizers see it.
        key_type: dtype of ids: int32, int64 (default), uint32 or uint64. Every value is legal.
        dtype: dtype of the rows: float32 (default), float16 or bfloat16.
        mode: which ranks keep its rows: "distributed" (default), "localized", …; see `sok.placement`.
        seed: of the initial values; None draws one.
        default: what a lookup with `training=False` gives for an unknown id: "initial" (its initial
            value), "zeros", or a vector.
        capacity: rows to make room for at once.
        max_capacity: refuse to hold more rows than this (None: unbounded).
        max_hbm_for_vectors: with "hybrid", bytes of rows and states that may be in a GPU's own memory, which
            the first rows get; None: what it has, which leaves nothing for the model's other layers.
            The index is there besides, and `sok.export` and dumps beside training copy what they read
            into it.

    Raises:
        ValueError: an argument is outside of what is listed.

    >>> table = sok.DynamicVariable(2, initializer="13")
    >>> sok.lookup_sparse(table, tf.constant([[7, -1]], tf.int64), combiners="sum").numpy()
    array([[26., 26.]], dtype=float32)
    >>> table.size
    [2, 2]
    """

    def __init__(
        self,
        dimension,
        initializer=None,
        var_type=None,
        name=None,
        constraint=None,
        trainable=True,
        key_type=None,
        dtype=None,
        mode=None,
        *,
        seed=None,
        default=None,
        capacity=None,
        init_capacity=None,
        max_capacity=None,
        max_hbm_for_vectors=None,
        _collide=False,
    ):
        dimension = checks.whole("dimension", dimension, 1)
        if constraint is not None:
            raise ValueError(
                "constraint is not supported on a table: a constraint maps the whole dense array. "
                "To bound rows, pass max_norm to the lookup"
            )
        self.var_type = checks.one_of("var_type", var_type or "hbm", checks.VAR_TYPES)
        spec = initializers.resolve(initializer, dimension)
        if spec is None:
            raise ValueError(initializers.refusal(initializer))
        capacity = checks.count("capacity", capacity if init_capacity is None else init_capacity)
        max_capacity = checks.count("max_capacity", max_capacity)
        seed = seed if seed is not None else spec.seed
        name = name or keras.src.utils.naming.auto_name("dynamic_variable")
        row_type = checks.row_dtype(dtype)
        row_bytes = dimension * tf.as_dtype(row_type).size
        self.mode = mode
        self.placement = placement.resolve(
            mode, is_static=False, size=max(capacity, max_capacity) * row_bytes
        )
        super().__init__(
            TableAttributes(
                name_of_table=name,
                row_type=row_type,
                dimension=dimension,
                capacity=capacity,
                max_capacity=max_capacity,
                device_bytes=checks.device_bytes(self.var_type, max_hbm_for_vectors),
                initializer=spec.kind,
                initializer_a=spec.a,
                initializer_b=spec.b,
                seed=checks.seed(seed) if seed is not None else _agreed_seed(),
                collide=_collide,
                **_default_attributes(default, dimension),
            ),
            key_dtype=checks.key_dtype(key_type),
            trainable=trainable,
            name=name,
        )


def _initial_tensor(value: Any) -> tf.Tensor:
    # Not through np.asarray: a tensor in a strategy or on a GPU has its own way.
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"initial_value must be an array of numbers [rows, dimension]: {error}") from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise TypeError(f"initial_value must hold numbers, got {tensor.dtype.name}")
    return tensor


class Variable(TableVariable):
    """A static table: an array of rows, looked up by row number.

    Args:
        initial_value: [rows, dimension], or a callable that gives it, as for `tf.Variable`; or None
            with `shape` and `initializer`.
        shape: [rows, dimension], when there is no initial value.
        initializer: as for `DynamicVariable`; here any Keras initializer works.
        mode: which ranks keep its rows: "distributed" (default), "localized", …; see `sok.placement`.
        out_of_range: what an id outside [0, rows) gets: "error", "zero" (a zero vector, no
            gradient) or "clip" (the nearest row).
        trainable, name, dtype, seed: as for `DynamicVariable`.

    >>> table = sok.Variable([[1.0, 2.0], [3.0, 4.0]])
    >>> sok.lookup_sparse(table, tf.constant([[0, 1]]), combiners="sum").numpy()
    array([[4., 6.]], dtype=float32)
    """

    def __init__(
        self,
        initial_value=None,
        trainable=True,
        name=None,
        dtype=None,
        *,
        shape=None,
        initializer=None,
        seed=None,
        mode=None,
        out_of_range="error",
        key_type=None,
    ):
        if callable(initial_value):
            initial_value = initial_value()
        if (initial_value is None) == (shape is None):
            raise ValueError("give either initial_value or shape, and not both")
        checks.one_of("out_of_range", out_of_range, checks.OUT_OF_RANGE)
        if initial_value is not None:
            initial_value = _initial_tensor(initial_value)
            dtype = dtype or (
                initial_value.dtype if initial_value.dtype.name in _native.ROW_DTYPES else None
            )
            shape = initial_value.shape
        rows, dimension = checks.table_shape(shape)
        spec = initializers.resolve(initializer, dimension) if initial_value is None else None
        if initial_value is None and spec is None:
            initial_value = keras.initializers.get(initializer)((rows, dimension), dtype="float32")
        if spec is None:
            spec = initializers.InitializerSpec("constant", 0.0)
        seed = seed if seed is not None else spec.seed
        name = name or keras.src.utils.naming.auto_name("variable")
        row_type = checks.row_dtype(dtype)
        self.mode = mode
        self.placement = placement.resolve(mode, size=rows * dimension * tf.as_dtype(row_type).size)
        self.total_rows = rows
        offset, stride = self.placement.id_offset_and_stride
        super().__init__(
            TableAttributes(
                name_of_table=name,
                row_type=row_type,
                dimension=dimension,
                rows=self.placement.rows_here(rows),
                id_offset=offset,
                id_stride=stride,
                initializer=spec.kind,
                initializer_a=spec.a,
                initializer_b=spec.b,
                seed=checks.seed(seed) if seed is not None else _agreed_seed(),
                out_of_range=out_of_range,
            ),
            key_dtype=checks.key_dtype(key_type),
            trainable=trainable,
            name=name,
        )
        if initial_value is not None:
            self.assign(initial_value)


__all__ = ["DynamicVariable", "TableVariable", "UnwrappedOptimizerError", "Variable", "from_keys"]

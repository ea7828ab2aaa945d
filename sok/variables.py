# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables as variables: what layers, tapes and optimizers hold."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

from sok import _native, checks, comm, initializers, placement
from sok.stages.route import kept_here
from sok.table import TableAttributes, TableValue, UnwrappedOptimizerError, random_seed


class TableShape(tuple):
    """[rows, dimension] of a table; equal to any shape with the same dimension.

    A hash table grows, so that weights taken from it and put back later (`set_weights`,
    `EarlyStopping(restore_best_weights=True)`) may have another number of rows.
    """

    def __eq__(self, other):
        return isinstance(other, (tuple, list, tf.TensorShape)) and tuple(self)[1:] == tuple(other)[1:]

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(tuple(self)[1:])


class TableArray(np.ndarray):
    """The values of a table, [rows, dimension], with the rest of it: `ids`, and `state`, which also
    holds the optimizers' states."""

    ids: np.ndarray
    state: dict[str, np.ndarray]

    @classmethod
    def of(cls, state: dict[str, np.ndarray], ids: np.ndarray) -> "TableArray":
        array = np.asarray(state["values"]).view(cls)
        array.ids = ids
        array.state = state
        return array


class TableVariable(backend.Variable):
    """A table that Keras tracks, trains and saves as a weight.

    On several ranks each process's object keeps the rows that its placement gives to this rank;
    lookups see all of them, everything else here these.

    The outer half: `sok.table.TableValue` is the table itself. Do not create it directly; use
    `sok.Variable` or `sok.DynamicVariable`.
    """

    # Rows of a static table on all ranks together; -1: a hash table.
    total_rows = -1
    placement = placement.Placement()

    def __init__(
        self,
        attributes: TableAttributes,
        key_dtype: str = "int64",
        trainable: bool = True,
        name: str | None = None,
        device: str = "",
    ):
        self.attributes = attributes
        self.key_dtype = key_dtype
        self._table_device = device
        super().__init__(
            initializer=lambda *args, **kwargs: None,
            shape=(0, attributes.dimension),
            dtype=attributes.row_type,
            trainable=trainable,
            autocast=False,
            name=name or attributes.name_of_table,
        )

    def _initialize_with_initializer(self, initializer):
        self._value = TableValue(self.attributes, self.trainable, self._table_device)

    def _deferred_initialize(self):
        # Keras comes here for what was created during a symbolic call; a table is there at once.
        if self._value is None:
            self._initialize_with_initializer(None)

    @property
    def table(self) -> TableValue:
        self._deferred_initialize()
        return self._value

    # A Keras variable's face.

    @property
    def value(self):
        return self.table

    @property
    def handle(self):
        return self.table.handle

    @property
    def _unique_id(self):
        return self.table._unique_id

    @property
    def dimension(self) -> int:
        return self.attributes.dimension

    @property
    def is_static(self) -> bool:
        return self.attributes.is_static

    @property
    def size(self) -> list[int]:
        """[rows, dimension], read now. On several ranks: of a static table all rows, of a hash table
        those that this rank keeps."""
        return [self.total_rows if self.is_static else self.table.row_count(), self.dimension]

    @property
    def shape(self):
        return TableShape(self.size if self._value is not None else (0, self.dimension))

    @property
    def trainable(self) -> bool:
        return self._trainable

    @trainable.setter
    def trainable(self, value):
        self._trainable = bool(value)
        if self._value is not None:
            self._value.trainable = self._trainable

    def numpy(self) -> TableArray:
        """The whole table; `assign` takes it back. Rows in no particular order; see `.ids`."""
        state = {name: np.asarray(tensor) for name, tensor in self.table.state().items()}
        return TableArray.of(state, self.ids_of(state["keys"]))

    def ids_of(self, keys: np.ndarray) -> np.ndarray:
        """Ids as the user knows them, from keys of this rank's table."""
        return from_keys(keys * self.attributes.id_stride + self.attributes.id_offset, self.key_dtype)

    def write_rows(self, keys: tf.Tensor, values: Any):
        """Overwrites or inserts those of the rows that this rank keeps."""
        positions, local = kept_here(self, keys)
        self.table.write(local, {"values": tf.gather(values, positions)}, {}, replace=False)

    def __array__(self, dtype=None, copy=None):
        # Rows without their ids: a layer that saved its weights so could not load them.
        raise TypeError(
            f"the table {self.name!r} is not an array, since its rows belong to ids. Use "
            "sok.export(variable), or variable.numpy(), which remembers the ids. A layer of your own "
            "that holds tables is saved if it derives from sok.layers.TableMixin"
        )

    def assign(self, value):
        """Replaces the table by what `numpy()` of this or an equal table gave."""
        if isinstance(value, TableArray):
            self.table.set_state(value.state)
        elif self.is_static and tuple(np.shape(value)) == tuple(self.shape):
            self.write_rows(tf.range(self.total_rows, dtype=tf.int64), value)
        else:
            raise ValueError(
                f"the table {self.name!r} can be assigned only from its own numpy(), which knows "
                f"the ids; got an array of shape {np.shape(value)}. To write rows, use "
                "sok.assign(variable, ids, values)"
            )
        return value

    def _direct_assign(self, value):
        self.assign(value)

    def __tf_tensor__(self, dtype=None, name=None):
        return self.table.__tf_tensor__(dtype, name)

    def __getitem__(self, index):
        raise TypeError(
            f"the table {self.name!r} is not indexed by position: use "
            "sok.lookup_sparse(variable, ids)"
        )

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other

    def __hash__(self):
        return id(self)

    def __repr__(self):
        kind = "Variable" if self.is_static else "DynamicVariable"
        return f"<sok.{kind} {self.name!r} size={self.size} dtype={self.attributes.row_type}>"

    # Saving: the inner object carries the data; this one only leads there.

    def _serialize_to_tensors(self):
        return {}

    def _restore_from_tensors(self, restored_tensors):
        return []

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        return {"table": self.table}

    def _lookup_dependency(self, name, *args, **kwargs):
        return self.table if name == "table" else None

    def _copy_trackable_to_cpu(self, object_map):
        object_map[self] = self

    def _export_to_saved_model_graph(self, object_map, tensor_map, options=None, **kwargs):
        return []

    def _write_object_proto(self, proto, options):
        proto.user_object.SetInParent()
        proto.user_object.identifier = "_generic_user_object"
        proto.user_object.version.producer = 1
        proto.user_object.version.min_consumer = 1


def from_keys(keys: np.ndarray, key_dtype: str) -> np.ndarray:
    """Ids as the user knows them, from the table's 64-bit keys."""
    return np.asarray(keys).view(np.uint64) if key_dtype == "uint64" else np.asarray(keys).astype(key_dtype)


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
        var_type: "hbm" (default) or "hybrid": where a GPU keeps the rows. On a machine without one
            both mean host memory.
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
                initializer=spec.kind,
                initializer_a=spec.a,
                initializer_b=spec.b,
                seed=int(seed) if seed is not None else _agreed_seed(),
                collide=_collide,
                **_default_attributes(default, dimension),
            ),
            key_dtype=checks.key_dtype(key_type),
            trainable=trainable,
            name=name,
        )


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
            # Not through np.asarray: a tensor in a strategy or on a GPU has its own way.
            initial_value = tf.convert_to_tensor(initial_value)
            dtype = dtype or (
                initial_value.dtype if initial_value.dtype.name in _native.ROW_DTYPES else None
            )
            shape = initial_value.shape
        shape = tuple(int(size) for size in shape)
        if len(shape) != 2:
            raise ValueError(f"a table has the shape [rows, dimension], got {list(shape)}")
        rows = checks.whole("rows", shape[0], 0)
        dimension = checks.whole("dimension", shape[1], 1)
        spec = initializers.resolve(initializer, dimension) if initial_value is None else None
        if initial_value is None and spec is None:
            initial_value = keras.initializers.get(initializer)(shape, dtype="float32")
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
                seed=int(seed) if seed is not None else _agreed_seed(),
                out_of_range=out_of_range,
            ),
            key_dtype=checks.key_dtype(key_type),
            trainable=trainable,
            name=name,
        )
        if initial_value is not None:
            self.assign(initial_value)


__all__ = ["DynamicVariable", "TableVariable", "UnwrappedOptimizerError", "Variable"]

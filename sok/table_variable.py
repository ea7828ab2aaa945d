# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The outer half of a variable: a table as a weight that Keras tracks, trains and saves."""

import functools
import itertools
import weakref
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src import backend
from tensorflow.core.function.trace_type import default_types

from sok import checks, placement
from sok.stages.route import kept_here
from sok.table import TableAttributes, TableValue
from sok.table_state import Origin

_numbers = itertools.count()


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
    holds the optimizers' states. It may be changed in place; what is computed from it has neither."""

    ids: np.ndarray
    state: dict[str, np.ndarray]

    @classmethod
    def of(cls, state: dict[str, np.ndarray], ids: np.ndarray) -> "TableArray":
        state = {**state, "values": np.array(state["values"])}
        array = state["values"].view(cls)
        array.ids = ids
        array.state = state
        return array

    def __reduce__(self):
        whole = hasattr(self, "state")
        return (TableArray.of, (self.state, self.ids)) if whole else np.asarray(self).__reduce__()

    def __deepcopy__(self, memo):
        whole = hasattr(self, "state")
        return TableArray.of(self.state, self.ids) if whole else np.array(self)


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
        # Of the tables that this process has made.
        self.number = next(_numbers)
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
        kind = "static" if self.is_static else "hash"
        part = "" if self.placement.is_replicated else f"rank {self.placement.here} of {self.placement.ranks}"
        origin = Origin(kind, self.key_dtype, self.dimension, self.total_rows, part)
        self._value = TableValue(self.attributes, self.trainable, self._table_device, origin)
        if not self.placement.is_replicated:
            self._value.kept_here = functools.partial(kept_here, self)

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

    def shared_facts(self) -> list[Any]:
        """What a table must have alike on all ranks, besides its place among the tables of a lookup or its name in a
        dump."""
        kind = ["static", self.total_rows] if self.is_static else ["hash"]
        types = [str(self.attributes.row_type), tf.as_dtype(self.key_dtype).name]
        return [*kind, self.dimension, *types, self.placement.kind, self.placement.owner]

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
        values = tf.convert_to_tensor(values)
        if not (values.dtype.is_floating or values.dtype.is_integer):
            raise TypeError(f"the table {self.name!r}: values must be numbers, got {values.dtype.name}")
        # All of them: what this rank keeps is chosen by position, which would hide rows too many.
        if keys.shape.is_fully_defined() and values.shape.is_fully_defined():
            wanted, found = [keys.shape.num_elements(), self.dimension], values.shape.as_list()
            fits = found == wanted
        else:
            wanted, found = tf.stack([tf.size(keys), self.dimension]), tf.shape(values)
            fits = values.shape.rank in (None, 2) and tf.reduce_all(tf.equal(found, wanted))
        message = (f"the table {self.name!r}: values of {keys.shape} ids must have the shape", wanted)
        with tf.control_dependencies(checks.require(fits, *message, "but have", found)):
            local, values = kept_here(self, keys, values)
            self.table.write(local, {"values": values}, {}, replace=False)

    def __array__(self, dtype=None, copy=None):
        # Rows without their ids: a layer that saved its weights so could not load them.
        raise TypeError(
            f"the table {self.name!r} is not an array, since its rows belong to ids. Use "
            "sok.export(variable), or variable.numpy(), which remembers the ids. A layer of your own "
            "that holds tables is saved if it derives from sok.layers.TableMixin"
        )

    def assign(self, value):
        """Replaces the table by what `numpy()` gave of it, or of a table of the same kind, dimension and rows whose
        ids fit its key type; on several ranks also by this rank's part of what it gave on one. A static table takes
        an array of its shape too.

        Raises:
            ValueError: it is of another table, or damaged; the table is as it was.
        """
        if isinstance(value, TableArray) and hasattr(value, "state"):
            self.table.set_state(value.state)
        elif self.is_static and tuple(np.shape(value)) == tuple(self.shape):
            self.write_rows(tf.range(self.total_rows, dtype=tf.int64), value)
        else:
            raise ValueError(
                f"the table {self.name!r} can be assigned only from its own numpy(), which knows "
                "the ids, perhaps changed in place; got another array of shape "
                f"{np.shape(value)}. To write rows, use sok.assign(variable, ids, values)"
            )
        return value

    def _direct_assign(self, value):
        self.assign(value)

    def __tf_tensor__(self, dtype=None, name=None):
        return self.table.__tf_tensor__(dtype, name)

    def __tf_tracing_type__(self, context):
        # As an argument of a tf.function: an object, which is traced for itself.
        return default_types.Weakref(weakref.ref(self))

    def __deepcopy__(self, memo):
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(self.__dict__)
        copied._initialize_with_initializer(None)
        copied.table.set_state(self.table.state())
        return copied

    def __reduce_ex__(self, protocol):
        # A copy of the attributes would be another owner of the same table.
        raise TypeError(
            f"the table {self.name!r} cannot be pickled or copied shallowly: pickle what numpy() gives, "
            "which assign() of another table takes, or use copy.deepcopy"
        )

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

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The inner half of a variable: one native table as a TensorFlow resource.

`table_variable.py` wraps it into what Keras tracks as a weight. The split is needed because Keras tracks
only its own `Variable` class, while TensorFlow saves and exports only a `TrackableResource`.
"""

import dataclasses
import itertools
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import handle_data_util, resource_variable_ops

from sok import _native, table_state
from sok.table_state import Origin

_counter = itertools.count()
_counter_lock = threading.Lock()


class UnwrappedOptimizerError(TypeError, AttributeError):
    """A Keras optimizer met a table. Only `sok.OptimizerWrapper` can update one.

    An AttributeError too: a checkpoint asks every optimizer in it for the slots of every object, and
    takes that for an answer.
    """

    def __init__(self, name: str):
        super().__init__(
            f"the table {name!r} cannot be trained by a bare Keras optimizer, which would treat it "
            "as a dense array. Write: "
            "model.compile(optimizer=sok.OptimizerWrapper(keras.optimizers.Adam(...)), ...)"
        )


@dataclasses.dataclass(frozen=True)
class TableAttributes:
    """A table's configuration, in the terms of the op that creates it."""

    name_of_table: str
    row_type: str
    dimension: int
    rows: int = -1
    id_offset: int = 0
    id_stride: int = 1
    capacity: int = 0
    max_capacity: int = 0
    device_bytes: int = -1
    initializer: str = "constant"
    initializer_a: float = 0.0
    initializer_b: float = 0.0
    seed: int = 0
    default_row: str = "initial"
    default_vector: tuple[float, ...] = ()
    out_of_range: str = "error"
    collide: bool = False

    @property
    def is_static(self) -> bool:
        return self.rows >= 0


def random_seed() -> int:
    """A seed from Python's generator, so that `keras.utils.set_random_seed` makes it repeatable."""
    return random.getrandbits(62)


def _being_restored() -> set[str] | None:
    """The tensors that a checkpoint has of an object, if TensorFlow is about to read them."""
    for frame, _ in traceback.walk_stack(None):
        if frame.f_globals.get("__name__") == "tensorflow.python.checkpoint.restore":
            proto = getattr(frame.f_locals.get("self"), "object_proto", None)
            return set() if proto is None else {attribute.name for attribute in proto.attributes}
    return None


def _unique_name(name: str) -> str:
    # Two tables with one shared name would be one table, in this process and in what it saves.
    with _counter_lock:
        return f"sok/{name}/{os.getpid()}/{next(_counter)}"


def _any_shape(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor, with nothing known about its shape: a graph restores what another graph saved, and checks it."""
    return tf.compat.v1.placeholder_with_default(tensor, None)


class TableValue(tf.saved_model.experimental.TrackableResource):
    """A native table.

    Its rows hold planes: "values", and one a state of each optimizer that has updated it.
    """

    def __init__(
        self, attributes: TableAttributes, trainable: bool = True, device: str = "", origin: Origin | None = None
    ):
        self.attributes = attributes
        self.trainable = trainable
        kind = "static" if attributes.is_static else "hash"
        self.origin = origin or Origin(kind, "int64", attributes.dimension, attributes.rows)
        # On several ranks: keys of the whole table -> positions of those that this rank keeps, and
        # the keys under which it does. None: this is the whole table.
        self.kept_here: Callable[..., tuple[tf.Tensor, ...]] | None = None
        self._shared_name = _unique_name(attributes.name_of_table)
        super().__init__(device=device)
        with tf.init_scope():
            # Created here, outside of any function being traced; and without a device not by the
            # property, whose tf.device("") means the CPU where TensorFlow would choose a GPU.
            self._resource_handle = self.resource_handle if device else self._create_resource()

    # What TensorFlow and Keras ask of a variable's value.

    @property
    def handle(self) -> tf.Tensor:
        return self.resource_handle

    @property
    def name(self) -> str:
        return self.attributes.name_of_table

    @property
    def dtype(self) -> tf.DType:
        return tf.as_dtype(self.attributes.row_type)

    @property
    def shape(self) -> tf.TensorShape:
        return tf.TensorShape([None, self.attributes.dimension])

    @property
    def _unique_id(self):
        # Every Keras optimizer asks for this when it is built; the wrapper does not.
        raise UnwrappedOptimizerError(self.name)

    def ref(self):
        # A function with a gradient of its own asks this of every variable that it uses, and then treats
        # each as a dense tensor.
        raise NotImplementedError(
            f"the table {self.name!r} cannot be read inside tf.custom_gradient or tf.recompute_grad, which "
            "record dense variables only: look up before it, and pass the vectors"
        )

    def __tf_tensor__(self, dtype=None, name=None):
        raise TypeError(
            f"the table {self.name!r} is not a dense tensor and cannot become one. Use "
            "sok.lookup_sparse(variable, ids) for some rows, sok.export(variable) for all"
        )

    def watch(self) -> tf.Tensor:
        """The handle, for an op that reads the table: gradient tapes see this access."""
        resource_variable_ops.variable_accessed(self)
        return self.resource_handle

    @property
    def seed(self) -> int:
        """Of the initial values: the one given at first, or that of the state loaded last."""
        with tf.init_scope():
            return int(_native.ops.sok_table_seed(self.resource_handle))

    # Reading and writing, outside of the training step.

    def row_count(self) -> int:
        with tf.init_scope():
            return int(_native.ops.sok_table_size(self.resource_handle))

    def planes(self) -> dict[str, tuple[int, float]]:
        """Width and initial value of each plane, by name.

        In a graph, which is how a SavedModel is made: of the values only. It serves, and has no use
        for optimizer states.
        """
        if not tf.executing_eagerly():
            return {"values": (self.attributes.dimension, 0.0)}
        names, widths, initials = _native.ops.sok_table_planes(self.resource_handle)
        return {
            name.decode(): (int(width), float(initial))
            for name, width, initial in zip(names.numpy(), widths.numpy(), initials.numpy())
        }

    def export(self, planes: tuple[str, ...]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Keys [n] and, for each plane, [n, width] float32, all of one moment."""
        known = self.planes()
        keys, values = _native.ops.sok_table_export(
            self.resource_handle,
            num_planes=len(planes),
            planes=list(planes),
            widths=[known[plane][0] for plane in planes],
        )
        return keys, list(values)

    def write(self, keys: Any, planes: dict[str, Any], initials: dict[str, float], replace: bool):
        """Overwrites or inserts rows. See the op's documentation."""
        return _native.ops.sok_table_import(
            self.resource_handle,
            tf.convert_to_tensor(keys, tf.int64),
            [tf.cast(values, tf.float32) for values in planes.values()],
            planes=list(planes),
            initials=[initials.get(plane, 0.0) for plane in planes],
            replace=replace,
        )

    def erase(self, keys: Any) -> tf.Tensor:
        return _native.ops.sok_table_erase(
            self.resource_handle, tf.convert_to_tensor(keys, tf.int64)
        )

    def stats(self) -> dict[str, int]:
        names, values = _native.ops.sok_table_stats(self.resource_handle)
        return {name.decode(): int(value) for name, value in zip(names.numpy(), values.numpy())}

    # Everything a table holds, as a fixed set of arrays: for checkpoints of any kind.

    def state(self) -> dict[str, tf.Tensor]:
        """What this rank keeps: the arrays of `table_state.PARTS`."""
        planes = self.planes()
        states = [plane for plane in planes if plane != "values"]
        keys, (values, *state_values) = self.export(("values", *states))
        empty = tf.zeros(tf.concat([tf.shape(keys)[:1], [0]], 0))
        state = {
            "origin": tf.constant(self.origin.encode(), tf.string),
            "seed": _native.ops.sok_table_seed(self.resource_handle),
            "keys": keys,
            "values": values,
            "states": tf.concat([empty, *state_values], axis=1),
            "state_names": tf.constant(states, tf.string, shape=[len(states)]),
            "state_widths": tf.constant([planes[s][0] for s in states], tf.int64, [len(states)]),
            "state_initials": tf.constant([planes[s][1] for s in states], tf.float32, [len(states)]),
        }
        return state if tf.executing_eagerly() else {k: _any_shape(v) for k, v in state.items()}

    def check_state(self, state: dict[str, Any], part: str | None = None) -> table_state.State:
        """What `set_state` refuses, it refuses here.

        Args:
            state: what `state()` gave.
            part: whose part one is of that does not say so; None: this rank's.

        Raises:
            ValueError: it is damaged, or of another kind of table.
        """
        part = self.origin.part if part is None else part
        return table_state.check(state, self.origin, self.name, self.planes(), part)

    def set_state(self, state: dict[str, Any], part: str | None = None):
        """Replaces what this rank keeps by what `state()` gave, perhaps in another process: its own part, or its
        part of a whole table. Arguments and errors as for `check_state`."""
        if not tf.executing_eagerly():
            return self._set_state_in_graph(state)
        return self.set_checked(self.check_state(state, part))

    def set_checked(self, checked: table_state.State):
        """`set_state`, of what `check_state` gave."""
        planes = checked.planes()
        keys, *kept = self._kept_of(checked, *planes.values())
        self.write(keys, dict(zip(planes, kept)), checked.initials, replace=True)
        return _native.ops.sok_table_set_seed(self.resource_handle, tf.constant(checked.seed, tf.int64))

    def count_kept(self, checked: table_state.State) -> int:
        """How many rows `set_checked` will write."""
        return int(self._kept_of(checked)[0].shape[0])

    def _kept_of(self, checked: table_state.State, *rows: Any) -> tuple:
        """The keys of the rows that this rank keeps, as it knows them, and their part of each of `rows`."""
        keys = tf.constant(checked.keys)
        if checked.is_whole and self.kept_here is not None:
            return self.kept_here(keys, *rows)
        return keys, *rows

    def _set_state_in_graph(self, state: dict[str, tf.Tensor]):
        with tf.control_dependencies(table_state.require(state, self.origin, self.name)):
            seed = tf.reshape(state["seed"], [])
            written = self.write(state["keys"], {"values": state["values"]}, {}, replace=True)
        with tf.control_dependencies([written]):
            return _native.ops.sok_table_set_seed(self.resource_handle, seed)

    # Files hold whole tables.

    def whole_state(self) -> dict[str, tf.Tensor]:
        """`state()`, for a file.

        Raises:
            ValueError: other ranks keep rows of the table.
        """
        if self.kept_here is not None:
            raise ValueError(
                f"the table {self.name!r} is in parts on several ranks, and what is saved here would hold "
                "one part only. Call sok.dump(path, variables, optimizer) on every rank, or sok.save_model(model, path)"
            )
        return self.state()

    def load_state(self, state: dict[str, Any]):
        """Replaces the table by this rank's part of what `whole_state()` gave on one rank."""
        return self.set_state(state, part="")

    # TrackableResource

    def _create_resource(self):
        attributes = dataclasses.asdict(self.attributes)
        attributes["default_vector"] = list(attributes["default_vector"])
        attributes["row_type"] = tf.as_dtype(attributes["row_type"])
        handle = _native.ops.sok_table(shared_name=self._shared_name, **attributes)
        # Gradients of branches and loops ask what a resource holds, to make zeros of it: no rows.
        holds = handle_data_util.create_handle_data(
            tf.TensorShape([0, self.attributes.dimension]), tf.float32
        )
        handle_data_util.set_handle_data(handle, holds)
        return handle

    def _destroy_resource(self):
        if sys.is_finalizing():
            return  # TensorFlow is going too, and would print that it cannot run the op
        tf.raw_ops.DestroyResourceOp(resource=self.resource_handle, ignore_lookup_error=True)

    def _serialize_to_tensors(self):
        # A checkpoint that is read asks for names and types, by the method that gives what is written.
        held = _being_restored()
        if held is None:
            return {f"-{name}": tensor for name, tensor in self.whole_state().items()}
        return {
            f"-{name}": tf.zeros([0], dtype)
            for name, dtype in table_state.PARTS.items()
            if f"-{name}" in held or name not in table_state.OPTIONAL
        }

    def _restore_from_tensors(self, restored_tensors):
        return self.load_state({name[1:]: value for name, value in restored_tensors.items()})

    def _copy_trackable_to_cpu(self, object_map):
        # An asynchronous checkpoint writes this copy while training goes on.
        if self not in object_map:
            object_map[self] = TableValue(self.attributes, self.trainable, "/CPU:0", self.origin)
        object_map[self].set_state(self.whole_state())

    def _export_to_saved_model_graph(self, object_map, tensor_map, options=None, **kwargs):
        # Keras passes options by position, which the base class does not take.
        return super()._export_to_saved_model_graph(
            object_map, tensor_map, options=options, **kwargs
        )

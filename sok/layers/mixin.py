# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Saving of layers that hold tables."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sok.checkpoint.room import Room
from sok.layers import beside
from sok.table_state import OPTIONAL, PARTS, State
from sok.variables import TableVariable


class TableMixin:
    """For layers and models that hold tables: `.keras` files and `save_weights` keep them.

    Put it before the Keras class. Checkpoints and SavedModels work without it for tables that are
    attributes, and need it for those in lists and dicts.

    >>> class Towers(sok.layers.TableMixin, keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.users = sok.DynamicVariable(16, name="users")
    """

    # What Keras's layers have.
    name: str
    _trainable_variables: list[Any]
    _non_trainable_variables: list[Any]

    def _labelled_tables(self) -> dict[str, TableVariable]:
        """The layer's own tables under the names that files know them by: here, their order."""
        tables = [v for v in self._own_variables() if isinstance(v, TableVariable)]
        return {str(i): table for i, table in enumerate(tables)}

    def _own_variables(self) -> list[Any]:
        return [*self._trainable_variables, *self._non_trainable_variables]

    def _other_variables(self) -> dict[str, Any]:
        others = [v for v in self._own_variables() if not isinstance(v, TableVariable)]
        return {str(i): variable for i, variable in enumerate(others)}

    # Checkpoints: Keras leads TensorFlow to direct attributes only, not into lists and dicts.

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        children = super()._trackable_children(save_type, **kwargs)
        known = {id(child) for child in children.values()}
        return {
            **children,
            **{f"table.{label}": table for label, table in self._labelled_tables().items() if id(table) not in known},
        }

    def _lookup_dependency(self, name, *args, **kwargs):
        label = name.removeprefix("table.")
        if label != name and label in self._labelled_tables():
            return self._labelled_tables()[label]
        return super()._lookup_dependency(name, *args, **kwargs)

    # Files of Keras's own.

    def save_own_variables(self, store):
        for name, variable in self._other_variables().items():
            store[name] = variable
        elsewhere = beside.current()
        for label, table in self._labelled_tables().items():
            if elsewhere is not None:
                store[_entry(label, _BESIDE)] = np.asarray([elsewhere.token])
                store[_entry(label, _NAME)] = _to_bytes([elsewhere.name_of(table).encode()])
                continue
            for part, value in table.table.whole_state().items():
                value = np.asarray(value)
                # Keras's store takes numbers only.
                store[_entry(label, part)] = _to_bytes(value) if PARTS[part] == tf.string else value

    def load_own_variables(self, store):
        # All is read and checked, and there is room for all, before anything is written.
        self._check_nothing_is_left(store)
        tables = {
            label: (table, _read(store, label, table, self.name))
            for label, table in self._labelled_tables().items()
            if not self._is_beside(store, label, table)
        }
        others = {
            name: (variable, _read_variable(store, name, variable, self.name))
            for name, variable in self._other_variables().items()
        }
        with Room() as room:
            for table, state in tables.values():
                room.for_rows(table.table, table.table.count_kept(state))
                planes = {name: (width, state.initials[name]) for name, width in state.widths.items()}
                room.for_planes(table.table, planes)
            for table, state in tables.values():
                table.table.set_checked(state)
        for variable, value in others.values():
            variable.assign(value)

    def _is_beside(self, store: Any, label: str, table: TableVariable) -> bool:
        """Whether the file names a dump for this table."""
        entry = _entry(label, _BESIDE)
        if entry not in set(store.keys()):
            return False
        elsewhere = beside.current()
        if elsewhere is None:
            raise ValueError(
                f"layer {self.name!r}: the file does not hold its table {table.name!r}, which lies beside it: load the "
                "model with sok.load_model(filepath)"
            )
        tokens, names = np.asarray(store[entry]), np.asarray(_get(store, _entry(label, _NAME), self.name))
        if tokens.shape != (1,) or tokens.dtype.kind not in "iu" or names.dtype != np.uint8:
            raise ValueError(f"layer {self.name!r}: the file is damaged: it does not say where {table.name!r} lies")
        elsewhere.token = int(tokens[0])
        elsewhere.tables[names.tobytes().decode(errors="replace")] = table
        return True

    def _check_nothing_is_left(self, store: Any) -> None:
        """Refuses the file of a layer with more tables or variables, which would be lost in silence."""
        parts = (*PARTS, _BESIDE, _NAME)
        known = {_entry(label, part) for label in self._labelled_tables() for part in parts}
        extra = sorted(set(store.keys()) - known - set(self._other_variables()))
        if extra:
            tables = [table.name for table in self._labelled_tables().values()]
            raise ValueError(
                f"layer {self.name!r}: the file also holds {extra}, which this layer has not. It has the tables "
                f"{tables} and {len(self._other_variables())} other variables. Construct it as the one that was saved"
            )


_BESIDE, _NAME = "beside", "name_beside"


def _entry(label: str, part: str) -> str:
    return f"table.{label}.{part}"


def _to_bytes(names: Any) -> np.ndarray:
    return np.frombuffer(b"\n".join(names), np.uint8)


def _from_bytes(array: np.ndarray) -> np.ndarray:
    names = array.astype(np.uint8).tobytes().split(b"\n") if array.size else []
    return np.asarray(names, object)


def _get(store: Any, name: str, layer: str) -> Any:
    if name not in set(store.keys()):
        raise ValueError(f"layer {layer!r}: the file holds no {name!r}; it holds {sorted(store.keys())}")
    return store[name]


def _read_variable(store: Any, name: str, variable: Any, layer: str) -> Any:
    value = _get(store, name, layer)
    if tuple(value.shape) != tuple(variable.shape):
        raise ValueError(
            f"layer {layer!r}: the variable {variable.path!r} has the shape {list(variable.shape)}, in the file "
            f"{list(value.shape)}"
        )
    try:
        return keras.ops.convert_to_tensor(value, variable.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"layer {layer!r}: the variable {variable.path!r} is {variable.dtype}, what the file holds cannot be: "
            f"{error}"
        ) from error


def _read(store: Any, label: str, table: TableVariable, layer: str) -> State:
    held = set(store.keys())
    parts = [part for part in PARTS if part not in OPTIONAL or _entry(label, part) in held]
    state = {part: np.asarray(_get(store, _entry(label, part), layer)) for part in parts}
    try:
        state.update({part: _from_bytes(state[part]) for part in parts if PARTS[part] == tf.string})
        checked = table.table.check_state(state, part="")
        checked.check_distinct(table.name)
    except ValueError as error:
        raise ValueError(f"layer {layer!r}: {error}") from error
    return checked

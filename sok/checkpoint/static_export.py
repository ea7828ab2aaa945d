# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A SavedModel that needs no library: every table an ordinary variable behind ordinary ops."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sok import comm, pipeline
from sok.checkpoint.storage import path_name
from sok.lookup import filter_variables
from sok.stages.lookup import FeatureRead
from sok.table_variable import TableVariable


class _PlainTable(tf.Module):
    """A table's rows as they are now.

    A hash table has its keys in order beside them, to be found by bisection.

    Raises:
        ValueError: what it gives for an unknown id depends on the id.
    """

    def __init__(self, variable: TableVariable):
        super().__init__()
        self._attributes = variable.attributes
        self._total_rows = variable.total_rows
        default = self._default(variable)
        keys, (values,) = variable.table.export(("values",))
        order = np.argsort(np.asarray(keys), kind="stable")
        values = np.asarray(values)[order]
        # The row after the last is the one of unknown ids.
        values = np.concatenate([values, default[None]]).astype(variable.table.dtype.as_numpy_dtype)
        # On the host, and never a constant of the graph, which may not have more than 2 GB.
        with tf.device("CPU:0"):
            self.values = tf.Variable(values, trainable=False, name=f"{variable.name}/values")
            self.keys = None
            if not variable.is_static:
                # One more, so that every id is found before the end of the list.
                ordered = np.append(np.asarray(keys)[order], np.iinfo(np.int64).max)
                self.keys = tf.Variable(ordered, trainable=False, name=f"{variable.name}/keys")

    @staticmethod
    def _default(variable: TableVariable) -> np.ndarray:
        attributes = variable.attributes
        width = attributes.dimension
        if attributes.default_row == "vector":
            return np.asarray(attributes.default_vector, np.float32)
        if variable.is_static or attributes.default_row == "zeros":
            return np.zeros(width, np.float32)
        if attributes.initializer == "constant":
            return np.full(width, attributes.initializer_a, np.float32)
        raise ValueError(
            f"the table {variable.name!r} gives an unknown id its initial value, which depends on the id; plain "
            'TensorFlow has no such thing. Construct it with default="zeros", a vector, or a constant initializer'
        )

    def read(self, ids: tf.Tensor) -> tf.Tensor:
        """Rows of int64 ids of any shape, in float32."""
        flat = tf.reshape(ids, [-1])
        if self.keys is None:
            places = self._static_places(flat)
        else:
            found = tf.searchsorted(self.keys, flat, out_type=tf.int64)
            last = tf.size(self.keys, out_type=tf.int64) - 1
            known = tf.equal(tf.gather(self.keys, found), flat) & (found < last)
            places = tf.where(known, found, last)
        rows = tf.cast(tf.gather(self.values, places), tf.float32)
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self._attributes.dimension]], 0))

    def _static_places(self, flat: tf.Tensor) -> tf.Tensor:
        last = tf.constant(self._total_rows - 1, tf.int64)
        if self._attributes.out_of_range == "clip":
            return tf.clip_by_value(flat, 0, last)
        inside = (flat >= 0) & (flat <= last)
        if self._attributes.out_of_range == "error":
            check = tf.debugging.Assert(tf.reduce_all(inside), [self._out_of_range(flat, inside)])
            with tf.control_dependencies([check] if check is not None else []):
                return tf.identity(flat)
        return tf.where(inside, flat, last + 1)

    def _out_of_range(self, flat: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
        """What the library says of the first id that is not inside."""
        outside = tf.where(tf.logical_not(inside))[:1, 0]
        return tf.strings.join(
            [
                f"table {self._attributes.name_of_table}: id ",  # quotes would come out with backslashes
                tf.strings.reduce_join(tf.strings.as_string(tf.gather(flat, outside))),
                " at position ",
                tf.strings.reduce_join(tf.strings.as_string(outside)),
                f" is out of range: the table has {self._total_rows} rows",
            ]
        )


def _combine(rows: tf.Tensor, read: FeatureRead) -> tf.Tensor:
    """Bags of rows as the library combines them."""
    record = read.record
    weights = record.weights
    weights = tf.ones(tf.shape(record.ids)) if weights is None else weights
    if record.is_ragged:
        bags = tf.ragged.row_splits_to_segment_ids(record.row_splits)
        count = tf.size(record.row_splits, out_type=tf.int64) - 1

        def total(values):
            return tf.math.unsorted_segment_sum(values, bags, count)
    else:

        def total(values):
            return tf.reduce_sum(values, axis=1)

    result = total(rows * weights[..., tf.newaxis])
    if read.combiner == "mean":
        result = tf.math.divide_no_nan(result, total(weights)[:, tf.newaxis])
    elif read.combiner == "sqrtn":
        result = tf.math.divide_no_nan(result, tf.sqrt(total(weights * weights))[:, tf.newaxis])
    return tf.cast(result, read.dtype)


def _reader(tables: dict[int, _PlainTable]) -> Callable[..., list[tf.Tensor]]:
    def lookup(variables: list[TableVariable], reads: list[FeatureRead], max_norms: list[float]) -> list[tf.Tensor]:
        outputs = []
        for read in reads:
            rows = tables[id(variables[read.table])].read(read.record.ids)
            if max_norms[read.table] > 0:
                rows = tf.clip_by_norm(rows, max_norms[read.table], axes=[-1])
            outputs.append(_combine(rows, read))
        return outputs

    return lookup


class _Served(tf.Module):
    """What is saved: plain tables, the model's ordinary variables, and one function."""

    def __init__(self, model: keras.Model):
        super().__init__()
        tables, others = filter_variables(model.variables)
        plain = {id(table): _PlainTable(table) for table in tables}
        self.tables = list(plain.values())
        self.others = [getattr(variable, "_value", variable) for variable in others]
        self._model, self._reader = _Untracked(model), _reader(plain)
        self.serve: Any = None

    def read(self, inputs):
        with pipeline.reading_through(self._reader):
            return self._model.value(inputs, training=False)


class _Untracked:
    """A reference that is not saved."""

    def __init__(self, value: Any):
        self.value = value


def _signature(model: keras.Model) -> Any:
    def spec(tensor):
        shape = (None, *tensor.shape[1:])
        return tf.TensorSpec(shape, tensor.dtype, name=tensor.name.replace("/", "_").replace(":", "_"))

    if not getattr(model, "inputs", None):
        raise ValueError(
            "the model's inputs are unknown: call it on a batch first, or pass input_signature, a tf.TensorSpec or a "
            "structure of them"
        )
    functional = getattr(model, "_functional", None) or model  # what a Sequential is inside
    structure = getattr(functional, "_inputs_struct", model.inputs)
    if isinstance(structure, list) and len(structure) == 1:
        structure = structure[0]
    return keras.tree.map_structure(spec, structure)


def export_static(model, path, *, input_signature=None) -> None:
    """Saves a Keras model as a SavedModel that loads where this library is not installed.

    Each table becomes an ordinary variable with the rows that it has now. Ids that it knows give the outputs
    of the model; others give the table's default, which must not depend on the id.

    Args:
        model: a built Keras model.
        path: the SavedModel's folder; it is called as `tf.saved_model.load(path).serve(inputs)`, and, with one
            input, through its signature "serving_default".
        input_signature: a `tf.TensorSpec`, or a structure of them, for a model whose inputs Keras does not
            know.

    Raises:
        ValueError: a table's default depends on the id, the tables are spread over several ranks, or the
            inputs are unknown.
        TypeError: `model` is no Keras model, or `path` no path.

    >>> import tempfile
    >>> embedding = sok.layers.DistributedEmbedding(4, default="zeros")
    >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), embedding])
    >>> sok.export_static(model, tempfile.mkdtemp() + "/served")
    """
    if comm.size() > 1:
        raise ValueError(
            "export_static needs whole tables, and these are spread over several ranks: write them with sok.dump, load "
            "them with sok.load in one process, and export there"
        )
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a Keras model, got {model!r:.120}")
    folder = path_name(path)
    served = _Served(model)
    signature = input_signature if input_signature is not None else _signature(model)
    function = tf.function(served.read, input_signature=[signature])
    served.serve = function
    concrete = function.get_concrete_function()
    # A signature takes and gives named tensors.
    is_plain = isinstance(signature, tf.TensorSpec) and isinstance(concrete.structured_outputs, (tf.TensorSpec, dict))
    tf.saved_model.save(served, folder, signatures=concrete if is_plain else None)

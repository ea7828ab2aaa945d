# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding layers of one table."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sok import pipeline
from sok.lookup import check_combiner
from sok.variables import DynamicVariable, TableVariable, Variable


def _text_to_bytes(names: np.ndarray) -> np.ndarray:
    return np.frombuffer(b"\n".join(names), np.uint8)


def _bytes_to_text(array: np.ndarray) -> tf.Tensor:
    names = array.astype(np.uint8).tobytes().split(b"\n") if array.size else []
    return tf.constant(names, tf.string, shape=[len(names)])


@keras.saving.register_keras_serializable("sok")
class DistributedEmbedding(keras.layers.Layer):
    """Embeds ids through a table that is spread over all ranks.

    Without `vocabulary_size` the table is a hash table: any id gets a row when training first sees
    it. With it, the table is an array and ids are its row numbers.

    Args:
        dimension: width of a row.
        combiner: how the rows of an example become one vector: "mean" (default), "sum", "sqrtn"; or
            None: one vector an id.
        initializer: what new rows hold; see `sok.initializers.resolve`.
        seed: of the initial values; None draws one.
        vocabulary_size: rows of a static table.
        mask_value: dense ids equal to it are left out, for instance padding.
        max_norm: rows longer than this are scaled down to it as they are read.
        key_type: dtype of ids, int64 by default.
        default: what an unknown id reads outside of training: "initial", "zeros" or a vector.
        capacity, max_capacity: of a hash table; see `sok.DynamicVariable`.
        out_of_range: of a static table; see `sok.Variable`.
        mode: placement over ranks.

    Input: int ids: dense [batch] or [batch, hotness], ragged or sparse; or a tuple (ids, weights).
    Output: [batch, dimension] in the layer's compute dtype; uncombined [batch, hotness, dimension].
    Call argument `training`: True inserts unknown ids; False and None read their default.

    >>> layer = sok.layers.DistributedEmbedding(2, combiner="sum", initializer="ones")
    >>> layer(tf.constant([[7, 7, 8]], tf.int64)).numpy()
    array([[3., 3.]], dtype=float32)
    """

    def __init__(
        self,
        dimension,
        combiner="mean",
        *,
        initializer="random",
        seed=None,
        vocabulary_size=None,
        mask_value=None,
        max_norm=None,
        key_type=None,
        default=None,
        capacity=None,
        max_capacity=None,
        out_of_range="error",
        mode=None,
        embeddings_regularizer=None,
        embeddings_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value in (
            ("embeddings_regularizer", embeddings_regularizer),
            ("embeddings_constraint", embeddings_constraint),
        ):
            if value is not None:
                raise ValueError(
                    f"{name} is not supported: it would need the whole table as a dense array. "
                    "Use weight_decay in the optimizer, max_norm, or activity_regularizer"
                )
        self.supports_jit = False
        self.combiner = check_combiner(combiner)
        self.mask_value = mask_value
        self.max_norm = max_norm
        self._config = {
            "dimension": dimension,
            "initializer": initializer,
            "seed": seed,
            "vocabulary_size": vocabulary_size,
            "key_type": key_type,
            "default": default,
            "capacity": capacity,
            "max_capacity": max_capacity,
            "out_of_range": out_of_range,
            "mode": mode,
        }
        self.table = self._create_table()
        # The seed that was drawn belongs to the configuration: a table loaded into a new layer keeps
        # giving new ids the values that this one would have given.
        self._config["seed"] = self.table.attributes.seed

    def _create_table(self) -> TableVariable:
        c = self._config
        common = {
            "initializer": c["initializer"],
            "seed": c["seed"],
            "key_type": c["key_type"],
            "dtype": self.dtype_policy.variable_dtype,
            "name": f"{self.name}_table",
            "mode": c["mode"],
        }
        if c["vocabulary_size"] is not None:
            return Variable(
                shape=(c["vocabulary_size"], c["dimension"]), out_of_range=c["out_of_range"], **common
            )
        return DynamicVariable(
            c["dimension"],
            default=c["default"],
            capacity=c["capacity"],
            max_capacity=c["max_capacity"],
            **common,
        )

    @property
    def dimension(self) -> int:
        return self.table.dimension

    def build(self, input_shape=None):
        self.built = True

    def call(self, inputs, training=None):
        ids, weights = inputs if isinstance(inputs, (tuple, list)) else (inputs, None)
        feature = pipeline.Feature(
            self.table,
            ids,
            weights,
            self.combiner,
            self.name,
            self.mask_value,
            self.compute_dtype,
        )
        norms = {id(self.table): self.max_norm} if self.max_norm else None
        return pipeline.run([feature], training=bool(training), max_norms=norms)[0]

    def compute_output_shape(self, input_shape):
        if input_shape and isinstance(input_shape[0], (tuple, list)):
            input_shape = input_shape[0]
        kept = tuple(input_shape) if self.combiner is None else tuple(input_shape[:1])
        return (*kept, self.dimension)

    def compute_output_spec(self, inputs, training=None):
        ids = inputs[0] if isinstance(inputs, (tuple, list)) else inputs
        if "int" not in keras.backend.standardize_dtype(ids.dtype):
            raise TypeError(
                f"layer {self.name!r}: ids have dtype {ids.dtype}; declare the input as "
                'keras.Input(..., dtype="int64") (the default, float32, changes ids above 16777216)'
            )
        if len(ids.shape) not in (1, 2, 3):
            raise ValueError(
                f"layer {self.name!r}: ids must have the shape [batch] or [batch, hotness], got "
                f"{tuple(ids.shape)}"
            )
        return keras.KerasTensor(self.compute_output_shape(ids.shape), dtype=self.compute_dtype)

    # Saving: the table with everything in it, under its keys.

    def save_own_variables(self, store):
        for name, value in self.table.table.state().items():
            value = np.asarray(value)
            # Keras's store takes numbers only.
            store[name] = _text_to_bytes(value) if value.dtype == object else value

    def load_own_variables(self, store):
        names = list(store.keys())
        if "keys" not in names:
            raise ValueError(
                f"layer {self.name!r}: the file holds no table for it (it has {sorted(names)})"
            )
        state: dict[str, Any] = {name: np.asarray(store[name]) for name in names}
        width = state["values"].shape[1]
        if width != self.dimension:
            raise ValueError(
                f"layer {self.name!r} has dimension {self.dimension}, the file's table {width}"
            )
        state["state_names"] = _bytes_to_text(state["state_names"])
        self.table.table.set_state(state)

    def get_config(self):
        initializer = self._config["initializer"]
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = keras.saving.serialize_keras_object(initializer)
        default = self._config["default"]
        if default is not None and not isinstance(default, str):
            default = [float(x) for x in np.asarray(default)]
        return {
            **super().get_config(),
            **self._config,
            "initializer": initializer,
            "default": default,
            "combiner": self.combiner,
            "mask_value": self.mask_value,
            "max_norm": self.max_norm,
        }

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""DLRM: dot products between every two embedding vectors, and a perceptron over them.

Naumov et al., Deep Learning Recommendation Model for Personalization and Recommendation Systems,
2019 (arXiv:1906.00091).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from sok.layers import DistributedEmbedding, DotInteraction


def distributed_embeddings(
    features: Iterable[str], dimension: int, *, seed: int | None = None, **options: Any
) -> dict[str, DistributedEmbedding]:
    """One hash table for each feature: what `DLRM` takes.

    Args:
        features: names of features, each the name of its layer too.
        dimension: width of every table.
        seed: table number i gets the seed `seed + i`, so that one id in two tables has two vectors.
        options: further arguments of `DistributedEmbedding`.
    """
    return {
        name: DistributedEmbedding(
            dimension,
            combiner="mean",
            name=name,
            seed=None if seed is None else seed + number,
            **options,
        )
        for number, name in enumerate(features)
    }


@keras.saving.register_keras_serializable("sok")
class DLRM(keras.Model):
    """The probability of a click, from ids and dense features.

    The top perceptron sees the dot product of every two vectors, and beside these the vector of the
    dense features (as in the paper) or, in a model that has none, the embedding vectors themselves:
    otherwise nothing would tell it about one feature alone.

    Args:
        embeddings: feature name -> layer from ids to float [batch, dimension]; all of one width.
        dense_features: names of float inputs, each [batch] or [batch, k].
        bottom_units: hidden widths of the perceptron over the dense features.
        top_units: hidden widths of the perceptron over the dot products.
        dropout: part of each hidden layer of the top perceptron that a training step leaves out.

    Call arguments:
        inputs: dict with an entry for each embedding (int64 [batch], [batch, hotness] or ragged
            [batch, None]) and for each dense feature. Further entries are ignored.

    Returns:
        float32 [batch, 1].

    Example:
        model = DLRM(distributed_embeddings(["user", "item"], dimension=16))
        model.compile(sok.OptimizerWrapper(keras.optimizers.Adagrad(0.05)), "binary_crossentropy")
        model.fit({"user": users, "item": items}, clicked)
    """

    def __init__(
        self,
        embeddings: Mapping[str, keras.layers.Layer],
        *,
        dense_features: Sequence[str] = (),
        bottom_units: Sequence[int] = (64,),
        top_units: Sequence[int] = (64, 32),
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        vectors = len(embeddings) + bool(dense_features)
        if vectors < 2:
            raise ValueError(
                f"DLRM needs at least two features to combine, got {[*embeddings, *dense_features]}"
            )
        self.embeddings = dict(embeddings)
        self.dense_features = tuple(dense_features)
        self.bottom_units = tuple(bottom_units)
        self.top_units = tuple(top_units)
        self.dropout = dropout
        # With dense features their vector stands beside the products, as in the paper; without, all do.
        self._interaction = DotInteraction(1 if self.dense_features else vectors)
        self._bottom: keras.Sequential | None = None
        layers: list[keras.layers.Layer] = []
        for units in self.top_units:
            layers += [keras.layers.Dense(units, activation="relu"), keras.layers.Dropout(dropout)]
        # Probabilities stay in float32 under mixed precision: a loss takes their logarithm.
        layers.append(keras.layers.Dense(1, activation="sigmoid", dtype="float32"))
        self._top = keras.Sequential(layers, name="top")

    def build(self, input_shape: Mapping[str, Sequence[int | None]]) -> None:
        """Creates every weight, so that a loaded model has them before its first batch."""
        batch, width = None, 0
        vectors = len(self.embeddings) + bool(self.dense_features)
        for name, layer in self.embeddings.items():
            if name not in input_shape:
                raise ValueError(
                    f"DLRM has an embedding {name!r}, but its inputs are {sorted(input_shape)}"
                )
            if not layer.built:
                layer.build(tuple(input_shape[name]))
            batch, width = layer.compute_output_shape(tuple(input_shape[name]))
        if self.dense_features:
            shapes: list[tuple[Any, ...]] = [tuple(input_shape[name]) for name in self.dense_features]
            hidden = [keras.layers.Dense(units, activation="relu") for units in self.bottom_units]
            self._bottom = keras.Sequential(
                [*hidden, keras.layers.Dense(width, activation="relu")], name="bottom"
            )
            self._bottom.build((batch, sum(shape[1] if len(shape) > 1 else 1 for shape in shapes)))
        self._top.build(self._interaction.compute_output_shape([(batch, width)] * vectors))
        self.built = True

    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> keras.KerasTensor:
        # Keras hands `training` on to the layers that know it; Embedding, for one, would refuse it.
        vectors = [layer(inputs[name]) for name, layer in self.embeddings.items()]
        if self._bottom is not None:
            columns = [inputs[name] for name in self.dense_features]
            columns = [
                keras.ops.expand_dims(column, 1) if len(column.shape) == 1 else column
                for column in columns
            ]
            vectors = [self._bottom(keras.ops.concatenate(columns, axis=1)), *vectors]
        return self._top(self._interaction(vectors))

    def compute_output_shape(
        self, input_shape: Mapping[str, Sequence[int | None]]
    ) -> tuple[int | None, int]:
        return next(iter(input_shape.values()))[0], 1

    def get_config(self) -> dict[str, Any]:
        layers = {
            name: keras.saving.serialize_keras_object(layer)
            for name, layer in self.embeddings.items()
        }
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "embeddings": layers,
            "dense_features": list(self.dense_features),
            "bottom_units": list(self.bottom_units),
            "top_units": list(self.top_units),
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> DLRM:
        layers = {
            name: keras.saving.deserialize_keras_object(layer, custom_objects)
            for name, layer in config["embeddings"].items()
        }
        return cls(**{**config, "embeddings": layers})

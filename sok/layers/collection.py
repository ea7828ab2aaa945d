# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Many features and tables in one layer, and in one pass."""

import dataclasses

import keras

from sok import checks, pipeline
from sok.config import FeatureConfig, TableConfig
from sok.layers import specs
from sok.layers.mixin import TableMixin
from sok.variables import TableVariable


@keras.saving.register_keras_serializable("sok")
class EmbeddingCollection(TableMixin, keras.layers.Layer):
    """Embeds many features through their tables, all in one pass whatever their number.

    On several ranks that is one exchange of ids and one of rows, where a layer a table would need
    two each.

    Args:
        features: `sok.FeatureConfig`s. Features whose tables are equal share one; their dimensions,
            kinds of ids and combiners may differ.
        exchange: what travels between ranks; see `sok.lookup_sparse`.

    Input: a dict from each feature's name to its ids, or to a pair (ids, weights).
    Output: a dict from each feature's name to [batch, dimension] (uncombined: one vector an id), in
    the layer's compute dtype.
    Call argument `training`: as for `DistributedEmbedding`.

    Raises:
        ValueError: names of features repeat, or different tables have one name.

    >>> items = sok.TableConfig("items", 4, initializer="ones")
    >>> layer = sok.EmbeddingCollection(
    ...     [sok.FeatureConfig("bought", items), sok.FeatureConfig("seen", items, combiner="sum")]
    ... )
    >>> out = layer({"bought": tf.constant([[1]]), "seen": tf.constant([[1, 2, 3]])})
    >>> out["seen"].numpy()
    array([[3., 3., 3., 3.]], dtype=float32)
    """

    def __init__(self, features, exchange="auto", **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.exchange = checks.one_of("exchange", exchange, checks.EXCHANGES)
        self.supports_jit = False
        features = list(features)
        for feature in features:
            if not isinstance(feature, FeatureConfig):
                raise TypeError(f"features must be sok.FeatureConfigs, got {feature!r}")
        if not features:
            raise ValueError("features must name at least one feature")
        names = [feature.name for feature in features]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"features must have different names; these repeat: {repeated}")
        self._features = features
        self._tables: dict[str, TableVariable] = {
            name: config.create(self.trainable, self.dtype_policy.variable_dtype)
            for name, config in _different_tables(features).items()
        }

    @property
    def features(self) -> list[FeatureConfig]:
        """The configuration, with the seeds that were drawn: a copy of this layer gives new ids the
        values that this one would."""
        seeds = {name: table.table.seed for name, table in self._tables.items()}
        return [
            dataclasses.replace(f, table=dataclasses.replace(f.table, seed=seeds[f.table.name])) for f in self._features
        ]

    @property
    def tables(self) -> dict[str, TableVariable]:
        """The tables by name."""
        return dict(self._tables)

    def _labelled_tables(self):
        return self.tables

    def build(self, input_shape=None):
        self.built = True

    def _check_names(self, inputs):
        expected = {feature.name for feature in self._features}
        found = set(inputs) if isinstance(inputs, dict) else None
        if found != expected:
            raise ValueError(
                f"layer {self.name!r} takes a dict with the features {sorted(expected)}, got "
                + (str(type(inputs).__name__) if found is None else f"{sorted(map(str, found))}")
            )

    def call(self, inputs, training=None):
        self._check_names(inputs)
        features, norms = [], {}
        for config in self._features:
            ids, weights = specs.split(inputs[config.name])
            table = self._tables[config.table.name]
            norms[id(table)] = checks.max_norm(config.table.max_norm)
            features.append(
                pipeline.Feature(
                    table,
                    ids,
                    weights,
                    config.combiner,
                    config.name,
                    config.mask_value,
                    self.compute_dtype,
                )
            )
        inserting = bool(training) and self.trainable
        outputs = pipeline.run(features, training=inserting, max_norms=norms, exchange=self.exchange)
        return {config.name: output for config, output in zip(self._features, outputs)}

    def compute_output_shape(self, input_shape):
        return {
            config.name: specs.output_shape(input_shape[config.name], config.combiner, config.table.dimension)
            for config in self._features
        }

    def compute_output_spec(self, inputs, training=None):
        self._check_names(inputs)
        return {
            config.name: specs.output_spec(
                inputs[config.name],
                config.combiner,
                config.table.dimension,
                self.compute_dtype,
                f"layer {self.name!r}, feature {config.name!r}",
            )
            for config in self._features
        }

    def get_config(self):
        features = [keras.saving.serialize_keras_object(feature) for feature in self.features]
        return {**super().get_config(), "features": features, "exchange": self.exchange}

    @classmethod
    def from_config(cls, config):
        features = [keras.saving.deserialize_keras_object(f) for f in config["features"]]
        return cls(**{**config, "features": features})


def _different_tables(features: list[FeatureConfig]) -> dict[str, TableConfig]:
    tables: dict[str, TableConfig] = {}
    for feature in features:
        known = tables.setdefault(feature.table.name, feature.table)
        # Configurations, not objects: initializers compare by identity.
        if known is not feature.table and known.get_config() != feature.table.get_config():
            raise ValueError(
                f"feature {feature.name!r} has another table of the name {feature.table.name!r}: "
                f"{feature.table} and {known}"
            )
    return tables

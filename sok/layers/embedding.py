# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding layers of one table."""

import dataclasses
from typing import Any

import keras

from sok import checks, pipeline
from sok.config import TableConfig
from sok.layers import specs
from sok.layers.mixin import TableMixin


def _refuse(name: str, value: Any) -> None:
    if value is not None:
        raise ValueError(
            f"{name} is not supported: it would need the whole table as a dense array. Use "
            "weight_decay in the optimizer, max_norm, or activity_regularizer"
        )


@keras.saving.register_keras_serializable("sok")
class DistributedEmbedding(TableMixin, keras.layers.Layer):
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
        exchange: what travels between ranks; see `sok.lookup_sparse`.
        max_norm, key_type, default, capacity, max_capacity, out_of_range, var_type,
            max_hbm_for_vectors, mode: see `sok.TableConfig`.
        embeddings_regularizer, embeddings_constraint: not supported; must be None.

    Input: int ids: dense [batch] or [batch, hotness], ragged or sparse; or a tuple (ids, weights).
    Output: [batch, dimension] in the layer's compute dtype; uncombined: dense ids give
    [batch, hotness, dimension], others a ragged tensor.
    Call argument `training`: True inserts unknown ids; False and None read their default. A frozen
    layer (`trainable=False`) inserts none.

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
        key_type="int64",
        default="initial",
        capacity=None,
        max_capacity=None,
        out_of_range="error",
        var_type="hbm",
        max_hbm_for_vectors=None,
        mode=None,
        exchange="auto",
        embeddings_regularizer=None,
        embeddings_constraint=None,
        **kwargs,
    ):
        _refuse("embeddings_regularizer", embeddings_regularizer)
        _refuse("embeddings_constraint", embeddings_constraint)
        # No automatic cast of the inputs: weights keep their digits under mixed_float16.
        super().__init__(autocast=False, **kwargs)
        self.supports_jit = False
        self.combiner = checks.combiner(combiner)
        self.mask_value = checks.mask_value(mask_value)
        self.exchange = checks.one_of("exchange", exchange, checks.EXCHANGES)
        self.supports_masking = mask_value is not None and combiner is None
        config = TableConfig(
            name=f"{self.name}_table",
            dimension=dimension,
            vocabulary_size=vocabulary_size,
            initializer=initializer,
            seed=seed,
            key_type=key_type,
            max_norm=max_norm,
            var_type=var_type,
            max_hbm_for_vectors=max_hbm_for_vectors,
            mode=mode,
            default=default,
            capacity=capacity,
            max_capacity=max_capacity,
            out_of_range=out_of_range,
        )
        self.table = config.create(self.trainable, self.dtype_policy.variable_dtype)
        self._table_config = config

    @property
    def dimension(self) -> int:
        return self._table_config.dimension

    @property
    def table_config(self) -> TableConfig:
        """The table's configuration, with the seed that was drawn: a copy of this layer gives new
        ids the values that this one would."""
        return dataclasses.replace(self._table_config, seed=self.table.table.seed)

    def build(self, input_shape=None):
        self.built = True

    def call(self, inputs, training=None):
        ids, weights = specs.split(inputs)
        feature = pipeline.Feature(
            self.table,
            ids,
            weights,
            self.combiner,
            self.name,
            self.mask_value,
            self.compute_dtype,
        )
        norms = {id(self.table): checks.max_norm(self._table_config.max_norm)}
        inserting = bool(training) and self.table.trainable
        return pipeline.run([feature], training=inserting, max_norms=norms, exchange=self.exchange)[0]

    def compute_mask(self, inputs, mask=None):
        if not self.supports_masking:
            return None
        ids, _ = specs.split(inputs)
        return keras.ops.not_equal(ids, self.mask_value)

    def compute_output_shape(self, input_shape):
        return specs.output_shape(input_shape, self.combiner, self.dimension)

    def compute_output_spec(self, inputs, training=None):
        return specs.output_spec(inputs, self.combiner, self.dimension, self.compute_dtype, f"layer {self.name!r}")

    def get_config(self):
        table = self.table_config.get_config()
        del table["name"], table["dtype"]  # both follow from the layer's
        return {
            **super().get_config(),
            **table,
            "combiner": self.combiner,
            "mask_value": self.mask_value,
            "exchange": self.exchange,
        }


@keras.saving.register_keras_serializable("sok")
class LocalizedEmbedding(DistributedEmbedding):
    """Embeds ids through a table that one rank keeps as a whole.

    Args:
        dimension, combiner: as for `DistributedEmbedding`, and so are all others.
        rank: who keeps it; None: the rank that has the fewest bytes of localized tables so far.

    Raises:
        ValueError: there is no such rank.

    >>> layer = sok.layers.LocalizedEmbedding(2, "sum", rank=0, initializer="ones")
    >>> layer(tf.constant([[7, 8]])).numpy()
    array([[2., 2.]], dtype=float32)
    """

    def __init__(self, dimension, combiner="mean", *, rank=None, **kwargs):
        self.rank = None if rank is None else checks.whole("rank", rank, 0)
        mode = "localized" if rank is None else f"localized:{rank}"
        super().__init__(dimension, combiner, mode=mode, **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["mode"]
        return {**config, "rank": self.rank}


@keras.saving.register_keras_serializable("sok")
class All2AllDenseEmbedding(DistributedEmbedding):
    """Embeds dense ids, one vector an id: `keras.layers.Embedding` over all ranks.

    Args: as for `DistributedEmbedding`, without a combiner.

    Input: int ids [batch] or [batch, k]. Output: their shape + [dimension].

    >>> layer = sok.layers.All2AllDenseEmbedding(2, initializer="ones", mask_value=0)
    >>> layer(tf.constant([[7, 0]])).numpy()
    array([[[1., 1.],
            [0., 0.]]], dtype=float32)
    """

    def __init__(self, dimension, **kwargs):
        super().__init__(dimension, None, **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["combiner"]
        return config

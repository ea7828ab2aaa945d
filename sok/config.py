# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Configurations of tables and features: frozen, checked when they are made, saved with models."""

import dataclasses
from typing import Any

import keras

from sok import checks, initializers
from sok.variables import DynamicVariable, TableVariable, Variable


def _check_name(what: str, name: Any) -> None:
    # Keras joins names with slashes to paths of weights and of files.
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"a {what}'s name must be a text, not empty and without '/', got {name!r}")


@keras.saving.register_keras_serializable("sok")
@dataclasses.dataclass(frozen=True)
class TableConfig:
    """One table.

    name: in messages, files and summaries; tables of one collection have different names.
    dimension: width of the rows.
    vocabulary_size: rows of a static table, an array whose ids are row numbers; None: a hash table,
        which gives any id a row when training first sees it.
    initializer, seed: what new rows hold; see `sok.initializers.resolve`. Without a seed one is drawn.
    key_type: dtype of ids: int32, int64, uint32 or uint64.
    dtype: of the rows: float32, float16 or bfloat16; None: the layer's.
    max_norm: rows longer than this are scaled down to it as they are read.
    mode: where the rows are; see `sok.DynamicVariable`.

    Of hash tables only:
    var_type: which memory of a GPU they are in; see `sok.DynamicVariable`.
    default: what an unknown id reads outside of training: "initial", "zeros" or a vector.
    capacity, max_capacity, max_hbm_for_vectors: see `sok.DynamicVariable`.

    Of static tables only:
    out_of_range: what an id outside [0, vocabulary_size) gets; see `sok.Variable`.

    >>> sok.TableConfig("items", 16, initializer="normal").dimension
    16
    """

    name: str
    dimension: int
    vocabulary_size: int | None = None
    initializer: Any = "random"
    seed: int | None = None
    key_type: str = "int64"
    dtype: str | None = None
    max_norm: float | None = None
    var_type: str = "hbm"
    mode: str | None = None
    default: Any = "initial"
    capacity: int | None = None
    max_capacity: int | None = None
    max_hbm_for_vectors: int | None = None
    out_of_range: str = "error"

    def __post_init__(self):
        def settle(field, value):
            object.__setattr__(self, field, value)

        _check_name("table", self.name)
        settle("dimension", checks.whole("dimension", self.dimension, 1))
        settle("key_type", checks.key_dtype(self.key_type))
        settle("dtype", None if self.dtype is None else checks.row_dtype(self.dtype))
        settle("default", checks.default_row(self.default, self.dimension))
        checks.max_norm(self.max_norm)
        checks.one_of("var_type", self.var_type, checks.VAR_TYPES)
        checks.device_bytes(self.var_type, self.max_hbm_for_vectors)
        checks.one_of("out_of_range", self.out_of_range, checks.OUT_OF_RANGE)
        if self.vocabulary_size is not None:
            settle("vocabulary_size", checks.whole("vocabulary_size", self.vocabulary_size, 0))
        if self.seed is not None:
            settle("seed", checks.seed(self.seed))
        for name in ("capacity", "max_capacity"):
            checks.count(name, getattr(self, name))
        spec = initializers.resolve(self.initializer, self.dimension)
        if spec is None and self.vocabulary_size is None:
            raise ValueError(initializers.refusal(self.initializer))
        self._refuse_fields_of_the_other_kind()

    def _refuse_fields_of_the_other_kind(self):
        static = self.vocabulary_size is not None
        of_hash_tables = ("default", "capacity", "max_capacity", "var_type", "max_hbm_for_vectors")
        others = of_hash_tables if static else ("out_of_range",)
        for field in dataclasses.fields(self):
            if field.name in others and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"table {self.name!r}: {field.name} is for "
                    + ("hash tables; this one has a vocabulary_size" if static else
                       "static tables; this one has no vocabulary_size")
                )  # fmt: skip

    def create(self, trainable: bool = True, dtype: str | None = None) -> TableVariable:
        """A new table. dtype: of the rows, if the configuration has none."""
        common = {
            "initializer": self.initializer,
            "seed": self.seed,
            "key_type": self.key_type,
            "dtype": self.dtype or dtype,
            "name": self.name,
            "mode": self.mode,
            "trainable": trainable,
        }
        if self.vocabulary_size is not None:
            return Variable(
                shape=(self.vocabulary_size, self.dimension),
                out_of_range=self.out_of_range,
                **common,
            )
        return DynamicVariable(
            self.dimension,
            var_type=self.var_type,
            default=self.default,
            capacity=self.capacity,
            max_capacity=self.max_capacity,
            max_hbm_for_vectors=self.max_hbm_for_vectors,
            **common,
        )

    def get_config(self) -> dict[str, Any]:
        config = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if isinstance(self.initializer, keras.initializers.Initializer):
            config["initializer"] = keras.saving.serialize_keras_object(self.initializer)
        if not isinstance(self.default, str):
            config["default"] = list(self.default)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TableConfig":
        return cls(**config)


@keras.saving.register_keras_serializable("sok")
@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """One feature of a collection: ids of one kind, and how their rows become an output.

    name: its key in the collection's inputs and outputs.
    table: the table its ids are rows of; features that name the same table share it.
    combiner: "mean", "sum", "sqrtn", or None for one vector an id.
    mask_value: dense ids equal to it are left out.

    >>> items = sok.TableConfig("items", 16)
    >>> viewed, bought = (sok.FeatureConfig(name, items, "sum") for name in ("viewed", "bought"))
    >>> viewed.table is bought.table
    True
    """

    name: str
    table: TableConfig
    combiner: str | None = "mean"
    mask_value: int | None = None

    def __post_init__(self):
        _check_name("feature", self.name)
        if not isinstance(self.table, TableConfig):
            raise TypeError(f"feature {self.name!r}: table must be a sok.TableConfig, got {self.table!r}")
        checks.combiner(self.combiner)
        checks.mask_value(self.mask_value)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "table": keras.saving.serialize_keras_object(self.table),
            "combiner": self.combiner,
            "mask_value": self.mask_value,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FeatureConfig":
        return cls(**{**config, "table": keras.saving.deserialize_keras_object(config["table"])})

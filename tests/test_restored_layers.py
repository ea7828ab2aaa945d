# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers with several tables and variables: all of a file fits, or nothing of the layer is changed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models_to_save import WIDTH, tables_of
from restored_tables import snapshot

import sok


@keras.saving.register_keras_serializable("tests")
class Tables(sok.layers.TableMixin, keras.layers.Layer):
    """So many tables, and an ordinary weight of this width, or none."""

    def __init__(self, tables, width=0, **kwargs):
        super().__init__(name="layer")
        self.supports_jit = False
        self.tables = [sok.DynamicVariable(WIDTH) for _ in range(tables)]
        self.scale = self.add_weight(shape=(width,), name="scale") if width else None
        self.config = {"tables": tables, "width": width}

    def get_config(self):
        return self.config

    def call(self, inputs, training=None):
        return sum(sok.lookup_sparse(self.tables, [inputs] * len(self.tables), training=bool(training)))


def layer(*arguments):
    model = keras.Sequential([keras.Input((2,), dtype="int64"), Tables(*arguments)])
    model(tf.constant([[1, 2]], tf.int64), training=True)
    return model


def collection(*names):
    features = [sok.FeatureConfig(name, sok.TableConfig(name, WIDTH)) for name in names]
    inputs = {name: keras.Input((2,), dtype="int64", name=name) for name in names}
    outputs = sok.EmbeddingCollection(features, name="layer")(inputs)
    model = keras.Model(inputs, outputs)
    model({name: tf.constant([[1, 2]], tf.int64) for name in names}, training=True)
    return model


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
@pytest.mark.parametrize(
    ("saved", "target", "words"),
    [
        (lambda: layer(2, 3), lambda: layer(2, 1), r"shape \[1\], in the file \[3\]"),
        (lambda: layer(2, 3), lambda: layer(1), r"also holds \['0', 'table\.1\.keys'"),
        (lambda: layer(1), lambda: layer(2), r"the file holds no 'table\.1\."),
        (lambda: layer(1), lambda: layer(1, 2), r"the file holds no '0'"),
        (lambda: collection("a", "b"), lambda: collection("a"), r"also holds \['table\.b\..*It has the tables \['a'\]"),
        (lambda: collection("a"), lambda: collection("a", "b"), r"the file holds no 'table\.b\."),
    ],
)
def test_another_layer(tmp_path, saved, target, words, suffix):
    path = tmp_path / f"m{suffix}"
    model = saved()
    model.save(path) if suffix == ".keras" else model.save_weights(path)
    other = target()
    before = [snapshot(table) for table in tables_of(other)]
    with pytest.raises(ValueError, match=f"(?s)layer 'layer'.*{words}"):
        other.load_weights(path)
    assert [snapshot(table) for table in tables_of(other)] == before


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("beside", np.array([1, 2])),
        ("beside", np.zeros(0, np.int64)),
        ("beside", np.array([0.5])),
        ("name_beside", np.array([1.5])),
        ("name_beside", None),
    ],
)
def test_a_file_that_does_not_say_where_its_table_lies(tmp_path, monkeypatch, entry, value):
    class Damaging(dict):
        def __setitem__(self, name, array):
            if name != f"table.0.{entry}":
                self.store[name] = array
            elif value is not None:
                self.store[name] = value

    def save(layer, store):
        damaging = Damaging()
        damaging.store = store
        sok.layers.TableMixin.save_own_variables(layer, damaging)

    monkeypatch.setattr(Tables, "save_own_variables", save)
    sok.save_model(layer(1), tmp_path / "m.keras")
    words = "does not say where 'dynamic_variable.*' lies" if value is not None else r"holds no 'table\.0\.name_beside'"
    with pytest.raises(ValueError, match=f"layer 'layer': .*{words}"):
        sok.load_model(tmp_path / "m.keras")

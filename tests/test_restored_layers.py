# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers with several tables and variables: all of a file fits, or nothing of the layer is changed."""

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from models_to_save import WIDTH, tables_of
from restored_tables import snapshot, train

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


class Pair(sok.layers.TableMixin, keras.layers.Layer):
    """A table, one of at most 16 rows, and an ordinary weight."""

    def __init__(self, max_capacity=None):
        super().__init__(name="pair")
        self.supports_jit = False
        self.a = sok.DynamicVariable(WIDTH, name="a")
        self.b = sok.DynamicVariable(WIDTH, name="b", max_capacity=max_capacity)
        self.scale = self.add_weight(shape=(1,), name="scale", initializer="zeros")

    def call(self, inputs):
        return sok.lookup_sparse([self.a, self.b], [inputs, inputs], training=False)


def save_pair(path, optimizer, rows):
    """Its first table has the ids 1 and 2, its second so many."""
    pair = Pair()
    optimizer = sok.OptimizerWrapper(optimizer)
    train(pair.a, optimizer, [[1, 2]])
    train(pair.b, optimizer, [list(range(rows))])
    pair.scale.assign([5.0])
    keras.Sequential([keras.Input((2,), dtype="int64"), pair]).save_weights(path)
    return pair


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("room", "table 'b': 100 rows do not fit; it takes at most 16"),
        ("repeated", "layer 'pair': table 'b'.*damaged: the id 5 is repeated"),
        ("weight", "layer 'pair': the variable .*scale' is float32, what the file holds cannot be: .*word"),
    ],
)
def test_a_second_table_that_is_refused(tmp_path, cause, words, trained):
    """The first one keeps its rows and gets no states, so that the file of another optimizer loads afterwards."""
    save_pair(tmp_path / "wrong.weights.h5", keras.optimizers.Adagrad(0.1), 100 if cause == "room" else 2)
    with h5py.File(tmp_path / "wrong.weights.h5", "r+") as file:
        held = file["layers/pair/vars"]
        if cause == "repeated":
            held["table.1.keys"][...] = [5, 5]
        elif cause == "weight":
            del held["0"]
            held["0"] = ["word"]
    pair = Pair(max_capacity=16)
    model = keras.Sequential([keras.Input((2,), dtype="int64"), pair])
    sok.assign(pair.a, [77], np.ones((1, WIDTH)))
    if trained:
        train(pair.a, sok.OptimizerWrapper(keras.optimizers.Adam(0.1)), [[77]])
    before = snapshot(pair.a), snapshot(pair.b)
    with pytest.raises(ValueError, match=f"(?s){words}"):
        model.load_weights(tmp_path / "wrong.weights.h5")
    assert (snapshot(pair.a), snapshot(pair.b)) == before
    assert pair.a.table.export(("values",))[0].numpy().tolist() == [77]
    assert float(pair.scale[0]) == 0.0
    right = save_pair(tmp_path / "right.weights.h5", keras.optimizers.Adam(0.1), 3)
    model.load_weights(tmp_path / "right.weights.h5")
    assert (snapshot(pair.a), snapshot(pair.b)) == (snapshot(right.a), snapshot(right.b))
    assert float(pair.scale[0]) == 5.0


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

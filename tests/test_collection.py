# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""EmbeddingCollection: many features and tables in one pass; and its configurations."""

import dataclasses
import json

import keras
import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok

ITEMS = sok.TableConfig("items", 4, initializer="normal", seed=1)
USERS = sok.TableConfig("users", 3, vocabulary_size=20, initializer="normal", seed=2)
TAGS = sok.TableConfig("tags", 17, initializer="uniform", key_type="uint32", max_norm=1.0)

FEATURES = (
    sok.FeatureConfig("bought", ITEMS, combiner="sum"),
    sok.FeatureConfig("seen", ITEMS),
    sok.FeatureConfig("last", ITEMS, combiner=None),
    sok.FeatureConfig("user", USERS, combiner="sqrtn", mask_value=-1),
    sok.FeatureConfig("tags", TAGS),
)

BAGS = {
    "bought": [[1, 2, 2], [3], []],
    "seen": [[2, 9], [1, 1], [5, 3]],
    "last": [[4], [2], [1]],
    "user": [[1, 7], [7], []],
    "tags": [[100, 2**32 - 1], [], [5]],
}


def _inputs():
    return {
        "bought": kinds.make("ragged64", BAGS["bought"], "int64"),
        "seen": tf.constant(BAGS["seen"], tf.int64),
        "last": tf.constant(BAGS["last"], tf.int64),
        "user": kinds.make("masked", BAGS["user"], "int64", padding=-1),
        "tags": kinds.make("sparse", BAGS["tags"], "uint32"),
    }


def test_outputs_and_gradients(run, rng):
    layer = sok.EmbeddingCollection(FEATURES)
    inputs = _inputs()
    layer(inputs, training=True)
    rows = {name: kinds.export_as_dict(table) for name, table in layer.tables.items()}
    widths = {"items": 4, "users": 3, "tags": 17}
    expected, gradients, row_gradients = {}, {}, {name: [] for name in rows}
    for feature in FEATURES:
        table, width = feature.table.name, widths[feature.table.name]
        args = (rows[table], BAGS[feature.name])
        combiner = feature.combiner or "sum"
        norm = feature.table.max_norm
        expected[feature.name] = reference.lookup(*args, width, None, combiner, norm)
        gradient = rng.normal(size=(3, width)).astype(np.float32)
        gradients[feature.name] = gradient
        row_gradients[table].append(reference.row_gradients(*args, gradient, None, combiner, norm))

    def step(inputs):
        with tf.GradientTape() as tape:
            outputs = layer(inputs)
            loss = tf.add_n(
                [
                    tf.reduce_sum(tf.reshape(outputs[name], tf.shape(gradient)) * gradient)
                    for name, gradient in gradients.items()
                ]
            )
        return outputs, tape.gradient(loss, layer.tables)

    outputs, slices = run(step, inputs)
    assert list(outputs) == [feature.name for feature in FEATURES]
    assert outputs["last"].shape == [3, 1, 4]
    for name, value in expected.items():
        np.testing.assert_allclose(np.reshape(outputs[name], value.shape), value, rtol=1e-5, atol=1e-6, err_msg=name)
    for name, parts in row_gradients.items():
        total = {}
        for part in parts:
            for id_, row in part.items():
                total[id_] = total.get(id_, 0.0) + row
        key_type = "uint32" if name == "tags" else "int64"
        found = kinds.slices_as_dict(slices[name], key_type)
        kinds.assert_rows(found, total, rtol=1e-4, atol=1e-5)


def test_one_pass_for_all_features():
    """One lookup op and one merge op, whatever the number of tables and features."""
    layer = sok.EmbeddingCollection(FEATURES)

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(x) for x in layer(inputs, training=True).values()])
        return [g.values for g in tape.gradient(loss, list(layer.tables.values()))]

    graph = step.get_concrete_function(_inputs()).graph
    ops = [op.type for op in graph.get_operations() if op.type.startswith("Sok>")]
    assert sorted(ops) == ["Sok>Lookup", "Sok>Merge"]


def test_shared_tables_are_one_weight():
    layer = sok.EmbeddingCollection(FEATURES)
    assert list(layer.tables) == ["items", "users", "tags"]
    assert layer.trainable_variables == list(layer.tables.values())
    layer(_inputs(), training=True)
    assert layer.tables["items"].size == [6, 4]
    assert layer.tables["users"].size == [20, 3]


def test_training_flag_and_freezing():
    layer = sok.EmbeddingCollection([FEATURES[0]])
    inputs = {"bought": _inputs()["bought"]}
    for training in (False, None):
        layer(inputs, training=training)
        assert layer.tables["items"].size == [0, 4]
    layer.trainable = False
    layer(inputs, training=True)
    assert layer.tables["items"].size == [0, 4]
    assert layer.trainable_variables == []
    layer.trainable = True
    layer(inputs, training=True)
    assert layer.tables["items"].size == [3, 4]


def test_weights_of_each_kind():
    layer = sok.EmbeddingCollection([FEATURES[0], FEATURES[1]])
    ws = {"bought": [[0.5, 1.0, 2.0], [3.0], []], "seen": [[1.0, 2.0], [0.0, 1.0], [1.0, 1.0]]}
    inputs = _inputs()
    pairs = {
        "bought": (inputs["bought"], kinds.make("ragged64", ws["bought"], "float32")),
        "seen": (inputs["seen"], tf.constant(ws["seen"])),
    }
    outputs = layer(pairs, training=True)
    rows = kinds.export_as_dict(layer.tables["items"])
    for name, combiner in (("bought", "sum"), ("seen", "mean")):
        expected = reference.lookup(rows, BAGS[name], 4, ws[name], combiner)
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-5, atol=1e-6)


def test_symbolic_outputs():
    layer = sok.EmbeddingCollection(FEATURES)
    inputs = {
        "bought": keras.Input((None,), dtype="int64", ragged=True),
        "seen": (keras.Input((2,), dtype="int64"), keras.Input((2,))),
        "last": keras.Input((1,), dtype="int64"),
        "user": keras.Input((None,), dtype="int32"),
        "tags": keras.Input((100,), dtype="uint32", sparse=True),
    }
    outputs = layer(inputs)
    shapes = {
        "bought": (None, 4),
        "seen": (None, 4),
        "last": (None, 1, 4),
        "user": (None, 3),
        "tags": (None, 17),
    }
    assert {name: output.shape for name, output in outputs.items()} == shapes
    seen = inputs["seen"]
    given = {name: x.shape for name, x in inputs.items() if name != "seen"}
    given["seen"] = (seen[0].shape, seen[1].shape)
    assert layer.compute_output_shape(given) == shapes


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_dtype_policies(policy):
    half = policy.rpartition("_")[2]
    fixed = dataclasses.replace(ITEMS, name="fixed", dtype="float32")
    layer = sok.EmbeddingCollection([sok.FeatureConfig("a", ITEMS), sok.FeatureConfig("b", fixed)], dtype=policy)
    outputs = layer({"a": tf.constant([[1]]), "b": tf.constant([[1]])}, training=True)
    assert {x.dtype.name for x in outputs.values()} == {half}
    stored = {name: table.attributes.row_type for name, table in layer.tables.items()}
    assert stored == {"items": half if policy == "bfloat16" else "float32", "fixed": "float32"}


def test_config_round_trip():
    layer = sok.EmbeddingCollection(FEATURES, name="mine")
    config = layer.get_config()
    json.dumps(config)
    copy = sok.EmbeddingCollection.from_config(config)
    assert copy.get_config() == config
    assert copy.name == "mine"
    assert list(copy.tables) == list(layer.tables)
    outputs, again = layer(_inputs(), training=True), copy(_inputs(), training=True)
    for name, value in outputs.items():
        np.testing.assert_array_equal(value, again[name])


def test_table_config_round_trip():
    for config in (
        ITEMS,
        USERS,
        TAGS,
        sok.TableConfig("a", 2, default=[1, 2], capacity=3, max_capacity=9),
        sok.TableConfig("a", 2, var_type="hybrid", max_hbm_for_vectors=0),
        sok.TableConfig("a", 2, vocabulary_size=5, out_of_range="zero", dtype="float16"),
    ):
        copy = sok.TableConfig.from_config(json.loads(json.dumps(config.get_config())))
        assert copy == config
        assert hash(copy) == hash(config)
    glorot = sok.TableConfig("a", 2, initializer=keras.initializers.GlorotUniform(seed=3))
    json.dumps(glorot.get_config())
    serialized = keras.saving.serialize_keras_object(glorot)
    copy = keras.saving.deserialize_keras_object(serialized)
    assert copy.create().attributes == glorot.create().attributes
    feature = sok.FeatureConfig("f", USERS, combiner=None, mask_value=0)
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(feature)))
    assert keras.saving.deserialize_keras_object(serialized) == feature


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ITEMS.dimension = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        FEATURES[0].combiner = "mean"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": ""}, "a table's name must be a text"),
        ({"name": "a/b"}, "without '/', got 'a/b'"),
        ({"dimension": 0}, "dimension must be a whole number of at least 1, got 0"),
        ({"vocabulary_size": -1}, "vocabulary_size must be a whole number of at least 0"),
        ({"initializer": "gauss"}, "unknown initializer 'gauss'"),
        ({"initializer": keras.initializers.Orthogonal()}, "cannot fill a hash table"),
        ({"key_type": "float32"}, "key_type must be one of int32, int64, uint32, uint64"),
        ({"dtype": "float64"}, "dtype must be one of float32, float16, bfloat16"),
        ({"max_norm": -1.0}, "max_norm must be above 0"),
        ({"seed": "one"}, "seed must be a whole number"),
        ({"var_type": "ssd"}, "var_type must be one of hbm, hybrid"),
        ({"default": "ones"}, '"initial", "zeros" or a vector of 4'),
        ({"capacity": 0}, "capacity must be a whole number of at least 1"),
        ({"max_capacity": 1.5}, "max_capacity must be a whole number of at least 1"),
        ({"out_of_range": "clip"}, "out_of_range is for static tables"),
        ({"out_of_range": "wrap"}, "out_of_range must be one of error, zero, clip"),
        ({"vocabulary_size": 5, "capacity": 3}, "capacity is for hash tables"),
        ({"vocabulary_size": 5, "default": "zeros"}, "default is for hash tables"),
    ],
)
def test_table_config_is_checked(arguments, words):
    with pytest.raises(ValueError, match=words):
        sok.TableConfig(**{"name": "items", "dimension": 4, **arguments})


def test_feature_config_is_checked():
    with pytest.raises(ValueError, match="sum, mean, sqrtn or None, got 'max'"):
        sok.FeatureConfig("a", ITEMS, combiner="max")
    with pytest.raises(TypeError, match=r"table must be a sok.TableConfig, got 'items'"):
        sok.FeatureConfig("a", "items")
    with pytest.raises(ValueError, match="mask_value must be an id, a whole number, or None, got 'pad'"):
        sok.FeatureConfig("a", ITEMS, mask_value="pad")
    with pytest.raises(ValueError, match="a feature's name"):
        sok.FeatureConfig("", ITEMS)


def test_collection_is_checked():
    with pytest.raises(ValueError, match="at least one feature"):
        sok.EmbeddingCollection([])
    with pytest.raises(TypeError, match=r"features must be sok.FeatureConfigs, got 'a'"):
        sok.EmbeddingCollection(["a"])
    with pytest.raises(ValueError, match=r"these repeat: \['seen'\]"):
        sok.EmbeddingCollection([FEATURES[1], FEATURES[1]])
    other = dataclasses.replace(ITEMS, dimension=5)
    with pytest.raises(ValueError, match="'b' has another table of the name 'items'"):
        sok.EmbeddingCollection([sok.FeatureConfig("a", ITEMS), sok.FeatureConfig("b", other)])
    layer = sok.EmbeddingCollection([FEATURES[0], FEATURES[1]], name="mine")
    for wrong in ({"bought": tf.constant([[1]])}, {**_inputs()}):
        with pytest.raises(ValueError, match=r"'mine' takes a dict with the features \['bought', 'seen'\]"):
            layer(wrong)
    with pytest.raises(ValueError, match=r"takes a dict.*got"):
        layer(tf.constant([[1]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'bought' has 2, 'seen' has 3"):
        layer({"bought": tf.constant([[1], [2]]), "seen": tf.constant([[1], [2], [3]])})
    with pytest.raises(TypeError, match="feature 'bought': ids have dtype float32"):
        layer({"bought": keras.Input((1,)), "seen": keras.Input((1,), dtype="int64")})


def test_positional_and_field_order_is_kept():
    """Written by position in scripts: a new field goes to the end."""
    names = [field.name for field in dataclasses.fields(sok.TableConfig)]
    assert names[:5] == ["name", "dimension", "vocabulary_size", "initializer", "seed"]
    names = [field.name for field in dataclasses.fields(sok.FeatureConfig)]
    assert names[:4] == ["name", "table", "combiner", "mask_value"]

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers by themselves: outputs, symbolic inputs, configuration, dtypes."""

import itertools

import keras
import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok

LAYERS = (
    sok.layers.DistributedEmbedding,
    sok.layers.LocalizedEmbedding,
    sok.layers.All2AllDenseEmbedding,
)


def _with_rows(layer, rows):
    sok.assign(layer.table, list(rows), np.asarray(list(rows.values()), np.float32))
    return layer


@pytest.mark.parametrize("vocabulary_size", [None, 10])
@pytest.mark.parametrize("combiner", [*reference.COMBINERS, None])
def test_outputs(run, rng, combiner, vocabulary_size):
    rows = kinds.random_rows(rng, range(10), 3)
    layer = sok.layers.DistributedEmbedding(3, combiner, vocabulary_size=vocabulary_size)
    _with_rows(layer, rows)
    bags, ws = [[1, 2], [3, 3]], [[0.5, 2.0], [1.0, 3.0]]
    for kind in ("dense", "ragged32", "sparse"):
        ids = kinds.make(kind, bags, "int64")
        for weights in (None, kinds.make(kind, ws, "float32")):
            output = run(layer, ids if weights is None else (ids, weights))
            used = ws if weights is not None else [[1.0, 1.0]] * 2
            if combiner is None:
                flat = output.flat_values if isinstance(output, tf.RaggedTensor) else output
                expected = np.asarray([[rows[i] * w for i, w in zip(*b)] for b in zip(bags, used)])
                np.testing.assert_allclose(np.reshape(flat, [2, 2, 3]), expected, rtol=1e-6)
            else:
                expected = reference.lookup(rows, bags, 3, used, combiner)
                np.testing.assert_allclose(output, expected, rtol=1e-5)


def test_signature_defaults():
    layer = sok.layers.DistributedEmbedding(4)
    assert (layer.dimension, layer.combiner, layer.supports_jit) == (4, "mean", False)
    assert layer.table.size == [0, 4]
    layer(tf.constant([[1, 2]]), training=True)
    ids, values = sok.export(layer.table)
    assert sorted(ids.numpy()) == [1, 2]
    assert np.all(np.abs(values) <= 0.05)


def test_training_inserts_and_nothing_else_does():
    layer = sok.layers.DistributedEmbedding(4, initializer="ones", default="zeros")
    for training in (False, None):
        np.testing.assert_array_equal(layer(tf.constant([[1, 2]]), training=training), np.zeros((1, 4)))
        assert layer.table.size == [0, 4]
    np.testing.assert_array_equal(layer(tf.constant([[1, 2]]), training=True), np.ones((1, 4)))
    assert layer.table.size == [2, 4]
    layer.trainable = False
    layer(tf.constant([[3, 4]]), training=True)
    assert layer.table.size == [2, 4]


def test_localized_and_dense_layers():
    layer = sok.layers.LocalizedEmbedding(4, "sum", rank=0, initializer="ones")
    np.testing.assert_array_equal(layer(tf.constant([[1, 2]])), np.full((1, 4), 2.0))
    assert layer.table.placement.rank == 0
    with pytest.raises(ValueError, match="names rank 7, but there are 1 ranks"):
        sok.layers.LocalizedEmbedding(4, rank=7)
    dense = sok.layers.All2AllDenseEmbedding(4, initializer="ones", mask_value=0)
    np.testing.assert_array_equal(dense(tf.constant([[1, 0]])), [[[1.0] * 4, [0.0] * 4]])
    assert dense(tf.constant([5, 6])).shape == [2, 4]


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize(
    "initializer",
    ["normal", keras.initializers.RandomUniform(-1, 1, seed=3), keras.initializers.HeNormal()],
)
def test_config_round_trip(cls, initializer):
    layer = cls(
        5, initializer=initializer, key_type="uint32", max_norm=2.0, default=[1, 2, 3, 4, 5],
        capacity=100, max_capacity=1000, mask_value=7, name="mine",
        activity_regularizer=keras.regularizers.L2(0.1),
    )  # fmt: skip
    config = layer.get_config()
    copy = cls.from_config(config)
    assert copy.get_config() == config
    assert copy.table.attributes == layer.table.attributes
    assert copy.activity_regularizer.l2 == pytest.approx(0.1)
    ids = tf.constant([[1, 2, 3]], tf.uint32)
    # The drawn seed is part of the configuration: new ids get the same rows in the copy.
    np.testing.assert_array_equal(layer(ids, training=True), copy(ids, training=True))
    serialized = keras.saving.serialize_keras_object(layer)
    assert keras.saving.deserialize_keras_object(serialized).get_config() == config


def test_static_config_round_trip():
    layer = sok.layers.DistributedEmbedding(
        2, vocabulary_size=9, out_of_range="clip", initializer=keras.initializers.Orthogonal()
    )
    copy = sok.layers.DistributedEmbedding.from_config(layer.get_config())
    assert copy.table.size == [9, 2]
    assert copy.table.attributes.out_of_range == "clip"


@pytest.mark.parametrize("combiner", ["mean", None])
def test_symbolic_outputs(combiner):
    layer = sok.layers.DistributedEmbedding(4, combiner)
    for kwargs, shape in (
        ({"shape": (3,)}, (None, 3)),
        ({"shape": (None,)}, (None, None)),
        ({"shape": ()}, (None,)),
        ({"batch_shape": (8, 3)}, (8, 3)),
        ({"shape": (None,), "ragged": True}, (None, None)),
        ({"shape": (None, None), "ragged": True}, (None, None, None)),
        ({"shape": (100,), "sparse": True}, (None, 100)),
    ):
        inputs = keras.Input(**kwargs, dtype="int64")
        output = layer(inputs)
        expected = (*shape, 4) if combiner is None else (shape[0], 4)
        assert output.shape == expected
        assert output.dtype == "float32"
        assert layer.compute_output_shape(shape) == expected
        variable = combiner is None and bool(kwargs.get("ragged") or kwargs.get("sparse"))
        assert output.ragged == variable
    weights = keras.Input((3,))
    assert layer((keras.Input((3,), dtype="int64"), weights)).shape[0] is None


def test_symbolic_inputs_that_are_refused():
    layer = sok.layers.DistributedEmbedding(4)
    with pytest.raises(TypeError, match=r'ids have dtype float32; .*keras.Input.*dtype="int64"'):
        layer(keras.Input((1,)))
    with pytest.raises(ValueError, match=r"\[batch, hotness\], got \(None, 2, 3\)"):
        layer(keras.Input((2, 3), dtype="int64"))
    with pytest.raises(ValueError, match=r"a pair \(ids, weights\); got 3 values"):
        layer([keras.Input((2,), dtype="int64")] * 3)


@pytest.mark.parametrize(
    ("policy", "variable", "output"),
    [
        ("float32", "float32", "float32"),
        ("mixed_float16", "float32", "float16"),
        ("mixed_bfloat16", "float32", "bfloat16"),
        ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_dtype_policies(policy, variable, output):
    """Rows in the variable dtype, outputs in the compute dtype; sums in float32 in between."""
    layer = sok.layers.DistributedEmbedding(2, "sum", dtype=policy, initializer="0.0001")
    assert layer.table.attributes.row_type == variable
    ids = tf.zeros([1, 4096], tf.int64)
    result = layer(ids)
    row = float(tf.cast(tf.cast(0.0001, variable), tf.float32))
    assert result.dtype.name == output
    np.testing.assert_allclose(tf.cast(result, tf.float32), np.full((1, 2), 4096 * row), rtol=5e-3)
    assert layer(keras.Input((3,), dtype="int64")).dtype == output
    # Weights are not rounded to float16 on the way in.
    exact = layer((tf.constant([[1]]), tf.constant([[10000.0 + 1.0]])))
    np.testing.assert_allclose(tf.cast(exact, tf.float32), np.full((1, 2), 10001.0 * row), rtol=5e-3)


def test_float64_policy_is_refused():
    with pytest.raises(ValueError, match="float32, float16, bfloat16, got 'float64'"):
        sok.layers.DistributedEmbedding(2, dtype="float64")


def test_masking_of_uncombined_output():
    """A masked position is a zero vector, and the mask reaches the layers behind."""
    ids = np.asarray([[3, 0, 0], [4, 5, 0]])
    inputs = keras.Input((3,), dtype="int64")
    embedded = sok.layers.All2AllDenseEmbedding(2, mask_value=0, initializer="ones")(inputs)
    pooled = keras.layers.GlobalAveragePooling1D()(embedded)
    np.testing.assert_array_equal(keras.Model(inputs, pooled)(ids), np.ones((2, 2)))
    layer = sok.layers.All2AllDenseEmbedding(2)
    assert layer.compute_mask(tf.constant(ids)) is None


def test_activity_regularizer():
    """The loss that Keras adds for the same outputs of one of its own layers."""
    regularizer = keras.regularizers.L2(0.5)
    layer = sok.layers.DistributedEmbedding(2, "sum", initializer="ones", activity_regularizer=regularizer)
    keras_layer = keras.layers.Activation("linear", activity_regularizer=regularizer)
    keras_layer(layer(tf.constant([[1, 2], [3, 4]])))
    assert sum(layer.losses) > 0
    np.testing.assert_allclose(sum(layer.losses), sum(keras_layer.losses))


def test_max_norm():
    layer = sok.layers.DistributedEmbedding(2, "sum", initializer="3", max_norm=1.0)
    np.testing.assert_allclose(layer(tf.constant([[5]])), np.full((1, 2), np.sqrt(0.5)), rtol=1e-6)


def test_ids_above_2_24_pass_unchanged():
    ids = np.asarray([[2**24 + 1], [2**40 + 1], [2**53 + 1], [2**24], [2**53]])
    inputs = keras.Input((1,), dtype="int64")
    layer = sok.layers.DistributedEmbedding(3, initializer="normal")
    model = keras.Model(inputs, layer(inputs))
    layer(ids, training=True)
    assert sorted(sok.export(layer.table)[0].numpy().tolist()) == sorted(ids.ravel().tolist())
    np.testing.assert_array_equal(model.predict(ids, verbose=0), layer(ids))
    assert len({row.tobytes() for row in model.predict(ids, verbose=0)}) == 5


def test_two_calls_of_one_layer_share_its_rows(rng):
    rows = kinds.random_rows(rng, range(5), 2)
    layer = _with_rows(sok.layers.DistributedEmbedding(2, "sum"), rows)
    a, b = tf.constant([[0, 1]]), tf.constant([[1, 4, 4]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(a)) + 3.0 * tf.reduce_sum(layer(b))
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    merged = reference.merge(gradient.indices.numpy().tolist(), gradient.values.numpy())
    kinds.assert_rows(merged, {0: [1.0] * 2, 1: [4.0] * 2, 4: [6.0] * 2})


def test_weights_lists():
    layer = sok.layers.DistributedEmbedding(4, name="items")
    assert layer.trainable_variables == [layer.table] == layer.weights
    layer.build()
    assert layer.count_params() == 0
    layer(tf.constant([[1, 2]]), training=True)
    assert layer.count_params() == 8
    layer.trainable = False
    assert layer.trainable_variables == []
    assert layer.non_trainable_variables == [layer.table]


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(["int32", "int64", "uint32"], 2)))
def test_numpy_ids_of_any_integer_type(a, b):
    layer = sok.layers.DistributedEmbedding(3, initializer="normal")
    ids = np.asarray([[5, 6], [7, 8]])
    np.testing.assert_array_equal(layer(ids.astype(a)), layer(ids.astype(b)))

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The dot interaction: values and gradients against numpy, shapes of every kind, the layer in models."""

import itertools
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from world import SEED

import sok
import sok.models
from sok import _native
from sok.stages.interaction import dot_interaction, dot_interaction_in_plain_ops

TOLERANCE = {"float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2}
COUNTS, WIDTHS = (2, 3, 5, 8, 9, 27, 28, 33, 40, 70), (1, 3, 4, 7, 8, 16, 64, 128, 130, 300)


def _reference(vectors, beside):
    """Values, and the gradients of sum(out * upstream), in float64."""
    stacked = np.stack(vectors, 1)
    first, second = np.triu_indices(len(vectors), 1)
    products = np.einsum("bpw,bpw->bp", stacked[:, first], stacked[:, second])
    return np.concatenate([*vectors[:beside], products], 1)


def _reference_gradients(vectors, beside, upstream):
    batch, width = vectors[0].shape
    count = len(vectors)
    of_pairs = np.zeros((batch, count, count))
    first, second = np.triu_indices(count, 1)
    of_pairs[:, first, second] = of_pairs[:, second, first] = upstream[:, beside * width :]
    gradients = np.einsum("bij,bjw->biw", of_pairs, np.stack(vectors, 1))
    gradients[:, :beside] += upstream[:, : beside * width].reshape(batch, beside, width)
    return list(np.moveaxis(gradients, 1, 0))


def _close(found, expected, size, dtype):
    """Within the rounding of the result and of a float sum of terms up to `size`."""
    found = tf.cast(found, tf.float64).numpy()
    bound = TOLERANCE[dtype] * np.abs(expected) + 1e-6 * size + 1e-7
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= bound).all(), np.max(np.abs(found - expected) - bound)


def _cases():
    """Each count and each width at least once for each dtype; what else differs is drawn."""
    rng = np.random.default_rng([11, SEED])
    for dtype in TOLERANCE:
        pairs = list(zip(COUNTS, rng.permutation(WIDTHS), strict=True)) + [(27, 128)]
        for count, width in pairs:
            beside = int(rng.choice([0, 1, count]))
            yield dtype, count, int(width), int(rng.choice([1, 2, 7, 65])), beside


@pytest.mark.parametrize("number", range(33))
def test_values_and_gradients(run, number):
    dtype, count, width, batch, beside = list(_cases())[number]
    print(f"seed {SEED}: {dtype}, {count} vectors [{batch}, {width}], {beside} beside")
    rng = np.random.default_rng([12, SEED, number])
    draw = lambda *shape: tf.constant(rng.normal(size=shape), dtype)  # noqa: E731
    vectors = [draw(batch, width) for _ in range(count)]
    upstream = draw(batch, beside * width + count * (count - 1) // 2)

    def both(*vectors):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            out = dot_interaction(list(vectors), beside)
        return out, tape.gradient(out, vectors, output_gradients=upstream)

    out, gradients = run(both, *vectors)
    exact = [tf.cast(vector, tf.float64).numpy() for vector in vectors]
    size = max(np.abs(v).max() for v in exact) ** 2 * width
    assert out.dtype == dtype
    _close(out, _reference(exact, beside), size, dtype)
    expected = _reference_gradients(exact, beside, tf.cast(upstream, tf.float64).numpy())
    for found, wanted in zip(gradients, expected, strict=True):
        assert found.dtype == dtype
        _close(found, wanted, 20 * count, dtype)


def test_no_examples_and_no_columns():
    out = dot_interaction([tf.zeros((0, 4))] * 3, 1)
    assert out.shape == (0, 7)
    np.testing.assert_array_equal(dot_interaction([tf.zeros((2, 0))] * 3, 1), np.zeros((2, 3)))
    gradients = _native.ops.sok_dot_interaction_grad([tf.zeros((0, 4))] * 3, tf.zeros((0, 7)), beside=1)
    assert [g.shape for g in gradients] == [(0, 4)] * 3


def test_a_vector_may_come_twice():
    a, b = tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 5.0]])
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        out = dot_interaction([a, b, a], 0)
    np.testing.assert_array_equal(out, [[13, 5, 13]])
    of_a, of_b = tape.gradient(out, [a, b])
    np.testing.assert_array_equal(of_a, [[8, 14]])
    np.testing.assert_array_equal(of_b, [[2, 4]])


def test_the_plain_ops_give_the_same():
    rng = np.random.default_rng(3)
    vectors = [tf.constant(rng.normal(size=(5, 6)), tf.float32) for _ in range(4)]
    for beside in range(5):
        np.testing.assert_allclose(
            dot_interaction(vectors, beside), dot_interaction_in_plain_ops(vectors, beside), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_example(bad):
    values = np.ones((3, 2, 4), np.float32)
    values[1, 1, 2] = bad
    vectors = [tf.constant(values[:, i]) for i in range(2)]
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        out = dot_interaction(vectors, 0)
    assert np.isfinite(out.numpy()[:, 0]).tolist() == [True, False, True]
    for gradient in tape.gradient(out, vectors):
        assert np.isfinite(gradient.numpy()).all(1).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("shapes", "beside", "words"),
    [
        ([(2, 3), (2, 4)], 0, "number 1 is .2,4. where number 0 is .2,3."),
        ([(2, 3), (3, 3)], 0, "number 1 is .3,3. where number 0 is .2,3."),
        ([(2,), (2,)], 0, "must be .batch, width., number 0 is .2."),
        ([(2, 3), (2, 3)], 3, "beside must be at most 2, the number of vectors, got 3"),
        ([(1, 1)] * 129, 0, "at most 128 vectors can be combined, got 129"),
    ],
)
def test_the_op_refuses(shapes, beside, words):
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        dot_interaction([tf.zeros(shape) for shape in shapes], beside)


def test_a_gradient_of_the_wrong_shape():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"gradient must be \[2,1\], got \[2,2\]"):
        _native.ops.sok_dot_interaction_grad([tf.zeros((2, 3))] * 2, tf.zeros((2, 2)), beside=0)


def test_second_gradients_are_refused():
    a = tf.ones((1, 2))
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        outer.watch(a)
        inner.watch(a)
        first = inner.gradient(dot_interaction([a, a * 2], 0), a)
    with pytest.raises((NotImplementedError, LookupError), match="gradients of its gradients"):
        outer.gradient(first, a)


@pytest.mark.parametrize(
    ("beside", "vectors", "words"),
    [
        (1, [tf.TensorShape((None, 4))], "list of at least 2 tensors .batch, width., got 1 tensors"),
        (3, [(None, 4)] * 2, "beside must be at most the number of vectors, 2, got 3"),
        (0, [(None, 4), (None, 5)], "number 1 is .None, 5. where number 0 is .None, 4."),
        (0, [(None, 4, 2)] * 2, "number 0 is .None, 4, 2."),
    ],
)
def test_the_layer_refuses(beside, vectors, words):
    inputs = [keras.KerasTensor(tuple(shape)) for shape in vectors]
    with pytest.raises(ValueError, match=words):
        sok.layers.DotInteraction(beside)(inputs)


@pytest.mark.parametrize("beside", [-1, 1.5, "one"])
def test_a_number_of_vectors_that_is_none(beside):
    with pytest.raises(ValueError, match="beside must be a whole number of at least 0"):
        sok.layers.DotInteraction(beside)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_the_layer_in_a_saved_model(tmp_path, policy):
    keras.config.set_dtype_policy(policy)
    inputs = [keras.Input((6,)) for _ in range(3)]
    hidden = [keras.layers.Dense(4)(each) for each in inputs]
    out = sok.layers.DotInteraction(beside=2)(hidden)
    assert out.shape == (None, 11)
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(out))
    model.compile("sgd", "mse")
    rng = np.random.default_rng(1)
    x = [rng.normal(size=(20, 6)).astype(np.float32) for _ in inputs]
    history = model.fit(x, rng.normal(size=(20, 1)), epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))


def test_more_vectors_than_the_op_takes():
    vectors = [tf.constant([[float(i), 1.0]]) for i in range(130)]
    out = sok.layers.DotInteraction(beside=0)(vectors).numpy()[0]
    np.testing.assert_array_equal(out, [i * j + 1 for i in range(130) for j in range(i + 1, 130)])


def test_widths_that_are_not_known():
    layer = sok.layers.DotInteraction(beside=1)

    @tf.function(input_signature=[tf.TensorSpec((None, None)), tf.TensorSpec((None, 2))])
    def products(a, b):
        return layer([a, b])

    np.testing.assert_array_equal(products(tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 4.0]])), [[1, 2, 11]])


def test_examples_are_independent_of_the_batch():
    """More examples than a GPU works on at once, each like the first ones."""
    rng = np.random.default_rng(2)
    few = [rng.normal(size=(8, 16)).astype(np.float32) for _ in range(5)]
    many = [tf.constant(np.tile(vector, (9000, 1))) for vector in few]
    out = dot_interaction(many, 1)
    np.testing.assert_array_equal(out, np.tile(dot_interaction([tf.constant(v) for v in few], 1), (9000, 1)))


def test_dlrm_is_exported_without_the_library(tmp_path):
    embeddings = sok.models.distributed_embeddings(["a", "b", "c"], 4, seed=1, default="zeros")
    model = sok.models.DLRM(embeddings, dense_features=["x"], bottom_units=(4,), top_units=(8,))
    inputs = {
        **{name: tf.constant([[1], [2], [3]], tf.int64) for name in "abc"},
        "x": tf.constant([[0.5], [1.5], [2.5]]),
    }
    model(inputs, training=True)
    expected = model(inputs)
    signature = {name: tf.TensorSpec((None, *value.shape[1:]), value.dtype) for name, value in inputs.items()}
    sok.export_static(model, str(tmp_path / "static"), input_signature=signature)
    code = f"""
import sys, numpy as np, tensorflow as tf
served = tf.saved_model.load({str(tmp_path / "static")!r})
ids = {{name: tf.constant([[1], [2], [3]], tf.int64) for name in "abc"}}
out = served.serve({{**ids, "x": tf.constant([[0.5], [1.5], [2.5]])}})
np.save({str(tmp_path / "out.npy")!r}, out.numpy())
assert "sok" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-5, atol=1e-6)


def test_every_count_and_width_is_drawn():
    for dtype, cases in itertools.groupby(_cases(), key=lambda case: case[0]):
        drawn = list(cases)
        assert {count for _, count, *_ in drawn} >= set(COUNTS), dtype
        assert {width for _, _, width, *_ in drawn} >= set(WIDTHS), dtype

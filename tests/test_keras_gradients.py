# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a model's tables and weights learn from: regularizers, several calls of one layer, weights of ids."""

import keras
import kinds
import numpy as np
import pytest
from keras_models import HOTNESS, ROWS, WIDTH, examples, prepare, random_rows

import sok


@pytest.fixture
def data(rng):
    return examples(rng)


@pytest.fixture
def rows(rng):
    return random_rows(rng)


def test_activity_regularizer_in_fit(data, rows):
    """It shrinks rows as it does behind the embedding, in a layer of Keras's own."""
    regularizer = keras.regularizers.L2(0.5)

    def trained(ours, behind):
        embedding = sok.layers.DistributedEmbedding(WIDTH, activity_regularizer=ours)
        inputs = keras.Input((HOTNESS,), dtype="int64")
        x = keras.layers.Activation("linear", activity_regularizer=behind)(embedding(inputs))
        model, table = prepare(keras.Model(inputs, keras.layers.Dense(1)(x)), data, rows)
        model.compile(sok.SGD(0.1), "mse")
        model.fit(*data, batch_size=16, shuffle=False, verbose=0)
        return kinds.export_as_dict(table)

    plain, shrunk, expected = trained(None, None), trained(regularizer, None), trained(None, regularizer)
    kinds.assert_rows(shrunk, expected, rtol=1e-5, atol=1e-7)
    norm = lambda table: sum(np.sum(row**2) for row in table.values())  # noqa: E731
    assert norm(shrunk) < norm(plain)


def test_several_calls_of_one_layer_in_a_model(rng):
    """Two inputs through one layer: gradients of both calls meet in one update."""
    embedding = sok.layers.DistributedEmbedding(WIDTH, "sum", initializer="ones")
    a, b = keras.Input((2,), dtype="int64"), keras.Input((2,), dtype="int64")
    out = keras.layers.Dot(axes=1)([embedding(a), embedding(b)])
    model = keras.Model([a, b], out)
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adagrad(0.5, 0.1)), lambda y, p: p)
    model.fit([np.asarray([[1, 2]]), np.asarray([[2, 3]])], np.zeros((1, 1)), verbose=0)
    step = lambda g: 1.0 - 0.5 * g / np.sqrt(0.1 + g * g + 1e-7)  # noqa: E731
    expected = {1: [step(2.0)] * WIDTH, 2: [step(4.0)] * WIDTH, 3: [step(2.0)] * WIDTH}
    kinds.assert_rows(kinds.export_as_dict(embedding.table), expected, rtol=1e-5)


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_weights_that_are_learned(data, rows, combiner):
    """Weights from a Dense layer: it learns as it does over a dense Embedding with the same sums."""
    ids, y = data
    features = ids[:, :, None].astype(np.float32) / ROWS

    def scores():
        return keras.layers.Dense(
            1, activation="sigmoid", kernel_initializer=keras.initializers.Constant(0.7), name="scores"
        )

    def trained(pooled, optimizer):
        inputs = keras.Input((HOTNESS,), dtype="int64"), keras.Input((HOTNESS, 1))
        score = scores()
        weights = keras.layers.Reshape((HOTNESS,))(score(inputs[1]))
        out = keras.layers.Dense(1, kernel_initializer="ones")(pooled(inputs[0], weights))
        model = keras.Model(inputs, out)
        model.compile(optimizer, "mse")
        model.fit((ids, features), y, batch_size=16, epochs=2, shuffle=False, verbose=0)
        return score.get_weights()

    embedding = sok.layers.DistributedEmbedding(WIDTH, combiner)
    sok.assign(embedding.table, np.arange(ROWS), rows)
    dense = keras.layers.Embedding(ROWS, WIDTH)
    dense.build(None)
    dense.set_weights([rows])

    def pooled(ids, weights):
        total = keras.ops.sum(dense(ids) * weights[:, :, None], axis=1)
        divisor = keras.ops.sum(weights, axis=1, keepdims=True) if combiner == "mean" else 1.0
        return total / divisor

    ours = trained(lambda ids, weights: embedding((ids, weights)), sok.SGD(0.05))
    expected = trained(pooled, keras.optimizers.SGD(0.05))
    assert np.any(ours[0] != np.float32(0.7))
    for mine, theirs in zip(ours, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    learned = kinds.export_as_dict(embedding.table)
    np.testing.assert_allclose(
        np.stack([learned[i] for i in range(ROWS)]), dense.get_weights()[0], rtol=1e-4, atol=1e-6
    )

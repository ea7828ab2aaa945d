# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small recommender trained for three epochs with every optimizer, and its oracle trained beside it.

Local updates: float64 numpy, with gradients by hand. Global ones: the same model in plain Keras, with a
one-hot matrix times a dense kernel in the place of each table.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from reference_optimizers import CASES, Reference, keras_optimizer

import sok

USERS, GENRES, WIDTH = 40, 12, 4
EXAMPLES, BATCH, EPOCHS, HOTNESS = 512, 64, 3, 3
CLOSE = {"rtol": 0, "atol": 1e-4}

every_rule = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def data(rng):
    users = rng.zipf(1.4, EXAMPLES) % USERS
    genres = rng.integers(0, GENRES, (EXAMPLES, HOTNESS))
    taste = rng.normal(size=(USERS, GENRES))
    clicked = taste[users[:, None], genres].mean(1) + 0.3 * rng.normal(size=EXAMPLES) > 0
    return users, genres, clicked.astype(np.float32)


def _head(user, genre):
    """The click's probability: a dot product, and a perceptron of one layer."""
    product = keras.layers.Dot(axes=1)([user, genre])
    linear = keras.layers.Dense(1, name="linear")(keras.layers.Concatenate()([user, genre]))
    return keras.layers.Activation("sigmoid")(keras.layers.Add()([product, linear]))


def _sok_model(optimizer):
    user = keras.Input((1,), dtype="int64")
    genre = keras.Input((HOTNESS,), dtype="int64")
    layers = [
        sok.layers.DistributedEmbedding(WIDTH, "mean", initializer="uniform", seed=seed, name=name)
        for seed, name in ((1, "user"), (2, "genre"))
    ]
    model = keras.Model([user, genre], _head(layers[0](user), layers[1](genre)))
    model.compile(optimizer, "binary_crossentropy")
    return model, [layer.table for layer in layers]


def _initial_rows(table, count):
    return sok.lookup_sparse(table, tf.range(count, dtype=tf.int64), training=False).numpy()


def _fit(model, inputs, clicked):
    history = model.fit(inputs, clicked, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    return history.history["loss"]


class NumpyModel:
    """The same model, in float64."""

    def __init__(self, model, tables):
        kernel, bias = (w.numpy().astype(np.float64) for w in model.get_layer("linear").weights)
        self.rows = {
            "user": dict(enumerate(_initial_rows(tables[0], USERS).astype(np.float64))),
            "genre": dict(enumerate(_initial_rows(tables[1], GENRES).astype(np.float64))),
            "kernel": dict(enumerate(kernel)),  # a row for each input
            "bias": dict(enumerate(bias[:, None])),
        }

    def loss_and_gradients(self, users, genres, clicked):
        user = np.stack([self.rows["user"][u] for u in users])
        genre = np.stack([np.mean([self.rows["genre"][g] for g in gs], axis=0) for gs in genres])
        kernel = np.concatenate([self.rows["kernel"][i] for i in range(2 * WIDTH)])
        inputs = np.concatenate([user, genre], axis=1)
        logits = np.sum(user * genre, axis=1) + inputs @ kernel + self.rows["bias"][0][0]
        loss = np.mean(np.logaddexp(0, logits) - clicked * logits)
        g = (1 / (1 + np.exp(-logits)) - clicked) / len(clicked)
        g_user = g[:, None] * (genre + kernel[:WIDTH])
        g_genre = g[:, None] * (user + kernel[WIDTH:])
        return loss, {
            "user": (users.tolist(), g_user),
            "genre": (genres.ravel().tolist(), np.repeat(g_genre / HOTNESS, HOTNESS, axis=0)),
            "kernel": (range(2 * WIDTH), (inputs.T @ g)[:, None]),
            "bias": ([0], [[np.sum(g)]]),
        }

    def fit(self, oracle, users, genres, clicked):
        history = []
        for _ in range(EPOCHS):
            losses = []
            for at in range(0, EXAMPLES, BATCH):
                part = slice(at, at + BATCH)
                loss, gradients = self.loss_and_gradients(users[part], genres[part], clicked[part])
                oracle.step(self.rows, gradients)
                losses.append(loss)
            history.append(np.mean(losses))
        return history


@every_rule
def test_local_updates_follow_float64(name, data):
    users, genres, clicked = data
    formula, hyper = CASES[name]
    model, tables = _sok_model(sok.OptimizerWrapper(keras_optimizer(formula, hyper)))
    oracle = NumpyModel(model, tables)
    history = _fit(model, [users[:, None], genres], clicked)
    expected = oracle.fit(Reference(formula, hyper), users, genres, clicked)
    np.testing.assert_allclose(history, expected, **CLOSE)
    assert abs(history[-1] - history[0]) > 2 * CLOSE["atol"]  # or nothing would have been compared


@every_rule
def test_global_updates_follow_one_hot_times_dense(name, data):
    users, genres, clicked = data
    model, tables = _sok_model(sok.OptimizerWrapper(keras_optimizer(*CASES[name]), "global"))
    one_hot = [np.eye(USERS)[users], np.eye(GENRES)[genres].mean(axis=1)]
    inputs = [keras.Input((USERS,)), keras.Input((GENRES,))]
    kernels = [keras.layers.Dense(WIDTH, use_bias=False) for _ in tables]
    plain = keras.Model(inputs, _head(*(kernel(x) for kernel, x in zip(kernels, inputs))))
    plain.compile(keras_optimizer(*CASES[name]), "binary_crossentropy")
    for kernel, table, count in zip(kernels, tables, (USERS, GENRES)):
        kernel.kernel.assign(_initial_rows(table, count))
        # A dense array has all of its rows from the beginning.
        sok.lookup_sparse(table, tf.range(count, dtype=tf.int64))
    for ours, theirs in zip(model.get_layer("linear").weights, plain.get_layer("linear").weights):
        theirs.assign(ours)
    history = _fit(model, [users[:, None], genres], clicked)
    np.testing.assert_allclose(history, _fit(plain, one_hot, clicked), **CLOSE)


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_local_updates_follow_the_embedding_of_tf_keras(name, data):
    users, genres, clicked = data
    formula, hyper = CASES[name]
    model, tables = _sok_model(sok.OptimizerWrapper(keras_optimizer(formula, hyper)))
    embeddings = [tf_keras.layers.Embedding(count, WIDTH) for count in (USERS, GENRES)]
    for embedding, table in zip(embeddings, tables):
        embedding.build(None)
        embedding.embeddings.assign(_initial_rows(table, embedding.input_dim))
    linear = tf_keras.layers.Dense(1)
    linear.build([None, 2 * WIDTH])
    linear.set_weights(model.get_layer("linear").get_weights())
    optimizer = {"sgd": tf_keras.optimizers.SGD, "adagrad": tf_keras.optimizers.Adagrad}[name](**hyper)
    variables = [e.embeddings for e in embeddings] + linear.trainable_variables

    @tf.function
    def step(user_ids, genre_ids, labels):
        with tf.GradientTape() as tape:
            user = embeddings[0](user_ids)
            genre = tf.reduce_mean(embeddings[1](genre_ids), axis=1)
            logits = tf.reduce_sum(user * genre, 1) + linear(tf.concat([user, genre], 1))[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    expected = []
    for _ in range(EPOCHS):
        parts = [slice(at, at + BATCH) for at in range(0, EXAMPLES, BATCH)]
        expected.append(np.mean([step(users[p], genres[p], clicked[p]) for p in parts]))
    history = _fit(model, [users[:, None], genres], clicked)
    np.testing.assert_allclose(history, expected, **CLOSE)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The demo learns from the ids, through tables, and does so as plain embeddings with a vocabulary would."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import sok
from sok.data import movielens
from sok.models import movielens_demo
from sok.models.dlrm import DLRM

ROOT = pathlib.Path(__file__).parents[1]
BATCH, FOLLOWED_EPOCHS, UNITS = 512, 4, (64, 32)


@pytest.fixture(scope="module")
def ratings():
    return movielens.load()


def _initial_rows(layer, ids):
    """What the rows were before training: a pure function of the seed and the id."""
    fresh = type(layer).from_config(layer.get_config())
    return sok.lookup_sparse(fresh.table, ids, training=False).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_auc_comes_from_the_ids_through_every_table(seed, ratings):
    model, history, _ = movielens_demo.train(seed, verbose=0)
    auc = history["val_auc"][-1]
    assert auc >= 0.76
    _, validation = movielens.split(ratings, seed)
    permuted = movielens.permute_ids(validation, seed).dataset(4096)
    assert model.evaluate(permuted, verbose=0, return_dict=True)["auc"] <= auc - 0.05
    for layer in model.embeddings.values():
        ids, rows = sok.export(layer.table)
        assert len(ids) == layer.table.size[0] > 1
        moved = np.abs(rows.numpy() - _initial_rows(layer, ids)).max(axis=1)
        # Every row, since each was inserted by a batch that then updated it.
        assert (moved > 1e-6).all(), layer.name


@pytest.mark.slow
def test_the_command_leaves_a_model_for_a_second_process(tmp_path):
    command = [sys.executable, "-m", "sok.models.movielens_demo", "--epochs", "1", "--output", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    auc = json.loads((tmp_path / "metrics.json").read_text())["val_auc"]
    assert f"loaded model.keras: validation AUC {auc:.6f}, the same as {auc:.6f}" in done.stdout
    assert "157/157" in done.stdout  # the progress bar
    for feature in movielens.FEATURES:
        assert f"\n{feature} " in done.stdout  # what the tables hold
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    # Another AUC beside the model: the second process must not agree.
    (tmp_path / "metrics.json").write_text(json.dumps({"val_auc": auc + 0.01}))
    command = [*command[:3], "--evaluate", str(tmp_path)]
    again = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert again.returncode == 1
    assert "NOT the same as" in again.stdout


def _with_vocabulary(ratings):
    """The same ratings with ids numbered from 0, and the ids by their numbers."""
    ids, vocabulary = {}, {}
    for name, column in ratings.ids.items():
        vocabulary[name], ids[name] = np.unique(column, return_inverse=True)
    vocabulary["genres"], genres = np.unique(ratings.genres, return_inverse=True)
    return movielens.Ratings(ids, genres, ratings.genre_splits, ratings.labels), vocabulary


class PlainEmbedding(keras.layers.Layer):
    """Keras's Embedding; the mean over a bag."""

    def __init__(self, rows):
        super().__init__()
        self.embedding = keras.layers.Embedding(*rows.shape)
        self.embedding.build()
        self.embedding.set_weights([rows])

    def call(self, ids):
        return _mean(self.embedding, ids)

    def compute_output_shape(self, input_shape):
        return input_shape[0], self.embedding.output_dim


def _mean(embedding, ids):
    if isinstance(ids, tf.RaggedTensor):
        return tf.reduce_mean(ids.with_flat_values(embedding(ids.flat_values)), axis=1)
    return embedding(ids)


def _fit(model, optimizer, ratings):
    model.compile(optimizer, keras.losses.BinaryCrossentropy())
    history = model.fit(ratings.dataset(BATCH), epochs=FOLLOWED_EPOCHS, shuffle=False, verbose=0)
    return history.history["loss"]


def _our_model(seed=1):
    tables = {
        name: sok.layers.DistributedEmbedding(movielens_demo.DIMENSION, "mean", seed=seed + number, name=name)
        for number, name in enumerate(movielens.FEATURES)
    }
    return DLRM(tables, top_units=UNITS)


@pytest.mark.slow
def test_sgd_follows_plain_embeddings_of_keras(ratings):
    numbered, vocabulary = _with_vocabulary(ratings)
    ours = _our_model()
    rows = {name: _initial_rows(ours.embeddings[name], ids) for name, ids in vocabulary.items()}
    plain = DLRM({name: PlainEmbedding(values) for name, values in rows.items()}, top_units=UNITS)
    for model, data in ((ours, ratings), (plain, numbered)):
        model(next(iter(data.dataset(2)))[0])
    plain.get_layer("top").set_weights(ours.get_layer("top").get_weights())
    # At twice this rate the rounding of single sums grows to 1e-3 of the loss.
    losses = _fit(ours, sok.OptimizerWrapper(keras.optimizers.SGD(0.5)), ratings)
    expected = _fit(plain, keras.optimizers.SGD(0.5), numbered)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-3)
    assert losses[-1] < losses[0] - 0.02


class TfKerasDLRM(tf.Module):
    """The demo's model written anew, with layers of tf_keras."""

    def __init__(self, rows, weights):
        super().__init__()
        self.embeddings = {}
        for name, values in rows.items():
            self.embeddings[name] = tf_keras.layers.Embedding(*values.shape)
            self.embeddings[name].build(None)
            self.embeddings[name].set_weights([values])
        self.top = []
        for kernel, bias in zip(weights[::2], weights[1::2]):
            self.top.append(tf_keras.layers.Dense(len(bias)))
            self.top[-1].build([None, len(kernel)])
            self.top[-1].set_weights([kernel, bias])

    def __call__(self, inputs):
        vectors = [_mean(embedding, inputs[name]) for name, embedding in self.embeddings.items()]
        pairs = [
            tf.reduce_sum(a * b, axis=1, keepdims=True) for i, a in enumerate(vectors) for b in vectors[i + 1 :]
        ]
        hidden = tf.concat([*vectors, *pairs], axis=1)
        for layer in self.top[:-1]:
            hidden = tf.nn.relu(layer(hidden))
        return self.top[-1](hidden)[:, 0]


@pytest.mark.slow
def test_adagrad_follows_embeddings_of_tf_keras(ratings):
    hyper = {"learning_rate": 0.05, "initial_accumulator_value": 1e-3}
    numbered, vocabulary = _with_vocabulary(ratings)
    ours = _our_model()
    ours(next(iter(ratings.dataset(2)))[0])
    rows = {name: _initial_rows(ours.embeddings[name], ids) for name, ids in vocabulary.items()}
    oracle = TfKerasDLRM(rows, ours.get_layer("top").get_weights())
    optimizer = tf_keras.optimizers.Adagrad(**hyper)

    @tf.function(reduce_retracing=True)
    def step(features, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, oracle(features))
            loss = tf.reduce_mean(losses)
        variables = [*tf.nest.flatten([e.weights for e in oracle.embeddings.values()])]
        variables += tf.nest.flatten([layer.weights for layer in oracle.top])
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return tf.reduce_sum(losses)

    expected = []
    for _ in range(FOLLOWED_EPOCHS):
        total = sum(float(step(*batch)) for batch in numbered.dataset(BATCH))
        expected.append(total / len(numbered))
    losses = _fit(ours, sok.OptimizerWrapper(keras.optimizers.Adagrad(**hyper)), ratings)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-3)
    assert losses[-1] < losses[0] - 0.02

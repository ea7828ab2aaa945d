# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Small Keras models with a table, in each style, and the same model with an embedding of Keras's own."""

import keras
import numpy as np
import tensorflow as tf

import sok

ROWS, WIDTH, HOTNESS = 30, 4, 3


def examples(rng):
    """Ids, and labels that depend on them."""
    ids = rng.integers(0, ROWS, (70, HOTNESS))
    return ids, (ids.sum(axis=1, keepdims=True) % 2).astype(np.float32)


def random_rows(rng):
    return rng.normal(size=(ROWS, WIDTH)).astype(np.float32)


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, embedding=None, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding or sok.layers.DistributedEmbedding(WIDTH)
        self.dense = keras.layers.Dense(1)

    def call(self, inputs, training=None):
        return self.dense(self.embedding(inputs, training=training))


def sequential(embedding):
    return keras.Sequential([keras.Input((HOTNESS,), dtype="int64"), embedding, keras.layers.Dense(1)])


def functional(embedding):
    inputs = keras.Input((HOTNESS,), dtype="int64")
    return keras.Model(inputs, keras.layers.Dense(1)(embedding(inputs)))


STYLES = {"sequential": sequential, "functional": functional, "subclassed": Subclassed}


def prepare(model, data, rows):
    """The same weights for every model."""
    model(tf.constant(data[0][:1]))
    embedding = next(layer for layer in model.layers if hasattr(layer, "table"))
    sok.assign(embedding.table, np.arange(ROWS), rows)
    dense = model.layers[-1]
    dense.set_weights([np.linspace(-1, 1, WIDTH, dtype=np.float32)[:, None], np.zeros(1, np.float32)])
    return model, embedding.table


def plain_keras(data, rows, epochs, learning_rate=0.1):
    """What a dense Embedding learns: with SGD, repeated ids add up there as well."""
    inputs = keras.Input((HOTNESS,), dtype="int64")
    embedding = keras.layers.Embedding(ROWS, WIDTH)
    x = keras.layers.GlobalAveragePooling1D()(embedding(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    embedding.set_weights([rows])
    model.layers[-1].set_weights([np.linspace(-1, 1, WIDTH, dtype=np.float32)[:, None], np.zeros(1, np.float32)])
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    history = model.fit(*data, batch_size=16, epochs=epochs, shuffle=False, verbose=0)
    return history.history["loss"], embedding.get_weights()[0]


def compiled(style="functional", optimizer=None, **kwargs):
    embedding = sok.layers.DistributedEmbedding(WIDTH, **kwargs)
    model = STYLES[style](embedding)
    model.compile(optimizer or sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1)), "mse")
    return model, embedding.table

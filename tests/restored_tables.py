# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ways by which a table gets back what was saved, each from one table into another."""

import pickle

import keras
import numpy as np
import tensorflow as tf

import sok


class Holder(sok.layers.TableMixin, keras.layers.Layer):
    """A layer with the one table that it is given."""

    def __init__(self, table, **kwargs):
        super().__init__(name="holder", **kwargs)
        self.supports_jit = False
        self.table = table

    def get_config(self):
        return {"name": self.name}

    def call(self, inputs):
        return sok.lookup_sparse(self.table, inputs, training=False)


def model_of(table):
    return keras.Sequential([keras.Input((1,), dtype="int64"), Holder(table)])


def by_checkpoint(saved, table, folder):
    path = tf.train.Checkpoint(table=saved).save(str(folder / "checkpoint"))
    tf.train.Checkpoint(table=table).restore(path).assert_consumed()


def by_assign(saved, table, folder):
    table.assign(saved.numpy())


def by_pickle(saved, table, folder):
    table.assign(pickle.loads(pickle.dumps(saved.numpy())))


def by_set_weights(saved, table, folder):
    model_of(table).set_weights(model_of(saved).get_weights())


def by_weights_file(saved, table, folder):
    model_of(saved).save_weights(folder / "m.weights.h5")
    model_of(table).load_weights(folder / "m.weights.h5")


def by_keras_file(saved, table, folder):
    model_of(saved).save(folder / "m.keras")
    model_of(table).load_weights(folder / "m.keras")


WAYS = [by_checkpoint, by_assign, by_pickle, by_set_weights, by_weights_file, by_keras_file]


def train(table, optimizer, ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, ids))
    optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))


def snapshot(table):
    """Everything that a table holds, its rows in the order of their keys."""
    state = {name: np.asarray(array) for name, array in table.table.state().items()}
    order = np.argsort(state["keys"])
    rows = {name: state[name][order].tolist() for name in ("keys", "values", "states")}
    return {name: rows.get(name, array.tolist()) for name, array in state.items()}

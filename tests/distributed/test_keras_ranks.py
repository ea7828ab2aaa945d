# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras on several ranks: `fit` with its callbacks, evaluation, and what saving says."""

import keras
import model
import numpy as np
import tensorflow as tf

import sok

USERS, ITEMS, SAMPLES, BATCH = 40, 25, 240, 24


def dataset(rank, size):
    """This rank's share of every batch: of equal size on all ranks."""
    rng = np.random.default_rng(3)
    features = {
        "user": rng.integers(0, USERS, SAMPLES) + 2**40,
        "item": rng.integers(0, ITEMS, (SAMPLES, 3)),
        "seen": rng.integers(0, USERS, (SAMPLES, 2)) + 2**40,
    }
    labels = ((features["user"] + features["item"].sum(1)) % 2).astype(np.float32)
    everything = tf.data.Dataset.from_tensor_slices((features, labels)).shard(size, rank)
    return everything.batch(BATCH // size)


def make_model(seed, on_ranks):
    """Three tables: one shared by two features, one on one rank, one on all ranks."""
    keras.utils.set_random_seed(seed)
    inputs = {
        "user": keras.Input((), dtype="int64"),
        "item": keras.Input((3,), dtype="int64"),
        "seen": keras.Input((2,), dtype="int64"),
    }
    users = sok.TableConfig("users", 8, initializer="normal", seed=1)
    collected = sok.EmbeddingCollection(
        [sok.FeatureConfig("user", users), sok.FeatureConfig("seen", users, combiner="sum")]
    )({name: inputs[name] for name in ("user", "seen")})
    local = sok.layers.DistributedEmbedding(
        4, vocabulary_size=ITEMS, seed=2, mode="localized:1" if on_ranks else None
    )(inputs["item"])
    everywhere = sok.layers.DistributedEmbedding(
        3, "sum", vocabulary_size=ITEMS, seed=3, mode="data_parallel" if on_ranks else None
    )(inputs["item"])
    x = keras.layers.Concatenate()([*collected.values(), local, everywhere])
    x = keras.layers.Dense(8, "relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(x))


def fit(epochs, on_ranks):
    c = sok.init()
    # Dense weights differ on purpose: the callback makes them equal.
    built = make_model(c.rank, on_ranks)
    built.compile(sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1)), "binary_crossentropy")
    data = dataset(c.rank, c.size)
    callbacks = [sok.comm.BroadcastVariables(0), sok.comm.AverageMetrics()]
    history = built.fit(
        data, epochs=epochs, validation_data=data, callbacks=callbacks, verbose=0, shuffle=False
    )
    tables, dense = sok.filter_variables(built.trainable_variables)
    unknown = {k: np.full((2, *v.shape[1:]), 10**9 if k != "item" else 0) for k, v in next(iter(data))[0].items()}
    rows = [t.table.row_count() for t in tables]
    predicted = built.predict(unknown, verbose=0)
    assert [t.table.row_count() for t in tables] == rows
    evaluated = built.evaluate(data, verbose=0)
    return history.history, model.export_all(tables), [np.asarray(v) for v in dense], predicted, evaluated


def test_fit(ranks):
    results = ranks.run(fit, 3, True)
    history, rows, dense, predicted, _ = fit(3, False)
    for got_history, _, got_dense, got_predicted, _ in results:
        for name in ("loss", "val_loss"):
            np.testing.assert_allclose(got_history[name], history[name], rtol=1e-4)
        for got, want in zip(got_dense, dense):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got_predicted, predicted, rtol=1e-4)
    # AverageMetrics: the mean of what each rank's own evaluation says.
    own = np.mean([result[4] for result in results])
    np.testing.assert_allclose(own, history["val_loss"][-1], rtol=1e-4)
    placed = [model.Table(n, mode=m) for n, m in zip("abc", (None, "localized:1", "data_parallel"))]
    for got, want in zip(model.merge_exports([r[1] for r in results], placed), rows):
        assert set(got) == set(want)
        for id_, row in want.items():
            np.testing.assert_allclose(got[id_], row, rtol=1e-4, atol=1e-5)


def nested_functions():
    """A lookup in a tf.function inside of a tf.function, and one after it."""
    c = sok.init()
    table = sok.Variable(tf.reshape(tf.range(12.0), [6, 2]))
    inner = tf.function(lambda ids: sok.lookup_sparse(table, ids, combiners="sum"))

    @tf.function
    def outer(ids):
        with tf.GradientTape() as tape:
            y = inner(ids) + sok.lookup_sparse(table, ids, combiners="sum") + inner(ids + 1)
        slices = tape.gradient(y, [table])[0]
        return y, slices

    y, slices = outer(tf.constant([[c.rank, 3]], tf.int64))
    return y.numpy().tolist(), float(tf.reduce_sum(slices.values))


def test_functions_within_functions(ranks):
    results = ranks.run(nested_functions)
    row = np.arange(12).reshape(6, 2)
    for rank, (y, _) in enumerate(results):
        want = 2 * (row[rank] + row[3]) + row[rank + 1] + row[4]
        assert y == [want.tolist()]
    assert sum(total for _, total in results) == 12 * ranks.size

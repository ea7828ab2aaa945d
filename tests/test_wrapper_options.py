# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hyper-parameters that Keras has, against Keras: clipping, schedules, weight decay, the loss scale."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
from world import ON_GPU

import sok

ROWS, WIDTH = 6, 3


class Pair:
    """A table and a dense variable, and beside them the table's rows as a dense variable under the bare
    optimizer: with update="global" both must stay equal."""

    def __init__(self, make, rng, **wrapper):
        values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
        self.table, _ = kinds.table_of(dict(enumerate(values)))
        self.other = keras.Variable(np.ones(4, np.float32), name="bias")
        self.optimizer = sok.OptimizerWrapper(make(), "global", **wrapper)
        self.dense = keras.Variable(values)
        self.dense_other = keras.Variable(np.ones(4, np.float32), name="bias")
        self.dense_optimizer = make()
        self.rng = rng

    def step(self, scale=1.0):
        ids = self.rng.integers(0, ROWS, 8)
        gradients = scale * self.rng.normal(size=(8, WIDTH)).astype(np.float32)
        other = tf.constant(scale * self.rng.normal(size=4), tf.float32)
        summed = np.zeros((ROWS, WIDTH), np.float32)
        np.add.at(summed, ids, gradients)
        self.optimizer.apply_gradients([(kinds.slices(ids, gradients), self.table), (tf.identity(other), self.other)])
        self.dense_optimizer.apply([tf.constant(summed), other], [self.dense, self.dense_other])

    def check(self):
        # A GPU adds the gradients of a row as they arrive.
        tolerance = {"rtol": 2e-4, "atol": 2e-5} if ON_GPU else {"rtol": 2e-5, "atol": 2e-6}
        kinds.assert_rows(kinds.export_as_dict(self.table), dict(enumerate(self.dense.numpy())), **tolerance)
        np.testing.assert_allclose(self.other.numpy(), self.dense_other.numpy(), rtol=2e-5, atol=2e-6)
        assert int(self.optimizer.iterations) == int(self.dense_optimizer.iterations)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clipvalue": 0.5},
        {"clipnorm": 0.7},
        {"global_clipnorm": 0.9},
        {"global_clipnorm": 1e6},
        {"weight_decay": 0.3},
        {"loss_scale_factor": 4.0},
        {"loss_scale_factor": 4.0, "clipvalue": 0.1},
        {"loss_scale_factor": 4.0, "clipnorm": 0.2},
        {"loss_scale_factor": 4.0, "global_clipnorm": 0.2},
        {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.3)},
        {"learning_rate": lambda: 0.25},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_hold_for_tables(options, rng):
    options = {"learning_rate": 0.1, **options}
    pair = Pair(lambda: keras.optimizers.Adam(**options), rng)
    for _ in range(4):
        pair.step(options.get("loss_scale_factor", 1.0))
    pair.check()


def test_clipping_works_on_merged_rows():
    for option in ("clipnorm", "global_clipnorm"):
        table = sok.Variable([[0.0, 0.0], [0.0, 0.0]])
        optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, **{option: 3.5}))
        optimizer.apply_gradients([(kinds.slices([1, 1], [[3, 0], [4, 0]]), table)])
        np.testing.assert_allclose(table.numpy(), [[0, 0], [-3.5, 0]], rtol=1e-6)


def test_global_clipnorm_spans_tables_and_dense_variables():
    tables = [sok.Variable([[0.0]]), sok.Variable([[0.0]])]
    dense = keras.Variable([0.0])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, global_clipnorm=1.0))
    gradients = [kinds.slices([0], [[2]]), kinds.slices([0, 0], [[1], [2]]), tf.constant([6.0])]
    optimizer.apply(gradients, [*tables, dense])
    np.testing.assert_allclose([tables[0].numpy()[0, 0], tables[1].numpy()[0, 0]], [-2 / 7, -3 / 7], rtol=1e-6)
    np.testing.assert_allclose(dense.numpy(), [-6 / 7], rtol=1e-6)


@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_clipping_does_not_spread_what_is_not_finite(option, bad):
    table = sok.Variable([[1.0], [1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, **{option: 1.0}))
    optimizer.apply_gradients([(kinds.slices([0, 1], [[bad], [0.5]]), table)])
    rows = table.numpy()
    assert np.isnan(rows[0, 0])
    assert rows[1, 0] == 1.0


def test_learning_rate_is_assigned_during_training(rng):
    pair = Pair(lambda: keras.optimizers.Adagrad(0.1), rng)
    table = pair.table
    pair.optimizer.build([table, pair.other])
    step = tf.function(lambda *gradients: pair.optimizer.apply(gradients, [table, pair.other]))
    for rate in (0.1, 0.5, 0.0):
        pair.optimizer.learning_rate = rate
        assert float(pair.optimizer.learning_rate) == pytest.approx(rate)
        before = kinds.export_as_dict(table)[0].copy()
        step(kinds.slices([0], [[1, 1, 1]]), tf.zeros(4))
        assert np.array_equal(before, kinds.export_as_dict(table)[0]) == (rate == 0.0)
    assert step.experimental_get_tracing_count() == 1


def test_exclude_from_weight_decay(rng):
    first, second, third = (sok.Variable([[1.0]], name=name) for name in ("first", "second", "third"))
    kept, decayed = keras.Variable([1.0], name="kept"), keras.Variable([1.0], name="decayed")
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1, weight_decay=1.0), per_table={"second": 0.2})
    optimizer.exclude_from_weight_decay(var_list=[first, kept], var_names=["sec"])
    zero = kinds.slices([0], [[0]])
    optimizer.apply([zero, zero, zero, tf.zeros(1), tf.zeros(1)], [first, second, third, kept, decayed])
    values = [float(np.ravel(v.numpy())[0]) for v in (first, second, third, kept, decayed)]
    np.testing.assert_allclose(values, [1, 1, 0.9, 1, 0.9], rtol=1e-6)


def test_hyper_parameters_assigned_later_hold():
    table = sok.Variable([[1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1))
    optimizer.inner_optimizer.momentum = 0.5
    for _ in range(2):
        optimizer.apply([kinds.slices([0], [[1]])], [table])
    np.testing.assert_allclose(table.numpy(), [[0.75]], rtol=1e-6)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which calls of a model change its table: training does, inference and a frozen layer do not."""

import kinds
import numpy as np
import pytest
from keras_models import WIDTH, compiled, examples, functional

import sok


@pytest.fixture
def data(rng):
    return examples(rng)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_only_training_inserts(data, run_eagerly):
    model, table = compiled()
    model.run_eagerly = run_eagerly
    ids, y = data
    model.predict(ids, verbose=0)
    model.evaluate(ids, y, verbose=0)
    model.test_on_batch(ids, y)
    model.predict_on_batch(ids)
    assert table.size == [0, WIDTH]
    model.fit(ids[:10], y[:10], validation_data=(ids + 1000, y), verbose=0)
    assert table.size == [len(np.unique(ids[:10])), WIDTH]
    model.train_on_batch(ids, y)
    assert table.size == [len(np.unique(ids)), WIDTH]
    counters = sok.stats(table)[table.name]
    assert counters["rows"] == counters["inserted"] == table.size[0]


def test_predict_needs_no_optimizer(data):
    model = functional(sok.layers.DistributedEmbedding(WIDTH, default="zeros"))
    np.testing.assert_array_equal(model.predict(data[0], verbose=0), np.zeros((70, 1)))


def test_freezing_follows_keras(data):
    """A frozen layer learns nothing and inserts nothing; unfreezing wants a new compile."""
    model, table = compiled()
    model.fit(*data, verbose=0)
    before = kinds.export_as_dict(table)
    embedding = model.layers[1]
    embedding.trainable = False
    model.compile(sok.OptimizerWrapper("adam"), "mse")
    kernel = model.layers[-1].get_weights()[0]
    model.fit(data[0] + 5, data[1], verbose=0)
    kinds.assert_rows(kinds.export_as_dict(table), before)
    assert np.all(model.layers[-1].get_weights()[0] != kernel)
    assert table in model.non_trainable_variables
    embedding.trainable = True
    model.compile(sok.OptimizerWrapper("adam"), "mse")
    model.fit(data[0] + 5, data[1], verbose=0)
    assert table.size[0] > len(before)

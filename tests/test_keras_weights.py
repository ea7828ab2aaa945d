# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights of models whose tables grow: taken and set, restored by early stopping, cloned, counted."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
from keras_models import HOTNESS, WIDTH, compiled, examples

import sok


@pytest.fixture
def data(rng):
    return examples(rng)


def test_get_and_set_weights_of_a_table_that_grew(data):
    model, table = compiled()
    model.fit(data[0][:5], data[1][:5], verbose=0)
    weights = model.get_weights()
    prediction = model.predict(data[0], verbose=0)
    before = kinds.export_as_dict(table)
    model.fit(*data, epochs=2, verbose=0)
    assert table.size[0] > len(before)
    model.set_weights(weights)
    kinds.assert_rows(kinds.export_as_dict(table), before)
    np.testing.assert_array_equal(model.predict(data[0], verbose=0), prediction)
    array = table.numpy()
    assert array.shape == (len(before), WIDTH)
    np.testing.assert_array_equal(array, np.stack([before[i] for i in array.ids.tolist()]))


def test_weights_of_another_model(data):
    """set_weights between two models of one shape, states included."""
    model, table = compiled()
    model.fit(*data, verbose=0)
    other, other_table = compiled()
    other.set_weights(model.get_weights())
    kinds.assert_rows(kinds.export_as_dict(other_table), kinds.export_as_dict(table))
    ids, accumulators = (sok.check_out(table)[name] for name in ("ids", "adagrad.accumulator"))
    found = sok.check_out(other_table)
    expected = dict(zip(ids.tolist(), accumulators, strict=True))
    kinds.assert_rows(dict(zip(found["ids"].tolist(), found["adagrad.accumulator"], strict=True)), expected)
    wider, _ = compiled()
    with pytest.raises(ValueError, match="only from its own numpy"):
        wider.layers[1].table.assign(np.zeros((3, WIDTH)))


def test_early_stopping_restores_the_best_table(data):
    """The table has grown since its best epoch; the best one comes back as it was."""
    model, table = compiled(optimizer=sok.SGD(0.05))
    ids, y = data
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((kinds.export_as_dict(table), logs["val_loss"]))

    def batches():
        # Each epoch brings new ids, and soon labels that are far away.
        for epoch in range(8):
            for _ in range(2):
                yield ids + 1000 * epoch, y if epoch < 2 else y + 100.0

    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=(tf.TensorSpec((None, HOTNESS), tf.int64), tf.TensorSpec((None, 1)))
    )
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True)
    model.fit(
        dataset,
        steps_per_epoch=2,
        epochs=8,
        shuffle=False,
        validation_data=(ids, y),
        verbose=0,
        callbacks=[Watch(), stop],
    )
    best = int(np.argmin([loss for _, loss in seen]))
    assert stop.stopped_epoch > best
    assert len(seen[-1][0]) > len(seen[best][0])
    kinds.assert_rows(kinds.export_as_dict(table), seen[best][0])
    np.testing.assert_allclose(model.evaluate(ids, y, verbose=0), seen[best][1], rtol=1e-6)


def test_clone_model(data):
    model, table = compiled()
    model.fit(*data, verbose=0)
    clone = keras.models.clone_model(model)
    assert clone.layers[1].table is not table
    assert clone.layers[1].table.size == [0, WIDTH]
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone.predict(data[0], verbose=0), model.predict(data[0], verbose=0))
    model.fit(*data, verbose=0)
    clone_rows = kinds.export_as_dict(clone.layers[1].table)
    assert any(np.any(clone_rows[i] != row) for i, row in kinds.export_as_dict(table).items())


def test_summary_counts_live_rows(data):
    model, table = compiled()
    model.fit(*data, verbose=0)
    lines = []
    model.summary(print_fn=lambda text, **kwargs: lines.append(text))
    assert str(table.size[0] * WIDTH) in "".join(lines)
    assert model.count_params() == table.size[0] * WIDTH + WIDTH + 1

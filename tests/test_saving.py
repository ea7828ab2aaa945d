# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables in .keras files and weight files, and callbacks that write them."""

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf
from models_to_save import KINDS, WIDTH, assert_same, examples, make_model, states_of, tables_of

import sok

pytestmark = pytest.mark.usefixtures("deterministic")


@pytest.fixture
def data(rng):
    return examples(rng)


@pytest.mark.parametrize("kind", KINDS)
def test_keras_file(tmp_path, data, kind):
    """Rows, states, steps; the next training steps are those of the model that was saved."""
    model = make_model(kind)
    model.fit(*data, epochs=2, shuffle=False, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_same(states_of(loaded), states_of(model))
    np.testing.assert_array_equal(loaded.predict(data[0], verbose=0), model.predict(data[0], verbose=0))
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations) == 4
    fresh_ids = data[0] + 77
    for m in (model, loaded):
        m.fit(np.concatenate([data[0], fresh_ids]), np.tile(data[1], (2, 1)), shuffle=False, verbose=0)
    assert_same(states_of(loaded), states_of(model))
    np.testing.assert_array_equal(loaded.predict(fresh_ids, verbose=0), model.predict(fresh_ids, verbose=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".weights.h5", ".weights.json"])
def test_weight_files(tmp_path, data, kind, suffix):
    model = make_model(kind)
    model.fit(*data, verbose=0)
    arguments = {"max_shard_size": 0.00001} if suffix == ".weights.json" else {}
    path = tmp_path / f"m{suffix}"
    model.save_weights(path, **arguments)
    other = make_model(kind)
    other.fit(data[0] + 5, data[1], verbose=0)
    other.load_weights(path)
    assert_same(states_of(other), states_of(model))
    np.testing.assert_array_equal(other.predict(data[0], verbose=0), model.predict(data[0], verbose=0))


@pytest.mark.parametrize("kind", ["hash", "static"])
def test_empty_and_static_tables(tmp_path, kind):
    size = {"vocabulary_size": 7} if kind == "static" else {}
    model = make_model(**size)
    expected = states_of(model)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_same(states_of(loaded), expected)
    assert loaded.layers[1].table.size == [7 if size else 0, WIDTH]
    checkpoint = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    other = make_model(**size)
    tf.train.Checkpoint(model=other).restore(checkpoint).assert_existing_objects_matched()
    assert_same(states_of(other), expected)


@pytest.mark.parametrize("dtype", reference.ROW_DTYPES)
def test_row_types(tmp_path, data, dtype):
    """16-bit rows come back with every bit."""
    model = make_model("collection", dtype=dtype)
    model.fit(*data, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert tables_of(loaded)[0].attributes.row_type == dtype
    assert_same(states_of(loaded), states_of(model))


def test_files_of_another_model(tmp_path, data):
    """Refused by name, and nothing has changed."""
    wide = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(5, name="embedding")])
    wide.save_weights(tmp_path / "wide.weights.h5")
    narrow = keras.Sequential(
        [keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(WIDTH, name="embedding")]
    )
    narrow(data[0], training=True)
    before = states_of(narrow)
    with pytest.raises(ValueError, match=r"'embedding_table'.* of dimension 5, this one has dimension 3"):
        narrow.load_weights(tmp_path / "wide.weights.h5")
    plain = keras.Sequential([keras.Input((2,), dtype="int64"), keras.layers.Embedding(9, WIDTH, name="embedding")])
    plain.save_weights(tmp_path / "plain.weights.h5")
    with pytest.raises(ValueError, match=r"the file holds no 'table.0.keys'"):
        narrow.load_weights(tmp_path / "plain.weights.h5")
    assert_same(states_of(narrow), before)
    small, large = (
        keras.Sequential(
            [
                keras.Input((2,), dtype="int64"),
                sok.layers.DistributedEmbedding(WIDTH, vocabulary_size=n, name="embedding"),
            ]
        )
        for n in (4, 6)
    )
    large.save_weights(tmp_path / "large.weights.h5")
    with pytest.raises(ValueError, match=r"'embedding_table'.* of 6 rows, this one has 4 rows"):
        small.load_weights(tmp_path / "large.weights.h5")


def test_plain_layer_with_a_table_refuses_to_be_saved_without_its_ids(tmp_path):
    class Plain(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.table = sok.DynamicVariable(2, name="items")

        def call(self, inputs):
            return sok.lookup_sparse(self.table, inputs)

    model = keras.Sequential([keras.Input((2,), dtype="int64"), Plain()])
    with pytest.raises(TypeError, match=r"'items'.*derives from sok\.layers\.TableMixin"):
        model.save_weights(tmp_path / "m.weights.h5")


def test_callbacks_that_save(tmp_path, data):
    """ModelCheckpoint in both forms; BackupAndRestore takes up a run that was cut off."""
    model = make_model()
    whole, weights = str(tmp_path / "best.keras"), str(tmp_path / "best.weights.h5")
    model.fit(
        *data,
        epochs=2,
        verbose=0,
        callbacks=[
            keras.callbacks.ModelCheckpoint(whole, monitor="loss"),
            keras.callbacks.ModelCheckpoint(weights, save_weights_only=True, monitor="loss"),
        ],
    )
    assert_same(states_of(keras.models.load_model(whole)), states_of(model))
    other = make_model()
    other.load_weights(weights)
    assert_same(states_of(other), states_of(model))

    class CutOff(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def fit(model, *callbacks, **kwargs):
        model.fit(*data, epochs=4, shuffle=False, verbose=0, callbacks=list(callbacks))

    keras.utils.set_random_seed(3)
    uninterrupted = make_model(seed=1)
    fit(uninterrupted)
    keras.utils.set_random_seed(3)
    model = make_model(seed=1)
    backup = str(tmp_path / "backup")
    with pytest.raises(KeyboardInterrupt):
        fit(model, keras.callbacks.BackupAndRestore(backup), CutOff())
    resumed = make_model(seed=1)
    fit(resumed, keras.callbacks.BackupAndRestore(backup))
    assert_same(states_of(resumed), states_of(uninterrupted))

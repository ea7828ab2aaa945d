# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras models on several ranks: `sok.save_model`, and what TensorFlow's and Keras's own savers do there."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from rows_of_ranks import assert_equal_tables
from test_saving_ranks import examples, small_model

import sok

EPOCHS = 2


def compiled(mode=None):
    keras.utils.set_random_seed(5)
    model = small_model(mode)
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adam(0.1)), "mse")
    return model


def fit(model, epochs=EPOCHS, **kwargs):
    """Every rank has the same batch, so that any number of ranks computes the same."""
    x, y = examples()
    model.fit(x, y, epochs=epochs, batch_size=30, shuffle=False, verbose=0, **kwargs)
    return model


def contents(model):
    """Of each table its planes by id, here; predictions; the step."""
    tables, _ = sok.filter_variables(model.variables)
    planes = []
    for table in tables:
        found = sok.check_out(table)
        ids = found.pop("ids").tolist()
        planes.append({plane: dict(zip(ids, rows, strict=True)) for plane, rows in found.items()})
    return planes, model.predict(examples()[0], verbose=0), int(model.optimizer.iterations)


def train_and_save(path, mode):
    sok.init()
    model = compiled(mode)
    for _ in range(2):  # the second takes the place of the first
        fit(model)
        sok.save_model(model, path)
    return contents(model)


def load_and_train(path):
    sok.init()
    model = sok.load_model(path)
    loaded = contents(model)
    return loaded, contents(fit(model))


def assert_equal(actual, expected, **tolerance):
    assert_equal_tables([rank[0] for rank in actual], [rank[0] for rank in expected], **tolerance)
    for _, predictions, step in actual:
        np.testing.assert_allclose(predictions, expected[0][1], rtol=1e-4, atol=1e-5)
        assert step == expected[0][2]


@pytest.mark.parametrize("mode", [None, "localized:1"])
def test_models_from_n_ranks_to_m_ranks(ranks_of, tmp_path, mode):
    """Rows and states are the same, and training goes on the same."""
    path = tmp_path / "m.keras"
    saved = ranks_of(2).run(train_and_save, str(path), mode)
    assert len(list(tmp_path.iterdir())) == 2  # the file and its tables, once
    after = {}
    for size in (1, 2, 3):
        if mode is not None and size == 1:
            continue  # the file asks for rank 1
        loaded, after[size] = zip(*ranks_of(size).run(load_and_train, str(path)), strict=True)
        assert_equal(loaded, saved, rtol=0, atol=0)
        assert_equal(after[size], after[max(after)], rtol=1e-4, atol=1e-5)


def save_where_rank_0_cannot(path):
    """The file cannot be written; its tables can."""
    sok.init()
    model = compiled()
    fit(model)
    sok.save_model(model, path)
    before = contents(model)
    fit(model)
    write = type(model).save

    def full(self, filepath, *args, **kwargs):
        raise OSError(28, "No space left on device")

    type(model).save = full
    try:
        sok.save_model(model, path)
    except Exception as error:
        return f"{type(error).__name__}: {error}", before
    finally:
        type(model).save = write
    return "", before


def test_a_save_that_fails_on_rank_0(ranks, tmp_path):
    path = str(tmp_path / "m.keras")
    texts, before = zip(*ranks.run(save_where_rank_0_cannot, path), strict=True)
    for text in texts:
        assert "No space left on device" in text
    loaded, _ = zip(*ranks.run(load_and_train, path), strict=True)
    assert_equal(loaded, before, rtol=0, atol=0)


def load_without_tables(path):
    sok.init()
    try:
        sok.load_model(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_file_without_its_tables(ranks, tmp_path):
    path = tmp_path / "m.keras"
    ranks.run(train_and_save, str(path), None)
    (folder,) = tmp_path.glob("m.keras.tables-*")
    folder.rename(tmp_path / "elsewhere")
    for text in ranks.run(load_without_tables, str(path)):
        assert f"has its tables in a folder {folder.name}, which is not beside it" in text


def save_between_epochs(folder):
    """`fit` that saves after every epoch; and one that goes on from the first epoch's file."""
    sok.init()
    path = f"{folder}/m.keras"
    kept = f"{folder}/first.keras"

    def save(model):
        def at_the_end(epoch, logs):
            sok.save_model(model, path)
            if epoch == 0:
                sok.save_model(model, kept)

        return keras.callbacks.LambdaCallback(on_epoch_end=at_the_end)

    model = compiled()
    fit(model, 3, callbacks=[save(model)])
    resumed = fit(sok.load_model(kept), 3, initial_epoch=1)
    return contents(model), contents(resumed), contents(sok.load_model(path))


def test_fit_that_saves_after_every_epoch(ranks, tmp_path):
    uninterrupted, resumed, last = zip(*ranks.run(save_between_epochs, str(tmp_path)), strict=True)
    assert_equal(resumed, uninterrupted, rtol=1e-5, atol=1e-6)
    assert_equal(last, uninterrupted, rtol=0, atol=0)


def savers(folder, model):
    """What TensorFlow and Keras save with, each in a folder of this rank."""
    here = f"{folder}/rank{sok.rank()}"
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, f"{here}/manager", max_to_keep=2)
    best = keras.callbacks.ModelCheckpoint(f"{here}/best.keras")
    weights = keras.callbacks.ModelCheckpoint(f"{here}/best.weights.h5", save_weights_only=True)
    backup = keras.callbacks.BackupAndRestore(f"{here}/backup")
    return {
        "CheckpointManager": manager.save,
        "ModelCheckpoint": lambda: fit(model, 1, callbacks=[best]),
        "ModelCheckpoint of weights": lambda: fit(model, 1, callbacks=[weights]),
        "BackupAndRestore": lambda: fit(model, 1, callbacks=[backup]),
    }


def save_parts(folder):
    """What each says to tables in parts."""
    sok.init()
    model = fit(compiled())
    texts = {}
    for name, save in savers(folder, model).items():
        try:
            save()
        except Exception as error:
            texts[name] = f"{type(error).__name__}: {error}"
    manager = pathlib.Path(f"{folder}/rank{sok.rank()}/manager")
    return texts, sorted(path.name for path in manager.glob("*.index"))


def test_savers_of_tensorflow_and_keras_refuse_parts_of_tables(ranks, tmp_path):
    for texts, kept in ranks.run(save_parts, str(tmp_path)):
        assert len(texts) == 4, texts
        for name, text in texts.items():
            assert "is in parts on several ranks" in text, name
            assert "sok.save_model(model, path)" in text, name
        assert kept == []


class StopTestError(Exception):
    """What ends a run in the middle."""


def replicated():
    """A model of which every rank has the whole."""
    keras.utils.set_random_seed(7)
    inputs = {"b": keras.Input((), dtype="int64", name="b")}
    table = sok.layers.DistributedEmbedding(3, vocabulary_size=9, seed=2, mode="data_parallel", name="static")
    model = keras.Model(inputs, keras.layers.Dense(1)(table(inputs["b"])))
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adam(0.1)), "mse")
    return model


def fit_replicated(model, epochs, **kwargs):
    x, y = examples()
    model.fit({"b": x["b"]}, y, epochs=epochs, batch_size=30, shuffle=False, verbose=0, **kwargs)
    return model


def state(model):
    (table,), _ = sok.filter_variables(model.variables)
    found = sok.check_out(table)
    return {plane: rows[np.argsort(found["ids"])] for plane, rows in found.items()}, int(model.optimizer.iterations)


def save_the_whole(folder):
    """Rank 0 saves, all ranks load: by each saver, then as by a run that was interrupted."""
    communicator = sok.init()
    expected = state(fit_replicated(replicated(), 3))
    first = fit_replicated(replicated(), 1)
    found = {}

    checkpoint = tf.train.Checkpoint(model=first)
    manager = tf.train.CheckpointManager(checkpoint, f"{folder}/manager", max_to_keep=1)
    if communicator.rank == 0:
        for _ in range(2):
            manager.save()
    communicator.barrier()
    restored = fit_replicated(replicated(), 1)  # the optimizer has states to restore into
    latest = tf.train.latest_checkpoint(f"{folder}/manager")
    tf.train.Checkpoint(model=restored).restore(latest).assert_existing_objects_matched()
    found["CheckpointManager"] = state(fit_replicated(restored, 3, initial_epoch=1))

    callbacks = [keras.callbacks.ModelCheckpoint(f"{folder}/m.keras")] if communicator.rank == 0 else []
    fit_replicated(replicated(), 1, callbacks=callbacks)
    communicator.barrier()
    found["ModelCheckpoint"] = state(
        fit_replicated(keras.saving.load_model(f"{folder}/m.keras"), 3, initial_epoch=1)
    )

    def interrupt(epoch, logs):
        if epoch == 1:
            raise StopTestError

    backup = keras.callbacks.BackupAndRestore(f"{folder}/backup{communicator.rank}")
    try:
        fit_replicated(replicated(), 3, callbacks=[backup, keras.callbacks.LambdaCallback(on_epoch_begin=interrupt)])
    except StopTestError:
        found["BackupAndRestore"] = state(fit_replicated(replicated(), 3, callbacks=[backup]))
    return expected, found


def test_savers_of_tensorflow_and_keras_keep_whole_tables(ranks, tmp_path):
    for (planes, step), found in ranks.run(save_the_whole, str(tmp_path)):
        assert set(found) == {"CheckpointManager", "ModelCheckpoint", "BackupAndRestore"}
        for name, (got, got_step) in found.items():
            assert got_step == step, name
            assert set(got) == set(planes), name
            for plane in planes:
                np.testing.assert_allclose(got[plane], planes[plane], rtol=1e-5, atol=1e-6, err_msg=f"{name} {plane}")

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weight files loaded into a compiled model that has not trained: the step and the slots of dense variables, which do
not exist yet, go with the states of rows."""

import warnings

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from models_to_save import assert_same, examples, make_model, states_of

import sok

pytestmark = pytest.mark.usefixtures("deterministic")

K = keras.optimizers
OPTIMIZERS = {
    "adam": lambda: sok.OptimizerWrapper(K.Adam(0.05)),
    "momentum": lambda: sok.OptimizerWrapper(K.SGD(0.05, momentum=0.9)),
    "schedule": lambda: sok.OptimizerWrapper(K.Adam(K.schedules.ExponentialDecay(0.1, 2, 0.5))),
    "scaled": lambda: sok.OptimizerWrapper(K.Adam(0.05), loss_scale="dynamic"),
    "per table": lambda: sok.OptimizerWrapper(K.Adam(0.05), per_table={"embedding_table": K.Adagrad(0.2)}),
}


@pytest.fixture
def data(rng):
    return examples(rng)


def make(optimizer="adam"):
    model = make_model()
    model.compile(OPTIMIZERS[optimizer](), "mse")
    return model


def fit(model, data, epochs):
    model.fit(*data, epochs=epochs, shuffle=False, verbose=0)


def load(model, path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Skipping")
        model.load_weights(path)


def assert_same_models(a, b, data):
    assert_same(states_of(a), states_of(b))
    assert len(a.optimizer.variables) == len(b.optimizer.variables)
    for mine, theirs in zip(a.optimizer.variables, b.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(a.predict(data[0], verbose=0), b.predict(data[0], verbose=0))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("suffix", [".weights.h5", ".weights.json", ".keras"])
def test_training_goes_on(tmp_path, data, optimizer, suffix):
    model = make(optimizer)
    fit(model, data, 3)
    path = tmp_path / f"m{suffix}"
    arguments = {"max_shard_size": 0.00001} if suffix == ".weights.json" else {}
    model.save(path) if suffix == ".keras" else model.save_weights(path, **arguments)
    other = make(optimizer)
    assert not other.optimizer.built
    load(other, path)
    assert int(other.optimizer.iterations) == 6
    for each in (model, other):
        fit(each, data, 2)
    assert_same_models(other, model, data)


@pytest.mark.parametrize("optimizer", ["adam", "scaled"])
def test_saved_again_before_the_first_step(tmp_path, data, optimizer):
    model = make(optimizer)
    fit(model, data, 2)
    model.save_weights(tmp_path / "first.weights.h5")
    between, last = make(optimizer), make(optimizer)
    load(between, tmp_path / "first.weights.h5")
    between.save_weights(tmp_path / "second.weights.h5")
    load(last, tmp_path / "second.weights.h5")
    for each in (model, last):
        fit(each, data, 1)
    assert_same_models(last, model, data)


def test_the_last_file_counts(tmp_path, data):
    model = make()
    for epochs, name in ((2, "old"), (1, "new")):
        fit(model, data, epochs)
        model.save_weights(tmp_path / f"{name}.weights.h5")
    other = make()
    load(other, tmp_path / "old.weights.h5")
    load(other, tmp_path / "new.weights.h5")
    assert int(other.optimizer.iterations) == 6
    other.optimizer.build(other.trainable_variables)
    assert_same_models(other, model, data)
    # Once built, as ever.
    load(other, tmp_path / "old.weights.h5")
    assert int(other.optimizer.iterations) == 4


def test_built_in_a_traced_step(tmp_path, data):
    """What waits is assigned once, not by the function."""
    model = make()
    fit(model, data, 2)
    model.save_weights(tmp_path / "m.weights.h5")
    other = make()
    load(other, tmp_path / "m.weights.h5")
    model.optimizer.build(model.trainable_variables)
    ids, y = (tf.constant(x) for x in data)

    def step_of(model):
        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(ids, training=True) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        return step

    for each in (model, other):
        step = step_of(each)
        for _ in range(3):
            step()
    assert int(other.optimizer.iterations) == 7
    assert_same_models(other, model, data)


def test_another_optimizer_says_that_its_slots_start_anew(tmp_path, data):
    model = make("adam")
    fit(model, data, 1)
    model.save_weights(tmp_path / "m.weights.h5")
    other = make("momentum")
    other.load_weights(tmp_path / "m.weights.h5")
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer 'sgd'.* slots start anew"):
        fit(other, data, 1)
    assert int(other.optimizer.iterations) == 4


def rename(own):
    own.move("1", "scale")


def cut(own):
    del own["1"]


def add(own):
    own["2"] = np.float32(1)


def widen(own):
    del own["1"]
    own["1"] = np.ones(2, np.float32)


def spell(own):
    del own["1"]
    own["1"] = "word"


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("damage", [rename, cut, add, widen, spell])
def test_a_loss_scale_that_is_none(tmp_path, data, damage, built):
    """Neither left out in silence nor taken by halves; the optimizer inside gets its own."""
    model = make("scaled")
    fit(model, data, 3)
    model.optimizer.dynamic_scale.assign(64.0)
    model.save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5", "r+") as file:
        damage(file["optimizer/vars"])
    other = make("scaled")
    scale = other.optimizer.initial_scale

    def build():
        other.optimizer.build(other.trainable_variables)

    def load_here():
        other.load_weights(tmp_path / "m.weights.h5")

    first, second = (build, load_here) if built else (load_here, build)
    first()
    with pytest.warns(UserWarning, match="Skipping .*'sok_adam.*saved one: its loss scale is as it was"):
        second()
    assert other.optimizer.built
    assert int(other.optimizer.step_counter) == 0
    assert float(other.optimizer.dynamic_scale) == scale
    mine, theirs = (m.optimizer.inner_optimizer.variables for m in (other, model))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    fit(other, data, 1)
    assert int(other.optimizer.step_counter) == 2


@pytest.mark.parametrize(("saved", "target"), [("scaled", "adam"), ("adam", "scaled")])
def test_with_and_without_a_loss_scale(tmp_path, data, saved, target):
    model, other = make(saved), make(target)
    fit(model, data, 1)
    model.save_weights(tmp_path / "m.weights.h5")
    other.load_weights(tmp_path / "m.weights.h5")
    with pytest.warns(UserWarning, match="its loss scale is as it was"):
        fit(other, data, 1)
    assert int(other.optimizer.iterations) == 4


def test_saved_before_the_first_step(tmp_path, data):
    """There is no loss scale to miss."""
    make("scaled").save_weights(tmp_path / "m.weights.h5")
    other = make("scaled")
    load(other, tmp_path / "m.weights.h5")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Skipping")
        fit(other, data, 1)
    assert int(other.optimizer.step_counter) == 2

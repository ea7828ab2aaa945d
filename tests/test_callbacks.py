# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""RunAhead: `fit` and `evaluate` do with it what they do without, and read nothing after a step."""

import copy
import pickle

import keras
import keras_models
import kinds
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.ops import optional_ops
from world import ON_GPU

import sok

X = np.random.default_rng(3).normal(size=(50, 4)).astype(np.float32)
Y = (X.sum(axis=1, keepdims=True) > 0).astype(np.float32)
DATA = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
UNKNOWN = DATA.filter(lambda x, y: True)
WEIGHTS = np.arange(50, dtype=np.float32)
# Arguments of `fit`, and the steps it does. None: where data ends unannounced, the step that has none may count or not.
CASES = {
    "arrays": (lambda: {"x": X, "y": Y, "validation_split": 0.2, "class_weight": {0: 0.3, 1: 2.0}}, 2),
    "weights": (lambda: {"x": X, "y": Y, "sample_weight": WEIGHTS, "validation_data": (X, Y, WEIGHTS)}, 2),
    "known": (lambda: {"x": DATA, "epochs": 3, "validation_data": DATA.take(3)}, 21),
    "unknown": (lambda: {"x": UNKNOWN, "epochs": 3, "validation_data": UNKNOWN}, None),
    "too many steps": (lambda: {"x": DATA, "epochs": 3, "steps_per_epoch": 9}, 21),
    "too many steps of unknown": (lambda: {"x": UNKNOWN, "epochs": 3, "steps_per_epoch": 9}, None),
    "epochs go on in the data": (lambda: {"x": UNKNOWN.repeat(), "epochs": 3, "steps_per_epoch": 5}, 15),
    "no data": (lambda: {"x": UNKNOWN.take(0)}, None),
    "generator with something absent": (lambda: {"x": ((X[i : i + 8], Y[i : i + 8], None) for i in range(9))}, None),
}


def model_of(cls=keras.Sequential, **compilation):
    keras.utils.set_random_seed(1)
    model = cls([keras.layers.Dense(1, "sigmoid")])
    options = {"metrics": ["mae"], "weighted_metrics": ["mse"], "jit_compile": False, **compilation}
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "binary_crossentropy", **options)
    return model


def ahead(logs_every=50):
    return [sok.callbacks.RunAhead(logs_every)]


def is_ahead(function):
    return function.__module__ == "sok.callbacks"


def check_same(run, make=model_of):
    """`run(model, callbacks)` gives the same, and leaves the same weights, with the callback and without."""
    results = []
    for callbacks in ([], ahead(1)):
        model = make()
        results.append([run(model, callbacks), model.get_weights()])
        assert is_ahead(model.train_function) == bool(callbacks)
    for g, w in zip(*map(tf.nest.flatten, results), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6 if ON_GPU else 0)


@pytest.fixture
def reads(monkeypatch):
    """An entry for every time that it was read whether there was a batch."""
    found, has_value = [], optional_ops._OptionalImpl.has_value
    monkeypatch.setattr(optional_ops._OptionalImpl, "has_value", lambda *args: found.append(1) or has_value(*args))
    return found


def test_nothing_is_read_after_a_step(reads):
    for callbacks, each in (([], 7), (ahead(), 0)):
        model = model_of()
        model.fit(DATA, epochs=2, verbose=0, callbacks=callbacks)
        assert len(reads) == 2 * each
        model.evaluate(DATA, verbose=0, callbacks=callbacks)
        assert len(reads) == 3 * each
        assert is_ahead(model.train_function) == is_ahead(model.test_function) == bool(callbacks)
        reads.clear()


@pytest.mark.parametrize("case", CASES)
def test_fit_does_the_same(case):
    arguments, steps = CASES[case]

    def run(model, callbacks):
        history = model.fit(**arguments(), verbose=0, shuffle=False, callbacks=callbacks).history
        assert steps in (None, int(model.optimizer.iterations))
        return history

    check_same(run)


@pytest.mark.parametrize("then", ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "copied"])
def test_what_comes_after_does_the_same(then):
    def run(model, callbacks):
        model.fit(X, Y, verbose=0, callbacks=callbacks)
        if then == "copied":  # by way of a .keras file
            return pickle.loads(pickle.dumps(model)).evaluate(X, Y, verbose=0)
        result = getattr(model, then)(X, *[Y][: then != "predict"], **{} if "batch" in then else {"verbose": 0})
        return getattr(result, "history", result)

    check_same(run)


def test_compiling_again_ends_it():
    model, (callback,) = model_of(), ahead()
    for again in (callback, copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        model.fit(X, Y, verbose=0, callbacks=[again])
        assert is_ahead(model.train_function)
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(X, Y, verbose=0)
        assert not is_ahead(model.train_function)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_other_callbacks_see_and_do_the_same(jit_compile):
    class Seen(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.seen = [*getattr(self, "seen", []), (batch, logs["loss"])]

    def run(model, callbacks):
        seen, stop = Seen(), keras.callbacks.EarlyStopping("val_loss", min_delta=0.1, restore_best_weights=True)
        callbacks = [seen, *callbacks, stop]
        history = model.fit(DATA, epochs=30, validation_data=UNKNOWN, verbose=0, callbacks=callbacks)
        assert 1 < len(history.epoch) < 30
        return history.history, seen.seen

    check_same(run, lambda: model_of(jit_compile=jit_compile))


def test_other_callbacks_see_what_was_read():
    """Of the first step of an epoch, and of every `logs_every`-th after it."""
    every = {}
    for logs_every in (1, 3):
        model, seen = model_of(), every.setdefault(logs_every, [])
        see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs, seen=seen: seen.append(logs["mae"]))
        for _ in range(2):
            history = model.fit(DATA, epochs=2, verbose=0, callbacks=[see, *ahead(logs_every)]).history
        every[logs_every, "history"] = history
    first = [7 * epoch + step for epoch in range(4) for step in (0, 0, 0, 3, 3, 3, 6)]
    np.testing.assert_allclose(every[3], np.array(every[1])[first], rtol=1e-6)
    np.testing.assert_allclose(every[3, "history"]["mae"], every[1, "history"]["mae"], rtol=1e-6)
    assert len(set(every[1])) == 28


def seen_by(*runs):
    """The loss after every step of some functions that take callbacks."""
    seen = []
    see = lambda _, logs: seen.append(logs["loss"])  # noqa: E731
    for run in runs:
        run([keras.callbacks.LambdaCallback(on_train_batch_end=see, on_test_batch_end=see)])
    return seen


@pytest.mark.parametrize("how", ["ends", "is interrupted"])
def test_runs_without_it_read_every_step(how):
    """Also after a run with it that did not come to its end."""

    def later(model):
        return (
            lambda callbacks: model.fit(DATA, verbose=0, callbacks=callbacks),
            lambda callbacks: model.evaluate(DATA.take(4), verbose=0, callbacks=callbacks),
        )

    losses = []
    for first in ([], ahead()):
        model = model_of()
        if how == "ends":
            model.fit(DATA, validation_data=DATA, verbose=0, callbacks=first)
        else:
            fail = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: 1 // (3 - batch))
            with pytest.raises(ZeroDivisionError):
                model.fit(DATA.repeat(), steps_per_epoch=9, verbose=0, callbacks=[*first, fail])
            model.set_weights([np.ones_like(w) for w in model.get_weights()])
        losses.append(seen_by(*later(model)))
    assert len(set(losses[0])) == len(losses[0]) == 11
    if how == "ends":  # how far the interrupted one came is up to its thread
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    else:
        assert len(set(losses[1])) == 11


def test_metrics_of_several_numbers():
    class Bounds(keras.metrics.Mean):
        def result(self):
            return {"low": super().result() - 1, "high": super().result() + 1}

        def update_state(self, y, y_pred, sample_weight=None):
            return super().update_state(y_pred)

    def run(model, callbacks):
        history = model.fit(DATA, epochs=2, verbose=0, callbacks=callbacks).history
        return history, model.evaluate(DATA, verbose=0, callbacks=callbacks, return_dict=True)

    check_same(run, lambda: model_of(metrics=[Bounds()], weighted_metrics=[]))


def test_logs_that_are_sometimes_the_metrics():
    """A trace that is used again has its own."""

    class Weighed(keras.Sequential):
        def train_step(self, data):
            logs = super().train_step(data)
            return logs if len(data) == 2 else {**logs, "batch": tf.reduce_sum(data[1])}

    def run(model, callbacks):
        weighed = DATA.map(lambda x, y: (x, y, tf.ones_like(y)))
        return [model.fit(d, verbose=0, callbacks=callbacks).history for d in (weighed, DATA, weighed)]

    check_same(run, lambda: model_of(Weighed))


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, None, "5"])
def test_what_is_no_number_of_steps_is_refused(bad):
    with pytest.raises(ValueError, match=rf"logs_every must be.*{bad}"):
        sok.callbacks.RunAhead(bad)


def test_steps_of_ones_own_with_tables_and_ragged_ids(deterministic, rng):
    class OwnSteps(keras_models.Subclassed):
        def train_step(self, data):
            return {"double": 2 * super().train_step(data)["loss"], "whole": tf.shape(data[1])[0]}

        def test_step(self, data):
            return {"sum": tf.reduce_sum(self(data[0]) * data[1])}

    def make():
        keras.utils.set_random_seed(1)
        model = OwnSteps(sok.layers.DistributedEmbedding(3, "sum"))
        model.compile(sok.OptimizerWrapper("adam"), "mse")
        return model

    bags = [rng.integers(0, 9, n).tolist() for n in rng.integers(0, 5, 50)]
    data = tf.data.Dataset.from_tensor_slices((kinds.make("ragged64", bags, "int64"), Y)).batch(8)

    def run(model, callbacks):
        history = model.fit(data, epochs=2, validation_data=data, verbose=0, callbacks=callbacks).history
        assert sorted(history) == ["double", "val_sum", "whole"]
        return history, sorted(kinds.export_as_dict(model.embedding.table).items())

    check_same(run, make)


def test_several_steps_an_execution_are_refused():
    for run in ("fit", "evaluate"):
        with pytest.raises(ValueError, match=r"RunAhead needs steps_per_execution=1.*the model was compiled with 2"):
            getattr(model_of(steps_per_execution=2), run)(X, Y, verbose=0, callbacks=ahead())


def test_a_loop_of_ones_own_around_callbacks():
    model = model_of()
    callbacks = keras.callbacks.CallbackList(ahead(), model=model)
    callbacks.on_train_begin()
    callbacks.on_test_begin()
    assert model.train_on_batch(X, Y)[0] > model.test_on_batch(X, Y)[0]


def test_functions_that_are_needed_stay(reads):
    class Twice(keras.Sequential):
        def make_train_function(self, force=False):
            super().make_train_function(force)
            once = self.train_function
            self.train_function = lambda iterator: [once(iterator) for _ in range(2)][-1]

    with tf.distribute.OneDeviceStrategy(f"/{'GPU' if ON_GPU else 'CPU'}:0").scope():
        distributed = model_of()
    twice, eager = model_of(Twice), model_of(run_eagerly=True)
    for model, steps in ((twice, 6), (distributed, 3), (eager, 3)):
        model.fit(DATA, steps_per_epoch=3, verbose=0, callbacks=ahead())
        assert int(model.optimizer.iterations) == steps
        assert len(reads) >= steps
        reads.clear()

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables in SavedModels: beside the live model, in a new process, of a module without Keras."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from models_to_save import examples, make_model

import sok

pytestmark = pytest.mark.usefixtures("deterministic")
ROOT = pathlib.Path(sok.__file__).parent.parent


@pytest.fixture
def data(rng):
    return examples(rng)


class Many(sok.layers.TableMixin, keras.layers.Layer):
    """Tables in a list and in a dict that is filled later."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_jit = False
        self.towers = [sok.DynamicVariable(2), sok.Variable(shape=(5, 2), out_of_range="clip")]
        self.named = {}
        self.named["x"] = sok.DynamicVariable(2)
        self.built = True

    def call(self, inputs, training=None):
        tables = [*self.towers, *self.named.values()]
        return tf.add_n(sok.lookup_sparse(tables, [inputs] * 3, training=bool(training)))


def test_tables_in_lists_and_dicts(tmp_path, data):
    model, other, third = (keras.Sequential([keras.Input((2,), dtype="int64"), Many()]) for _ in range(3))
    model(data[0], training=True)
    expected = model(data[0])
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    tf.train.Checkpoint(model=other).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(other(data[0]), expected)
    model.save_weights(tmp_path / "m.weights.h5")
    third.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(third(data[0]), expected)
    model.export(tmp_path / "export", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "export")
    np.testing.assert_array_equal(loaded.serve(tf.constant(data[0])), expected)


def _run(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


_SERVE = """
import sys
import numpy as np, tensorflow as tf, keras
import sok
directory, which = sys.argv[1:]
ids = np.load(directory + "/ids.npy")
if which == "keras":
    out = keras.models.load_model(directory + "/m.keras").predict(ids, verbose=0)
elif which == "layer":
    layer = keras.layers.TFSMLayer(directory + "/export", call_endpoint="serve")
    out = layer(tf.constant(ids))
else:
    loaded = tf.saved_model.load(directory + "/export")
    out = loaded.serve(tf.constant(ids)).numpy()
np.save(directory + "/" + which + ".npy", out)
"""


def test_new_processes_give_the_same_bits(tmp_path, data):
    """.keras and SavedModel: known ids, and unknown ones, which serving never inserts."""
    model = make_model("collection")
    model.fit(*data, epochs=2, verbose=0)
    model.save(tmp_path / "m.keras")
    model.export(tmp_path / "export", verbose=False)
    ids = np.concatenate([data[0], data[0] + 1234])
    np.save(tmp_path / "ids.npy", ids)
    expected = model(tf.constant(ids)).numpy()
    for which in ("keras", "saved_model", "layer"):
        done = _run(_SERVE, tmp_path, which)
        assert done.returncode == 0, done.stderr[-3000:]
        np.testing.assert_array_equal(np.load(tmp_path / f"{which}.npy"), expected)


def test_export_beside_the_live_model(tmp_path, data):
    """The exported table is another table: what the model learns later does not reach it."""
    model = make_model()
    model.fit(*data, verbose=0)
    model.export(tmp_path / "export", verbose=False)
    before = model(tf.constant(data[0])).numpy()
    loaded = tf.saved_model.load(tmp_path / "export")
    model.fit(*data, verbose=0)
    np.testing.assert_array_equal(loaded.serve(tf.constant(data[0])), before)
    assert np.any(model(tf.constant(data[0])).numpy() != before)
    for batch in (1, 3, 0):
        assert loaded.serve(tf.constant(data[0][:batch])).shape == [batch, 1]


def test_tf_saved_model_of_a_module(tmp_path):
    """TensorFlow's own saving, of a module without Keras."""

    class Module(tf.Module):
        def __init__(self):
            self.table = sok.DynamicVariable(2, initializer="ones", default="zeros")

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
        def __call__(self, ids):
            return sok.lookup_sparse(self.table, ids, combiners="sum", training=False)

    module = Module()
    sok.lookup_sparse(module.table, tf.constant([[1, 2]]))
    tf.saved_model.save(module, str(tmp_path / "m"))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    np.testing.assert_array_equal(loaded(tf.constant([[1, 2, 3]], tf.int64)), [[2.0, 2.0]])


def test_saved_model_without_the_library(tmp_path, data):
    """TensorFlow's own message names the library."""
    model = make_model()
    model.fit(*data, verbose=0)
    model.export(tmp_path / "export", verbose=False)
    done = _run("import sys, tensorflow as tf; tf.saved_model.load(sys.argv[1])", tmp_path / "export")
    assert done.returncode != 0
    assert "Op type not registered 'Sok>" in done.stderr

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""SavedModels of plain TensorFlow: the same predictions in a process that has never heard of the library."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok

_SERVE = """
import sys
import numpy as np
import tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1] + "/served")
ids = np.load(sys.argv[1] + "/ids.npy")
np.save(sys.argv[1] + "/out.npy", loaded.serve(tf.constant(ids)))
if "serving_default" in loaded.signatures:
    (out,) = loaded.signatures["serving_default"](tf.constant(ids)).values()
    np.save(sys.argv[1] + "/signature.npy", out)
assert "sok" not in sys.modules
"""


def serve(folder, ids):
    """What a new process, without the library on its path, predicts."""
    np.save(folder / "ids.npy", ids)
    others = [path for path in sys.path if not (pathlib.Path(path) / "sok").is_dir()]
    done = subprocess.run(
        [sys.executable, "-c", _SERVE, str(folder)], capture_output=True, text=True, cwd=folder, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(others)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(folder / "out.npy")


@pytest.mark.slow
def test_a_new_process_predicts_the_same(tmp_path, rng):
    ids = rng.choice(reference.SENTINELS["int64"], (60, 3))
    unknown = ids + 1234
    inputs = keras.Input((3,), dtype="int64")
    parts = [
        sok.layers.DistributedEmbedding(4, combiner, initializer="0.25", dtype=dtype, mask_value=mask)(inputs)
        for combiner, dtype, mask in (("sum", "float32", None), ("mean", "float32", 0), ("sqrtn", "bfloat16", -1))
    ]
    parts.append(sok.layers.DistributedEmbedding(2, vocabulary_size=9, out_of_range="zero")(inputs))
    parts.append(sok.layers.DistributedEmbedding(2, vocabulary_size=9, out_of_range="clip", max_norm=0.01)(inputs))
    x = keras.layers.Concatenate()([keras.ops.cast(part, "float32") for part in parts])
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.BatchNormalization()(x)))
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adam(0.1)), "mse")
    model.fit(ids, rng.normal(size=(60, 1)), epochs=2, verbose=0)
    sok.export_static(model, tmp_path / "served")
    asked = np.concatenate([ids, unknown])
    expected = model.predict(asked, verbose=0)
    np.testing.assert_allclose(serve(tmp_path, asked), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.load(tmp_path / "signature.npy"), expected, rtol=1e-5, atol=1e-6)


def test_features_in_a_dict(tmp_path):
    """Ragged ids, weights and uncombined vectors, through `tf.saved_model.load` in this process."""
    items = sok.TableConfig("items", 3, initializer="normal", default=[1.0, 2.0, 3.0])
    layer = sok.EmbeddingCollection(
        [sok.FeatureConfig("bag", items, "mean"), sok.FeatureConfig("each", items, None)]
    )

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def call(self, inputs, training=None):
            out = self.layer({"bag": (inputs["bag"], inputs["weights"]), "each": inputs["each"]}, training=training)
            return {"bag": out["bag"], "each": out["each"]}

    def batch(ids):
        bags = tf.RaggedTensor.from_row_lengths(tf.constant(ids, tf.int64), [2, 0, len(ids) - 2])
        weights = bags.with_values(tf.linspace(0.5, 1.5, len(ids)))
        return {"bag": bags, "weights": weights, "each": tf.constant([[ids[0], ids[1]]] * 3, tf.int64)}

    model = Model()
    model(batch([5, 6, 7, 5, 8]), training=True)
    signature = {
        "bag": tf.RaggedTensorSpec([None, None], tf.int64),
        "weights": tf.RaggedTensorSpec([None, None], tf.float32),
        "each": tf.TensorSpec([None, None], tf.int64),
    }
    sok.export_static(model, tmp_path / "m", input_signature=signature)
    loaded = tf.saved_model.load(tmp_path / "m")
    for ids in ([5, 6, 7, 5, 8], [5, 99, -1, 2**60], [6, 6]):
        expected, found = model(batch(ids)), loaded.serve(batch(ids))
        for name in ("bag", "each"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)


def test_no_table_is_a_constant_of_the_graph(tmp_path):
    """A graph may have 2 GB; rows are in the variables' file, whatever their size."""
    model = keras.Sequential(
        [keras.Input((1,), dtype="int64"), sok.layers.DistributedEmbedding(64, vocabulary_size=20_000)]
    )
    sok.export_static(model, tmp_path / "m")
    assert (tmp_path / "m" / "saved_model.pb").stat().st_size < 200_000
    assert sum(f.stat().st_size for f in (tmp_path / "m" / "variables").iterdir()) > 64 * 4 * 20_000
    text = (tmp_path / "m" / "saved_model.pb").read_bytes()
    assert b"Sok>" not in text


@pytest.mark.parametrize(("ids", "found"), [([0, 1, 2, 99], "99 at position 3"), ([4, -1, 5, 2], "-1 at position 1")])
def test_out_of_range_is_an_error_there_too(tmp_path, ids, found):
    """With the library's words."""
    layer = sok.layers.DistributedEmbedding(2, vocabulary_size=5, name="e")
    model = keras.Sequential([keras.Input((4,), dtype="int64"), layer])
    sok.export_static(model, tmp_path / "m")
    loaded = tf.saved_model.load(tmp_path / "m")
    message = f"table '?e_table'?: id {found} is out of range: the table has 5 rows"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model(np.asarray([ids]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded.serve(tf.constant([ids], tf.int64))
    known = np.asarray([[0, 4, 2, 3]])
    np.testing.assert_array_equal(loaded.serve(tf.constant(known, tf.int64)), model(known))
    assert loaded.serve(tf.zeros([0, 4], tf.int64)).shape == (0, 2)


def test_a_default_that_depends_on_the_id_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((1,), dtype="int64"), sok.layers.DistributedEmbedding(2, name="items")])
    with pytest.raises(ValueError, match="'items_table' gives an unknown id its initial value"):
        sok.export_static(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_model_without_inputs(tmp_path):
    class Model(keras.Model):
        def call(self, inputs):
            return inputs

    with pytest.raises(ValueError, match="the model's inputs are unknown"):
        sok.export_static(Model(), tmp_path / "m")

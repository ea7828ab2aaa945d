# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What only the oldest supported TensorFlow can show."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pyarrow
import pyarrow.parquet
import tensorflow as tf
import tensorflow_io as tfio

import sok

ROOT = Path(__file__).parents[2]


def test_this_is_the_oldest_supported():
    assert tf.__version__ == "2.16.2"


def test_tensorflow_io_feeds_a_layer_from_parquet(tmp_path):
    """tensorflow-io's last release loads in TensorFlow 2.16 only."""
    rng = np.random.default_rng(3)
    users = rng.integers(0, 40, 512) * 10**12 - 7
    labels = (users % 3 == 0).astype(np.float32)
    path = tmp_path / "clicks.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"user": users, "label": labels}), path)

    columns = {"user": tf.TensorSpec([], tf.int64), "label": tf.TensorSpec([], tf.float32)}
    dataset = tfio.IODataset.from_parquet(str(path), columns=columns)
    dataset = dataset.batch(64).map(lambda row: (row["user"][:, None], row["label"][:, None]))
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="int64"),
            sok.layers.DistributedEmbedding(4, seed=1),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adagrad(0.5)), "binary_crossentropy")
    losses = model.fit(dataset, epochs=10, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    ids, _ = sok.export(model.layers[0].table)
    assert sorted(ids.numpy()) == sorted(set(users))


def test_a_library_for_another_tensorflow_is_refused():
    """The checkout's own library is built for the newest TensorFlow."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "import sok"]
    result = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert result.returncode == 1
    error = result.stderr.strip().splitlines()[-1]
    assert error.startswith("ImportError: SOK's native library was built for TensorFlow 2.21")
    assert "TensorFlow 2.16.2 is installed" in error
    assert "pip install --force-reinstall --no-deps" in error

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps that are written on one device and read on another."""

import contextlib
import json

import keras
import numpy as np
import reference
import tensorflow as tf

import sok

WIDTH = 5


class World:
    """A table and its optimizer on a device; None: the default one."""

    def __init__(self, device, kind, dtype, seed):
        self._device, self._is_static = device, kind == "static"
        with self._placed():
            if self._is_static:
                self.table = sok.Variable(shape=(301, WIDTH), name="t", initializer="normal", seed=seed, dtype=dtype)
            else:
                self.table = sok.DynamicVariable(WIDTH, name="t", initializer="normal", seed=seed, dtype=dtype)
            self.optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1))

    def _placed(self):
        return tf.device(self._device) if self._device else contextlib.nullcontext()

    def train(self, seed):
        """Three steps; a hash table then forgets every third id that it may have met."""
        rng = np.random.default_rng(seed)
        known = np.arange(301) if self._is_static else np.array([*reference.SENTINELS["int64"], *range(2, 400)])
        with self._placed():
            for _ in range(3):
                ids = tf.constant(rng.choice(known, (200, 2)))
                upstream = tf.constant(rng.normal(size=(200, WIDTH)), tf.float32)
                with tf.GradientTape() as tape:
                    out = sok.lookup_sparse(self.table, ids, combiners="sum")
                    loss = tf.reduce_sum(tf.cast(out, tf.float32) * upstream)
                self.optimizer.apply_gradients([(tape.gradient(loss, self.table), self.table)])
            if not self._is_static:
                sok.erase(self.table, tf.constant(known[::3]))

    def dump(self, folder):
        with self._placed():
            sok.dump(folder, self.table, self.optimizer)

    def load(self, folder):
        with self._placed():
            sok.load(folder, self.table, self.optimizer)

    def state(self):
        """Every row's bytes by plane and id, how far training is, and what an id without a row reads."""
        with self._placed():
            content = sok.check_out(self.table)
            unknown = None
            if not self._is_static:
                ids = tf.constant([[10**6], [10**6 + 1]], tf.int64)
                unknown = sok.lookup_sparse(self.table, ids, combiners="sum", training=False).numpy().tobytes()
        ids = content.pop("ids").tolist()
        rows = {
            plane: {id_: row.tobytes() for id_, row in zip(ids, values, strict=True)}
            for plane, values in content.items()
        }
        return {"rows": rows, "step": int(self.optimizer.iterations), "unknown": unknown}


def there_and_back(folder, first, second, kind, dtype):
    """A table goes from the first device to the second and to another table on the first; at either end there were
    other rows before. Nothing may change on the way, not a bit."""
    start, middle, end = (World(device, kind, dtype, seed) for seed, device in enumerate([first, second, first]))
    for seed, world in enumerate([start, middle, end]):
        world.train(seed)
    expected = start.state()
    assert len(expected["rows"]) == 3  # the values, and two states
    assert middle.state() != expected
    for source, target, name in ((start, middle, "there"), (middle, end, "back")):
        source.dump(folder / name)
        held = json.loads((folder / name / "manifest.json").read_text())["tables"][0]
        assert len(held["shards"]) > 1
        target.load(folder / name)
        assert target.state() == expected

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Run by test_optimizers.py in a process of its own: the peak memory of training on a big table.

Prints JSON: for each native rule, and each kind of table for some, by how many bytes the peak of the
resident memory rose in three steps, and how many it may rise.
"""

import gc
import json
import pathlib

import numpy as np
import tensorflow as tf
from reference_optimizers import CASES, keras_optimizer

import sok
from sok.stages.update import OPTIMIZERS

ROWS, WIDTH, IDS, STEPS = 10_000_000, 64, 100, 3
# A row that is touched first may make a huge page of memory resident.
HUGE_PAGE = 2 << 20
SLACK = 128 << 20


def _resident(name):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def _train(table, optimizer, batches):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(sok.lookup_sparse(table, ids) - 1.0))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    for ids in batches:
        step(tf.constant(ids, tf.int64))


def _measure(table, name):
    formula, hyper = CASES[name]
    optimizer = sok.OptimizerWrapper(keras_optimizer(formula, {**hyper, "global_clipnorm": 1.0}))
    batches = np.random.default_rng(1).integers(0, ROWS, (STEPS, IDS))
    # The rows themselves are resident before: what rises then is due to training.
    ids = np.unique(batches)
    sok.assign(table, ids, np.zeros((len(ids), WIDTH), np.float32))
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _resident("VmRSS")
    _train(table, optimizer, batches)
    allowed = SLACK
    for plane, (width, initial) in table.table.planes().items():
        if plane != "values":
            whole = 4 * ROWS * width
            allowed += whole if initial else min(whole, len(ids) * HUGE_PAGE)
    return {"rise": _resident("VmHWM") - before, "allowed": allowed, "table": 4 * ROWS * WIDTH}


def main():
    kinds = {
        "static": (lambda: sok.Variable(shape=(ROWS, WIDTH), initializer="zeros"), OPTIMIZERS),
        "hash": (lambda: sok.DynamicVariable(WIDTH, capacity=ROWS, initializer="zeros"), ("sgd", "adam")),
    }
    result = {}
    for kind, (make, names) in kinds.items():
        _train(make(), sok.OptimizerWrapper("sgd"), [[1, 2]])  # what starts once
        for name in names:
            result[f"{kind} {name}"] = _measure(make(), name)
            gc.collect()
    print(json.dumps(result))


if __name__ == "__main__":
    main()

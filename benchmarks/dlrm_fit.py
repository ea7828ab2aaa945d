# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""`model.fit` of a DLRM with 26 tables of 100,000 rows, one id each: SOK's layers beside Keras's Embedding.

Both train the same model with Adagrad. Keras's own result for repeated ids differs (it does not sum their
gradients first); here only the time counts.
"""

import defaults
import keras
import measure
import numpy as np
import tables
import tensorflow as tf

import sok
from sok.models.dlrm import DLRM

SHAPE = defaults.SHAPES["26 tables"]
NAMES = [f"c{table}" for table in range(SHAPE.tables)]


def data() -> tf.data.Dataset:
    random = np.random.default_rng(defaults.SEED)
    count = defaults.FIT_BATCH * defaults.FIT_STEPS
    inputs = {name: measure.draw("zipf", SHAPE.rows, count, 9, table) for table, name in enumerate(NAMES)}
    inputs["dense"] = random.random((count, defaults.DENSE_FEATURES), np.float32)
    labels = random.integers(0, 2, (count, 1)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(defaults.FIT_BATCH).cache().prefetch(2)


def keras_layers() -> dict:
    return {name: keras.layers.Embedding(SHAPE.rows, SHAPE.width, name=name) for name in NAMES}


def sok_layers(static: bool) -> dict:
    rows = SHAPE.rows if static else None
    return {
        name: sok.layers.DistributedEmbedding(SHAPE.width, "sum", vocabulary_size=rows, name=name, seed=1)
        for name in NAMES
    }


def model(layers: dict, optimizer) -> keras.Model:
    result = DLRM(layers, dense_features=["dense"], bottom_units=defaults.BOTTOM_UNITS, top_units=defaults.TOP_UNITS)
    result.compile(optimizer, "binary_crossentropy", jit_compile=False)
    return result


def main() -> None:
    chosen = measure.arguments(__doc__)
    batches = data()
    models = {
        "keras": model(keras_layers(), keras.optimizers.Adagrad(0.01)),
        "static": model(sok_layers(True), sok.OptimizerWrapper(keras.optimizers.Adagrad(0.01))),
        "hash": model(sok_layers(False), sok.OptimizerWrapper(keras.optimizers.Adagrad(0.01))),
    }

    def fit(each):
        return lambda _: each.fit(batches, verbose=0)

    times = measure.in_turns({name: fit(each) for name, each in models.items()}, chosen.repeats, warm_up=1)
    row = {f"{name}, ms a step": time / defaults.FIT_STEPS for name, time in times.items()}
    ratios = {f"{name} ratio": times["keras"] / times[name] for name in ("static", "hash")}
    measure.save("dlrm_fit", [row | ratios], keras=keras.__version__, **tables.VERSIONS)


if __name__ == "__main__":
    main()

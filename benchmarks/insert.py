# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Inserts of new rows into a hash table that grows from nothing, in calls of INSERT_BATCH ids."""

import defaults
import measure
import numpy as np
import tables
import tensorflow as tf

import sok

REPEATS = 5  # each repeat times NEW_ROWS / INSERT_BATCH calls


def new_ids() -> list[tf.Tensor]:
    ids = np.random.default_rng(defaults.SEED).permutation(defaults.NEW_ROWS)
    return [tf.constant(part) for part in np.array_split(ids, defaults.NEW_ROWS // defaults.INSERT_BATCH)]


def sok_insert(width: int, initializer: str, ids: list[tf.Tensor]):
    def insert(_):
        table = sok.DynamicVariable(width, initializer=initializer, seed=1)
        for part in ids:
            sok.all2all_dense_embedding(table, part)

    return insert


def main() -> None:
    measure.arguments(__doc__)
    ids = new_ids()
    rows = []
    for width in defaults.INSERT_WIDTHS:
        functions = {name: sok_insert(width, name, ids) for name in ("random", "normal")}
        times = measure.in_turns(functions, REPEATS, warm_up=1)
        rates = {f"{name}, M rows/s": defaults.NEW_ROWS / time / 1e3 for name, time in times.items()}
        rows.append({"width": width, **rates})
    measure.save("insert", rows, **tables.VERSIONS)


if __name__ == "__main__":
    main()

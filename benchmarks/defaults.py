# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shapes, distributions and goals of the CPU benchmarks: the only place for them."""

import dataclasses

# Each function is timed so often, taking turns with its peers; the least time counts.
REPEATS = 25
# Batches that the calls go through in turn.
BATCHES = 4
SEED = 20261129

# p(rank) ~ rank^-1.1 over all rows; ranks are spread over the ids, so that hot rows are no neighbours.
ZIPF = 1.1
DISTRIBUTIONS = ("zipf", "uniform")


@dataclasses.dataclass(frozen=True)
class Shape:
    """tables of rows x width, float32; a batch has `bags` bags of `hotness` ids for each table."""

    rows: int = 1_000_000
    width: int = 64
    bags: int = 16_384
    hotness: int = 10
    tables: int = 1


SHAPES = {
    "main": Shape(),
    "width 16": Shape(width=16),
    "width 128": Shape(width=128),
    "one id": Shape(hotness=1),
    "26 tables": Shape(rows=100_000, width=16, bags=2048, hotness=1, tables=26),
}

# The DLRM of dlrm_fit.py: the tables of "26 tables" beside 13 dense features.
DENSE_FEATURES = 13
BOTTOM_UNITS = (64, 32)
TOP_UNITS = (64, 32)
FIT_BATCH = 2048
FIT_STEPS = 16

# insert.py: new rows, and how many a call brings.
NEW_ROWS = 1_000_000
INSERT_BATCH = 100_000
INSERT_WIDTHS = (16, 64)

# memory.py: rows that a hash table grows to.
MEMORY_ROWS = (100_000, 300_000, 1_000_000, 1_500_000)

# Least ratio of the peer's time to ours (memory: most ratio of bytes to those of the rows).
GOALS = {
    "static lookup": 1.5,
    "hash lookup": 1.0,
    "hash lookup, TFRA": 3.0,
    "static step": 2.0,
    "hash step": 1.5,
    "hash step, TFRA": 4.0,
    "fit": 1.3,
    "insert, TFRA": 3.0,
    "memory": 1.35,
    "two threads": 1.7,
}

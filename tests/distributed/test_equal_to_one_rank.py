# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""N ranks train as one: outputs, losses, rows and dense weights, with any mixture of placements."""

import model
import numpy as np
import pytest
from model import Table

MIXED = [
    Table("hash", 4),
    Table("static", 3, rows=11, combiner="sum"),
    Table("hash_on_0", 5, mode="localized:0", combiner="sqrtn", weighted=True),
    Table("static_on_1", 2, rows=7, mode="localized:1", weighted=True),
    Table("balanced", 1, mode="localized"),
]
STEPS = 10


def compare(ranks, tables, sizes, optimizer, graph, rtol, steps=STEPS, exchange="auto"):
    data = [model.batches(tables, sizes, seed) for seed in range(steps)]
    results = ranks.run(model.train, tables, data, optimizer, graph, True, exchange)
    outputs, losses, rows, dense = model.train(tables, data, optimizer, False, False)
    for rank, (rank_outputs, rank_losses, _, rank_dense) in enumerate(results):
        for got, want in zip(rank_outputs[0], outputs[rank]):
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(
            [loss[0] for loss in rank_losses], [loss[rank] for loss in losses], rtol=rtol, atol=rtol
        )
        np.testing.assert_allclose(rank_dense, dense, rtol=rtol, atol=rtol)
        np.testing.assert_array_equal(rank_dense, results[0][3])
    whole = model.merge_exports([result[2] for result in results], tables)
    for table, got, want in zip(tables, whole, rows):
        assert set(got) == set(want), table.name
        for id_, row in want.items():
            np.testing.assert_allclose(got[id_], row, rtol=rtol, atol=rtol, err_msg=f"{table.name} {id_}")


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_equal_batches(ranks, optimizer):
    # SGD differs by the rounding of sums only.
    compare(ranks, MIXED, [4] * ranks.size, optimizer, True, 1e-6 if optimizer == "sgd" else 1e-5)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_unequal_batches_and_an_empty_rank(ranks, graph):
    sizes = [5, 0, 3][: ranks.size]
    compare(ranks, MIXED, sizes, "adagrad", graph, 1e-5)


def test_empty_on_all_ranks(ranks):
    compare(ranks, MIXED, [0] * ranks.size, "sgd", True, 0.0, steps=2)


def test_fewer_tables_than_ranks(ranks):
    compare(ranks, [Table("only", 3, mode="localized:1")], [3, 2, 0][: ranks.size], "sgd", True, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types_mixed_with_float32(ranks, dtype):
    tables = [Table("small", 3, dtype=dtype), Table("wide", 2), Table("static", 5, rows=9, dtype=dtype)]
    # Rows are rounded after each step, so a difference in the last bit of a sum may become one of
    # 2^-8 in a row.
    compare(ranks, tables, [3, 0, 4][: ranks.size], "sgd", True, 2e-2, steps=3)

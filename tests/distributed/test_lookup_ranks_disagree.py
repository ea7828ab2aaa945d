# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that look up different tables are refused, all of them, before a row is inserted, read or trained."""

import launch
import numpy as np
import pytest
import tensorflow as tf
from test_dump_ranks_disagree import is_odd
from test_dump_refused_ranks import attempt

import sok
from sok import checks

# How to make the tables: on the rank that differs, and on the others.
DIFFERENT = {
    "place": ([{"mode": "localized:0"}], [{"mode": "localized:1"}]),
    "kind": ([{"mode": "distributed"}], [{"mode": "localized:1"}]),
    "static": ([{"rows": 9}], [{}]),
    "rows": ([{"rows": 9}], [{"rows": 8}]),
    "dimension": ([{"dimension": 3}], [{}]),
    "type": ([{"dtype": "float16"}], [{}]),
    "keys": ([{"key_type": "int32"}], [{}]),
    "order": ([{"dimension": 3}, {}], [{}, {"dimension": 3}]),
    "number": ([{}], [{}, {}]),
    "replicated": ([{"rows": 9, "mode": "data_parallel"}, {}], [{"rows": 9}, {}]),
    "second": ([{}, {"mode": "localized:0"}], [{}, {"mode": "localized:1"}]),
}


def make(rows=None, dimension=2, key_type="int64", **options):
    if rows is None:
        return sok.DynamicVariable(dimension, initializer="ones", seed=1, key_type=key_type, **options)
    return sok.Variable(shape=(rows, dimension), initializer="ones", seed=1, **options)


def look_up(case, exchange, graph):
    tables = [make(name=f"table_{i}", **options) for i, options in enumerate(DIFFERENT[case][not is_odd()])]

    def sum_of_rows():
        ids = [tf.constant([[sok.rank(), 3], [3, 4]], table.key_dtype) for table in tables]
        return [tf.reduce_sum(x) for x in sok.lookup_sparse(tables, ids, combiners="sum", exchange=exchange)]

    text = attempt(tf.function(sum_of_rows) if graph else sum_of_rows)
    # The job goes on: all ranks have left the call together.
    good = make()
    seen = sok.lookup_sparse(good, tf.constant([[5, 6]]), combiners="sum").numpy()
    return text, [table.table.row_count() for table in tables if not table.is_static], seen.tolist()


@pytest.fixture(scope="module", autouse=True)
def _apart(_jobs):
    """No other module gets ranks that have made different tables."""
    yield
    for job in _jobs.values():
        job.retire()


def assert_refused(text, rank, size, contains):
    assert f"rank {size - 1} does not make the same lookup as rank 0. On rank {rank} it is: exchange=" in text
    assert contains in text
    assert "All ranks must create and look up the same tables, in one order" in text


@pytest.mark.parametrize(
    ("case", "exchange", "graph"),
    [(case, "rows", False) for case in DIFFERENT]
    + [("place", exchange, graph) for exchange in checks.EXCHANGES for graph in (False, True)],
)
def test_tables_that_differ_are_refused(ranks, case, exchange, graph):
    for rank, (text, rows, seen) in enumerate(ranks.run(look_up, case, exchange, graph)):
        assert_refused(text, rank, ranks.size, f"exchange='{exchange}' of 'table_0' [")
        assert not any(rows)
        assert seen == [[2.0, 2.0]]


def look_up_otherwise(what, exchange):
    """Tables that are alike, in another order, or with weights, on the rank that differs."""
    tables = [sok.DynamicVariable(2, initializer="ones", name=name) for name in ("users", "items")]
    ids, weights = [tf.constant([[1, 2]])] * 2, None
    if is_odd():
        tables = tables[::-1] if what == "order" else tables
        weights = [tf.ones([1, 2])] * 2 if what == "weights" else None
    text = attempt(sok.lookup_sparse, tables, ids, weights, exchange=exchange)
    return text, [table.table.row_count() for table in tables]


@pytest.mark.parametrize("exchange", checks.EXCHANGES)
@pytest.mark.parametrize("what", ["order", "weights"])
def test_lookups_that_differ_are_refused(ranks, what, exchange):
    for rank, (text, rows) in enumerate(ranks.run(look_up_otherwise, what, exchange)):
        # Where rows travel their weights do not.
        if (what, exchange) == ("weights", "rows"):
            assert text == ""
            continue
        is_other = rank == ranks.size - 1
        order = [1, 0] if is_other and what == "order" else [0, 1]
        assert_refused(text, rank, ranks.size, f"their order of creation: {order}")
        assert (", with weights'" in text) == (is_other and what == "weights")
        assert rows == [0, 0]


def balanced_apart():
    """One rank has made a table that the others do not have: from then on it balances them differently."""
    if is_odd():
        sok.DynamicVariable(2, mode="localized:0", capacity=10000, seed=1)
    table = sok.DynamicVariable(2, mode="localized", initializer="ones", seed=1)
    return table.placement.rank, attempt(sok.lookup_sparse, table, tf.constant([[1]]), combiners="sum")


def test_tables_that_are_balanced_differently():
    # A fresh job: the balance counts all tables that a process has made.
    job = launch.Ranks(2)
    try:
        results = job.run(balanced_apart)
    finally:
        job.close()
    assert [place for place, _ in results] == [0, 1]
    for rank, (_, text) in enumerate(results):
        assert_refused(text, rank, 2, f"'localized', {rank}]")


def names_differ():
    name = f"of_rank_{sok.rank()}"
    table = sok.DynamicVariable(2, name=name, initializer="ones")
    return sok.lookup_sparse(table, tf.constant([[1, 2]]), combiners="sum").numpy()


def test_names_may_differ(ranks):
    for values in ranks.run(names_differ):
        np.testing.assert_array_equal(values, [[2.0, 2.0]])

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows from elsewhere on several ranks: each keeps its part, with the states."""

import keras
import numpy as np
import pytest
from test_dump_import import sok2_dump

import sok

KEYS = np.arange(-20, 30)
ROWS = np.arange(100, dtype=np.float32).reshape(50, 2)


def load_parts(folder):
    """What this rank keeps of a hash table, a static one and one on the last rank."""
    sok.init()
    tables = [
        sok.DynamicVariable(2, name="hashed"),
        sok.Variable(np.zeros((50, 2), np.float32), name="static"),
        sok.DynamicVariable(2, name="local", mode=f"localized:{sok.size() - 1}"),
    ]
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1))
    counts = sok.checkpoint.load_sok2(folder, tables, optimizer)
    found = [sok.check_out(table) for table in tables]
    return counts, [{name: np.asarray(array) for name, array in planes.items()} for planes in found]


def load_damaged(folder):
    sok.init()
    table = sok.DynamicVariable(2, name="hashed")
    try:
        sok.checkpoint.load_sok2(folder, table, sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1)))
    except ValueError as error:
        return str(error), table.table.row_count()
    return "", table.table.row_count()


def write_dump(folder):
    for name, keys in (("hashed", KEYS), ("static", np.arange(50)), ("local", KEYS)):
        sok2_dump(folder, name, keys, ROWS, optimizer="Adagrad", states={"accumulator": 1000 + ROWS})


def test_dumps_of_sok2(ranks, tmp_path):
    write_dump(tmp_path)
    results = ranks.run(load_parts, str(tmp_path))
    for counts, _ in results:
        assert counts == {"hashed": 50, "static": 50, "local": 50}
    for t, first in enumerate((-20, 0, -20)):
        parts = [found[t] for _, found in results]
        ids = np.concatenate([part["ids"] for part in parts])
        order = np.argsort(ids)
        np.testing.assert_array_equal(ids[order], np.arange(first, first + 50))
        for plane, expected in (("values", ROWS), ("adagrad.accumulator", 1000 + ROWS)):
            np.testing.assert_array_equal(np.concatenate([part[plane] for part in parts])[order], expected)
    assert [len(found[2]["ids"]) for _, found in results] == [0] * (ranks.size - 1) + [50]
    assert all(0 < len(found[0]["ids"]) < 50 for _, found in results)


@pytest.mark.parametrize("file", ["hashed-key", "hashed-weight", "hashed-Adagrad-accumulator"])
def test_a_dump_of_sok2_that_is_damaged(ranks, tmp_path, file):
    write_dump(tmp_path)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:-1])
    for text, rows in ranks.run(load_damaged, str(tmp_path)):
        assert f"{file} was cut" in text
        assert rows == 0


def load_refused(folder, way):
    """One rank alone has no room, for the last table."""
    sok.init()
    first = sok.DynamicVariable(2, name="hashed")
    last = sok.DynamicVariable(2, name="local", mode=f"localized:{sok.size() - 1}", max_capacity=20)
    text = ""
    try:
        if way == "sok2":
            optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1))
            sok.checkpoint.load_sok2(folder, [first, last], optimizer)
        else:
            sok.checkpoint.load_rows(last, KEYS, ROWS)
    except Exception as error:
        text = str(error)
    left = [(table.table.row_count(), list(table.table.planes())) for table in (first, last)]
    sok.checkpoint.load_rows(last, KEYS[:20], ROWS[:20])
    return text, left, last.table.row_count()


@pytest.mark.parametrize("way", ["sok2", "rows"])
def test_no_room_on_one_rank_changes_nothing_on_any(ranks, tmp_path, way):
    write_dump(tmp_path)
    results = ranks.run(load_refused, str(tmp_path), way)
    for text, left, _ in results:
        assert "table 'local': 50 new ids do not fit: it holds 0 of at most 20 rows" in text
        assert left == [(0, ["values"])] * 2
    assert [rows for *_, rows in results] == [0] * (ranks.size - 1) + [20]


def load_mistaken(mistake):
    """The last rank alone passes something wrong."""
    sok.init()
    table, ids, values = sok.DynamicVariable(2, name="hashed"), KEYS, ROWS
    if sok.rank() == sok.size() - 1:
        table = None if mistake == "table" else table
        ids = "ids" if mistake == "ids" else ids
        values = [[1.0, 2.0], [3.0]] if mistake == "values" else values
    try:
        sok.checkpoint.load_rows(table, ids, values)
    except Exception as error:
        return str(error)
    return ""


SHAPES = "takes ids [n] and values [n, 2]"


@pytest.mark.parametrize(
    ("mistake", "text"), [("table", "expected a sok.Variable"), ("ids", SHAPES), ("values", f"{SHAPES}: ")]
)
def test_a_mistake_of_one_rank_is_an_error_of_all(ranks, mistake, text):
    for message in ranks.run(load_mistaken, mistake):
        assert text in message

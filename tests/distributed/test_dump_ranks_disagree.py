# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that dump or load different things, or in different places: all are refused, and nothing changes."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from test_dump_import import sok2_dump
from test_dump_ranks import Trainer, assert_equal, train_and_dump
from test_dump_refused_ranks import attempt

import sok
from sok.checkpoint import parts, reader


def load_own_folder(folder):
    trainer = Trainer("sgd", seed=9)
    trainer.step(50)
    before = trainer.contents()
    try:
        sok.load(f"{folder}/{sok.rank()}", trainer.variables)
    except Exception as error:
        return f"{type(error).__name__}: {error}", before, trainer.contents()
    return "", before, trainer.contents()


def test_ranks_that_see_different_dumps(ranks, tmp_path):
    for rank in range(ranks.size):
        ranks.run(train_and_dump, str(tmp_path / str(rank)), "sgd")
    for text, before, after in ranks.run(load_own_folder, str(tmp_path)):
        assert "the ranks do not see the same dump" in text
        assert "rank 1: data-" in text
        assert_equal([after], [before], rtol=0, atol=0)


def dump_elsewhere(folder):
    """Each rank has a folder of its own of one name, as on machines without a common disk."""
    trainer = Trainer("sgd")
    trainer.step(0)
    here = Path.cwd()
    own = Path(folder, str(sok.rank()))
    own.mkdir()
    os.chdir(own)
    parts.timeout_seconds, before = (lambda: 2.0), parts.timeout_seconds
    try:
        sok.dump("dump", trainer.variables)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        parts.timeout_seconds = before
        os.chdir(here)
    return ""


def test_folders_that_are_not_one(ranks, tmp_path):
    for text in ranks.run(dump_elsewhere, str(tmp_path)):
        assert "a dump needs one folder that all ranks see" in text
        assert "its folder of this name is another one" in text


def dump_differently(folder, case):
    """The rank with the highest number dumps something else."""
    trainer = Trainer("sgd")
    trainer.step(0)
    tables, odd = trainer.tables[:2], sok.rank() == sok.size() - 1
    passed = {"order": tables[::-1], "fewer": tables[:1], "values_only": tables}[case] if odd else tables
    try:
        sok.dump(folder, passed, values_only=odd and case == "values_only")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("case", ["order", "fewer", "values_only"])
def test_ranks_that_dump_different_things(ranks, tmp_path, case):
    ranks.run(train_and_dump, str(tmp_path), "sgd")
    before = reader.read_manifest(str(tmp_path))
    for text in ranks.run(dump_differently, str(tmp_path), case):
        assert text.startswith("ValueError")
        assert "the ranks do not dump the same tables" in text
    assert reader.read_manifest(str(tmp_path)) == before


def is_odd():
    """Whether this is the rank that differs: the last."""
    return sok.rank() == sok.size() - 1


def tables_of(rows, mode=None):
    """A full table and one with more room."""
    tables = [sok.DynamicVariable(2, name=name, mode=mode, max_capacity=most) for name, most in (("a", 40), ("b", 90))]
    for table, count in zip(tables, rows, strict=True):
        sok.assign(table, np.arange(count), np.full((count, 2), count, np.float32))
    return tables


def dump_two(folder):
    sok.dump(folder, [*tables_of((5, 80)), tf.Variable(1.0, name="w")])


def contents(tables):
    return [{name: np.asarray(array).tolist() for name, array in sok.check_out(table).items()} for table in tables]


def load_differently(folder, case, rows):
    tables = tables_of(rows, "localized:0" if case == "placement" and is_odd() else None)
    weight = tf.Variable(7.0, name="w")
    given, switches = [*tables, weight], {}
    if is_odd():
        given = {"order": [*tables[::-1], weight], "variable": [weight]}.get(case, given)
        switches = {"strict": {"strict": False}, "values_only": {"values_only": True}}.get(case, {})
    before = contents(tables)
    text = attempt(sok.load, folder, given, **switches)
    return text, contents(tables) == before, float(weight)


@pytest.mark.parametrize("rows", [(0, 0), (20, 20)], ids=["empty", "rows"])
@pytest.mark.parametrize("case", ["order", "variable", "placement", "strict", "values_only"])
def test_ranks_that_load_different_things(ranks, tmp_path, case, rows):
    ranks.run(dump_two, str(tmp_path))
    if case == "placement":
        ranks.retire()
    for text, is_unchanged, weight in ranks.run(load_differently, str(tmp_path), case, rows):
        assert text.startswith(f"ValueError: {tmp_path}: the ranks do not load the same tables in the same order with")
        assert all(f"rank {rank}: [" in text for rank in range(ranks.size))
        assert is_unchanged
        assert weight == 7.0
    for text, _, weight in ranks.run(load_differently, str(tmp_path), "alike", rows):
        assert (text, weight) == ("", 1.0)


def load_sok2_differently(folder, case):
    tables = [sok.DynamicVariable(2, name=name) for name in ("a", "b")]
    # What is no table is found before any rank waits for another.
    given = {"order": tables[::-1], "weight": tf.Variable(7.0, name="w")}[case] if is_odd() else tables
    text = attempt(sok.checkpoint.load_sok2, folder, given)
    return text, [table.table.row_count() for table in tables]


@pytest.mark.parametrize(
    ("case", "match"),
    [
        ("order", "the ranks do not load the same tables in the same order"),
        ("weight", "SOK 2 dumps tables only, got w"),
    ],
)
def test_ranks_that_load_different_dumps_of_sok2(ranks, tmp_path, case, match):
    for name in ("a", "b"):
        sok2_dump(tmp_path, name, np.arange(20), np.ones((20, 2), np.float32))
    for text, rows in ranks.run(load_sok2_differently, str(tmp_path), case):
        assert text.startswith("ValueError")
        assert match in text
        assert rows == [0, 0]

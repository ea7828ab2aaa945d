# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one rank has wrong is the error of all, at once, and nothing has been written."""

import fcntl
import os
import re
from pathlib import Path

import numpy as np
import pytest

import sok


def table_of(value):
    table = sok.DynamicVariable(2, name="t")
    sok.assign(table, np.arange(20), np.full((20, 2), value, np.float32))
    return table


def dump_values(folder, value):
    sok.dump(folder, table_of(value))


def loaded_values(folder):
    table = sok.DynamicVariable(2, name="t")
    sok.load(folder, table)
    return np.unique(sok.check_out(table)["values"]).tolist()


def attempt(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# What the last rank passes, and what it hears.
WRONG = {
    "path": ({"path": None}, "TypeError: path must be a folder"),
    "empty": ({"variables": []}, "ValueError: .*_vars is empty"),
    "number": ({"variables": {0: None}}, "TypeError: .*the name 0 must be a string"),
    "optimizer": ({"optimizer": 5}, "TypeError: optimizer must be"),
    "switch": ({"values_only": "no"}, "TypeError: values_only must be True or False"),
    "progress": ({"progress": "no"}, "TypeError: progress must be"),
    "step": ({"step": -1}, "ValueError: step must be"),
}


def call(function, folder, case):
    """The last rank passes something wrong."""
    wrong = WRONG[case][0] if sok.rank() == sok.size() - 1 else {}
    given = {"path": folder, "variables": table_of(2.0), **wrong}
    return attempt(getattr(sok, function), given.pop("path"), given.pop("variables"), **given)


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("function", ["dump", "load"])
def test_arguments_that_one_rank_has_wrong(ranks, tmp_path, function, case):
    if (function, case) == ("load", "step"):
        function = "dump"  # the only one that takes it
    folder = str(tmp_path)
    ranks.run(dump_values, folder, 1.0)
    *others, own = ranks.run(call, function, folder, case)
    assert re.match(WRONG[case][1], own), own
    for text in others:
        assert re.match(f"(RuntimeError|ValueError): rank {ranks.size - 1}: {WRONG[case][1]}", text), text
    assert ranks.run(loaded_values, folder) == [[1.0]] * ranks.size


def dump_to_own_name(folder):
    return attempt(sok.dump, Path(folder, str(sok.rank())), table_of(2.0))


def test_places_of_different_names(ranks, tmp_path):
    for text in ranks.run(dump_to_own_name, str(tmp_path)):
        assert text.startswith("ValueError: the ranks dump to different places: a dump needs one folder that all ranks")
        for rank in range(ranks.size):
            assert f"rank {rank}: '{tmp_path}/{rank}'" in text
    assert list(tmp_path.iterdir()) == []


def dump_spelled_differently(folder):
    place = [folder, f"{folder}/", f"{folder}/./"][sok.rank()]
    return attempt(sok.dump, place, table_of(3.0))


def test_one_place_however_it_is_spelled(ranks, tmp_path):
    assert ranks.run(dump_spelled_differently, str(tmp_path)) == [""] * ranks.size
    assert ranks.run(loaded_values, str(tmp_path)) == [[3.0]] * ranks.size


def dump_twice_in_the_background(folder):
    """The second waits for the first, on every rank."""
    handles = [sok.dump(folder, table_of(value), blocking=False) for value in (4.0, 5.0)]
    return [handle.result().rows for handle in handles]


def test_two_dumps_in_the_background(ranks, tmp_path):
    written = ranks.run(dump_twice_in_the_background, str(tmp_path))
    assert np.sum(written, 0).tolist() == [20, 20]
    assert ranks.run(loaded_values, str(tmp_path)) == [[5.0]] * ranks.size


def dump_or_say(folder):
    return attempt(sok.dump, folder, table_of(2.0))


def test_another_process_that_dumps_there(ranks, tmp_path):
    ranks.run(dump_values, str(tmp_path), 1.0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    first, *others = ranks.run(dump_or_say, str(tmp_path))
    os.close(descriptor)
    assert first.startswith(f"BlockingIOError: {tmp_path}: another process is writing a dump there")
    for text in others:
        assert text.startswith("OSError: rank 0: BlockingIOError")
    assert ranks.run(loaded_values, str(tmp_path)) == [[1.0]] * ranks.size
    assert ranks.run(dump_or_say, str(tmp_path)) == [""] * ranks.size

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a dump does not hold, or was not asked for: `sok.load` says that it starts anew."""

import warnings

import keras
import numpy as np
import pytest
from restored_tables import snapshot, train

import sok

STATES = ("adam.m", "adam.v")


def make(optimizer="Adam"):
    return sok.DynamicVariable(2, name="items"), sok.OptimizerWrapper(getattr(keras.optimizers, optimizer)(0.1))


@pytest.fixture
def trained():
    table, optimizer = make()
    for _ in range(3):
        train(table, optimizer, [[1, 2, 3]])
    return table, optimizer


def values_are_loaded(table, trained):
    found, expected = snapshot(table), snapshot(trained)
    assert (found["keys"], found["values"]) == (expected["keys"], expected["values"])
    assert not np.any(found["states"])


@pytest.mark.parametrize("strict", [True, False])
def test_values_only_dump_without_an_optimizer(tmp_path, trained, strict):
    """Which states will be missed is not known yet."""
    sok.dump(tmp_path, *trained, values_only=True)
    table, optimizer = make()
    with pytest.warns(UserWarning, match="'items': loaded without states of an optimizer, which start anew"):
        result = sok.load(tmp_path, table, strict=strict)
    assert result.fresh_states == {"items": ()}
    values_are_loaded(table, trained[0])
    train(table, optimizer, [[1, 2, 3]])


def test_values_only_dump_with_an_optimizer(tmp_path, trained):
    sok.dump(tmp_path, *trained, values_only=True)
    table, optimizer = make()
    with pytest.raises(ValueError, match=r"'items' has no state 'adam.m', 'adam.v'.*strict=False starts them anew"):
        sok.load(tmp_path, table, optimizer)
    with pytest.warns(UserWarning, match=r"'items': loaded without the states adam\.m, adam\.v, which start anew"):
        result = sok.load(tmp_path, table, optimizer, strict=False)
    assert result.fresh_states == {"items": STATES}
    values_are_loaded(table, trained[0])


@pytest.mark.parametrize("given", [True, False])
def test_values_only_of_a_dump_with_states(tmp_path, trained, given):
    """Those of the dump, also if the table has none yet; and those that the table has."""
    sok.dump(tmp_path, *trained)
    table, optimizer = make("Adagrad")
    if given:
        train(table, optimizer, [[7]])
    with pytest.warns(UserWarning, match=r"'items': loaded without the states .*adam\.m, adam\.v, which start anew"):
        result = sok.load(tmp_path, table, values_only=True)
    assert result.fresh_states == {"items": ("adagrad.accumulator", *STATES) if given else STATES}


@pytest.mark.parametrize("step", [None, 7])
def test_dump_without_the_variables_of_an_optimizer(tmp_path, trained, step):
    """Rows and states are there, but not the step, which Adam's next update divides by."""
    sok.dump(tmp_path, trained[0], step=step)
    table, optimizer = make()
    train(table, optimizer, [[1]])
    with pytest.raises(ValueError, match="has 0 variables of an optimizer"):
        sok.load(tmp_path, table, optimizer)
    with pytest.warns(UserWarning, match="was written without an optimizer: the step and the variables of the one"):
        result = sok.load(tmp_path, table, optimizer, strict=False)
    assert (result.step, int(optimizer.iterations)) == (step, 1)
    assert result.fresh_states == {}
    assert snapshot(table) == snapshot(trained[0])


def test_rows_without_states_and_no_optimizer(tmp_path, trained):
    """Never trained, or by plain SGD: nobody knows, and the states that the table has already are gone."""
    dumped, sgd = make("SGD")
    train(dumped, sgd, [[1, 2, 3]])
    sok.dump(tmp_path, dumped)
    with pytest.warns(UserWarning, match=r"'items': loaded without the states adam\.m, adam\.v, which start anew"):
        result = sok.load(tmp_path, trained[0])
    assert result.fresh_states == {"items": STATES}
    values_are_loaded(trained[0], dumped)


def test_rows_that_an_optimizer_without_states_trained(tmp_path):
    dumped, sgd = make("SGD")
    train(dumped, sgd, [[1, 2, 3]])
    sok.dump(tmp_path, dumped, sgd)
    table, adam = make()
    with pytest.raises(ValueError, match=r"'items' has no state 'adam.m', 'adam.v'; it has none.*strict=False starts"):
        sok.load(tmp_path, table, adam)
    assert (table.size, adam.built) == ([0, 2], False)
    with pytest.warns(UserWarning, match=r"'items': loaded without the states adam\.m, adam\.v, which start anew"):
        assert sok.load(tmp_path, table, adam, strict=False).fresh_states == {"items": STATES}
    values_are_loaded(table, dumped)


def test_rows_that_were_never_trained(tmp_path):
    """They have no states yet, and start with what the optimizer starts with."""
    dumped, adam = make()
    sok.assign(dumped, [1, 2], np.ones((2, 2)))
    sok.dump(tmp_path, dumped, adam)
    table, other = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sok.load(tmp_path, table, other).fresh_states == {}


def test_nothing_is_said_where_nothing_is_missing(tmp_path, trained):
    table, optimizer = make()
    untrained, _ = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sok.dump(tmp_path / "whole", *trained)
        assert sok.load(tmp_path / "whole", table, optimizer).fresh_states == {}
        sok.dump(tmp_path / "tables", trained[0])
        assert sok.load(tmp_path / "tables", table).fresh_states == {}
        sok.dump(tmp_path / "empty", untrained, values_only=True)
        assert sok.load(tmp_path / "empty", untrained).fresh_states == {}

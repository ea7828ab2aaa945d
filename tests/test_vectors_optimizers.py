# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Golden numbers of optimizers, from a file: rows and states after several steps, local and global."""

import json
import pathlib

import kinds
import numpy as np
import pytest
import reference_optimizers
import tensorflow as tf

import sok

CASES = json.loads((pathlib.Path(__file__).parent / "vectors" / "optimizers.json").read_text())["cases"]
CLOSE = {"rtol": 2e-5, "atol": 2e-6}

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['optimizer']}-{case['update']}-{case['dim']}")


def _rows(pairs):
    # Decimal strings: a JSON number would lose bits of a 64-bit key.
    return {int(key): np.asarray(row, np.float64) for key, row in pairs}


def _keys(step):
    return [int(key) for key in step["ids"]]


@by_name
def test_rows_and_states(run, case):
    table, _ = kinds.table_of(_rows(case["initial"]))
    optimizer = sok.OptimizerWrapper(
        reference_optimizers.keras_optimizer(case["optimizer"], case["hyperparameters"]), case["update"]
    )

    def step(keys, gradients):
        optimizer.apply_gradients([(tf.IndexedSlices(gradients, keys), table)])

    for one in case["steps"]:
        run(step, tf.constant(_keys(one), tf.int64), tf.constant(one["gradients"], tf.float32))
    held = sok.check_out(table)
    places = {int(key): place for place, key in enumerate(held.pop("ids"))}
    assert set(places) == set(_rows(case["final"]))
    values = held.pop("values")
    for key, row in _rows(case["final"]).items():
        np.testing.assert_allclose(values[places[key]], row, err_msg=f"row {key}", **CLOSE)
    states = {name.split(".")[1]: state for name, state in held.items()}
    for key, expected in case["final_slots"]:
        assert set(expected) == set(states)
        for name, state in expected.items():
            np.testing.assert_allclose(states[name][places[int(key)]], state, err_msg=f"{name} of {key}", **CLOSE)


@by_name
def test_oracle_agrees(case):
    rows = _rows(case["initial"])
    oracle = reference_optimizers.Reference(case["optimizer"], case["hyperparameters"], case["update"])
    for one in case["steps"]:
        oracle.step({"t": rows}, {"t": (_keys(one), one["gradients"])})
    for key, row in _rows(case["final"]).items():
        np.testing.assert_allclose(rows[key], row, rtol=1e-12, atol=1e-12)

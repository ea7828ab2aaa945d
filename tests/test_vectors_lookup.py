# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Golden numbers of lookups, from files; and the two-slot example of HugeCTR's articles."""

import json
import pathlib

import keras
import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok

CASES = json.loads((pathlib.Path(__file__).parent / "vectors" / "lookup.json").read_text())["cases"]


def _bags(ids):
    # Decimal strings: a JSON number would lose bits of a 64-bit id.
    return [[int(id_) for id_ in bag] for bag in ids]


@pytest.mark.parametrize("kind", ["ragged32", "sparse"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vectors(run, case, kind):
    table, _ = kinds.table_of({int(id_): row for id_, row in case["table"]})
    weights = case["weights"] and kinds.make(kind, case["weights"], "float32")
    (output,), (slices,), weight_gradients = run(
        lambda *args: kinds.lookup_with_gradients([table], [args[0]], [args[1]], [case["combiner"]], [args[2]]),
        kinds.make(kind, _bags(case["ids"]), "int64"),
        weights,
        np.asarray(case["output_gradient"], np.float32),
    )
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(output, case["output"], **close)
    expected = {int(id_): row for id_, row in case["row_gradients"]}
    kinds.assert_rows(kinds.slices_as_dict(slices), expected, **close)
    if case["weight_gradients"] is not None:
        expected = np.concatenate([bag for bag in case["weight_gradients"] if bag])
        np.testing.assert_allclose(weight_gradients[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_oracle_agrees_with_the_vectors(case):
    table = {int(id_): row for id_, row in case["table"]}
    bags, weights, combiner = _bags(case["ids"]), case["weights"], case["combiner"]
    gradient = case["output_gradient"]
    output = reference.lookup(table, bags, case["dim"], weights, combiner)
    np.testing.assert_allclose(output, case["output"], rtol=1e-12, atol=1e-12)
    kinds.assert_rows(
        reference.row_gradients(table, bags, gradient, weights, combiner),
        {int(id_): row for id_, row in case["row_gradients"]},
        rtol=1e-9,
        atol=1e-9,
    )
    if weights is not None:
        found = reference.weight_gradients(table, bags, gradient, weights, combiner)
        for mine, theirs in zip(found, case["weight_gradients"], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


def test_two_samples_two_slots():
    """Row offsets 0, 4, 7, 9, 10: each bag is one slot of one sample. One Adagrad step."""
    bags = [[40, 50, 10, 20], [30, 50, 10], [30, 20], [10]]
    ids = tf.RaggedTensor.from_row_splits(
        tf.constant([40, 50, 10, 20, 30, 50, 10, 30, 20, 10], tf.int64), [0, 4, 7, 9, 10]
    )
    table, rows = kinds.table_of({id_: [id_ / 10, -id_ / 100] for id_ in (10, 20, 30, 40, 50)})
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.5, initial_accumulator_value=0.1, epsilon=1e-7))
    gradient = np.asarray([[1.0, 2.0], [-1.0, 0.5], [3.0, 0.0], [0.25, -2.0]], np.float32)
    (output,), (slices,), _ = kinds.lookup_with_gradients([table], [ids], [None], ["sum"], [gradient])
    np.testing.assert_allclose(output, [[12.0, -1.2], [9.0, -0.9], [5.0, -0.5], [1.0, -0.1]], rtol=1e-6)
    by_hand = {
        10: gradient[0] + gradient[1] + gradient[3],
        20: gradient[0] + gradient[2],
        30: gradient[1] + gradient[2],
        40: gradient[0],
        50: gradient[0] + gradient[1],
    }
    kinds.assert_rows(kinds.slices_as_dict(slices), by_hand, rtol=1e-6)
    kinds.assert_rows(by_hand, reference.row_gradients(rows, bags, gradient), rtol=1e-6)
    optimizer.apply_gradients([(slices, table)])
    kinds.assert_rows(
        kinds.export_as_dict(table),
        {id_: rows[id_] - 0.5 * g / np.sqrt(0.1 + g**2 + 1e-7) for id_, g in by_hand.items()},
        rtol=1e-5,
    )

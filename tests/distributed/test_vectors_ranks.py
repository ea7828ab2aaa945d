# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Golden numbers of one step on several ranks, from a file."""

import json
import pathlib

import keras
import model
import numpy as np
import pytest
import tensorflow as tf

import sok
from sok import checks

CASES = json.loads(
    (pathlib.Path(__file__).parents[1] / "vectors" / "ranks.json").read_text()
)["cases"]


def step(case, placement, kind, exchange):
    """One step of a case: this rank's output, and the rows it keeps afterwards."""
    rank = sok.init().rank
    initial = {int(id_): row for id_, row in case["initial"]}
    here = case["per_rank"][rank]
    table = sok.DynamicVariable(case["dim"], mode=placement)
    sok.assign(table, tf.constant(list(initial), tf.int64), list(initial.values()))
    hyper = case["hyperparameters"]
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(**hyper))
    ids = model.ragged([[int(id_) for id_ in bag] for bag in here["ids"]], tf.int64)
    if kind == "sparse":
        ids = ids.to_sparse()
    gradient = np.asarray(here["output_gradient"], np.float32).reshape(-1, case["dim"])
    with tf.GradientTape() as tape:
        output = sok.lookup_sparse(table, ids, combiners=case["combiner"], exchange=exchange)
        loss = tf.reduce_sum(output * gradient)
    optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table]))
    return output.numpy(), model.export_all([table])


@pytest.mark.parametrize("exchange", checks.EXCHANGES)
@pytest.mark.parametrize("kind", ["ragged", "sparse"])
@pytest.mark.parametrize("placement", ["distributed", "localized:1"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['ranks']}-{case['combiner']}")
def test_vectors(ranks_of, case, placement, kind, exchange):
    results = ranks_of(case["ranks"]).run(step, case, placement, kind, exchange)
    for (output, _), here in zip(results, case["per_rank"]):
        np.testing.assert_allclose(
            output, np.reshape(here["output"], [-1, case["dim"]]), rtol=1e-5, atol=1e-6
        )
    (rows,) = model.merge_exports(
        [exports for _, exports in results], [model.Table("table", mode=placement)]
    )
    final = {int(id_): row for id_, row in case["final"]}
    assert set(rows) == set(final)
    for id_, row in final.items():
        np.testing.assert_allclose(rows[id_], row, rtol=1e-5, atol=1e-6)

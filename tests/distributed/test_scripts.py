# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What users run: README's scripts as they stand under horovodrun, and the demo on two ranks.

`tests/test_readme.py` runs the same scripts on one process.
"""

import re
import sys
from pathlib import Path

import numpy as np
from test_readme import run_example

import sok
from sok.models import movielens_demo

LAUNCHER = [Path(sys.executable).with_name("horovodrun"), "-np", "2", "--gloo"]


def test_custom_loop(tmp_path):
    printed = run_example(1, tmp_path, *LAUNCHER)
    found = re.findall(r"rank (\d) of 2: loss ([0-9.]+), keeps \[(\d+), 16\]", printed)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert all(float(loss) < 0.6 for _, loss, _ in found)
    # Together they keep each of the 1000 users about once: nobody keeps all.
    assert 950 < sum(int(rows) for _, _, rows in found) <= 1000


def test_keras(tmp_path):
    printed = run_example(0, tmp_path, *LAUNCHER)
    found = re.findall(r"rank (\d) of 2: AUC ([0-9.]+), keeps \[(\d+), 16\]", printed)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert all(float(auc) > 0.85 for _, auc, _ in found)
    # The metric is averaged over ranks.
    assert len({auc for _, auc, _ in found}) == 1
    assert sum(int(rows) for _, _, rows in found) == 500
    # What two ranks have saved loads on one.
    assert sok.load_model(tmp_path / "model.keras").layers[0].table.size == [500, 16]


def demo():
    _, history, _ = movielens_demo.train(seed=1, epochs=2, verbose=0)
    return history["val_auc"]


def test_demo_on_two_ranks_reaches_the_auc_of_one(ranks_of):
    one = max(demo())
    two = ranks_of(2).run(demo, timeout=400)
    np.testing.assert_allclose(two[0], two[1], atol=1e-4)
    assert max(two[0]) > one - 0.005, (one, two[0])
    assert max(two[0]) > 0.75

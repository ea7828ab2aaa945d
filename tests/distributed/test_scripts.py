# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What users run: README's script under horovodrun, and the demo on two ranks."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from sok.models import movielens_demo

ROOT = pathlib.Path(__file__).parents[2]


def script_of_readme():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (script,) = [block for block in blocks if "sok.init()" in block]
    return script


@pytest.mark.parametrize("processes", [1, 2])
def test_script_of_readme(processes, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(script_of_readme())
    command = [sys.executable, str(script)]
    if processes > 1:
        launcher = pathlib.Path(sys.executable).with_name("horovodrun")
        command = [str(launcher), "-np", str(processes), "--gloo", *command]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"rank (\d) of (\d): loss ([\d.]+), keeps \[(\d+), 16\]", done.stdout)
    assert sorted(int(rank) for rank, *_ in lines) == list(range(processes))
    for _, size, loss, _ in lines:
        assert int(size) == processes
        assert float(loss) < 0.69
    # Each user is on one rank.
    assert 900 < sum(int(kept) for *_, kept in lines) <= 1000


def demo():
    _, history, _ = movielens_demo.train(seed=1, epochs=3, verbose=0)
    return history["val_auc"]


def test_demo_on_two_ranks_reaches_the_auc_of_one(ranks_of):
    one = max(demo())
    two = ranks_of(2).run(demo, timeout=400)
    np.testing.assert_allclose(two[0], two[1], atol=1e-4)
    assert max(two[0]) > one - 0.005, (one, two[0])
    assert max(two[0]) > 0.75

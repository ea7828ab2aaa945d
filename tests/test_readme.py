# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The README's examples run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def run_example(number, folder, *launcher):
    """What example `number` prints, run from `folder`."""
    (folder / "train.py").write_text(EXAMPLES[number])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [*launcher, sys.executable, "train.py"]
    result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def test_every_example_is_tested():
    assert len(EXAMPLES) == 3


@pytest.mark.slow
def test_keras(tmp_path):
    printed = run_example(0, tmp_path)
    found = re.search(r"rank 0 of 1: AUC ([0-9.]+), keeps \[(\d+), 16\]", printed)
    assert float(found[1]) > 0.85
    assert int(found[2]) == 500
    assert (tmp_path / "model.keras").exists()


@pytest.mark.slow
def test_custom_loop(tmp_path):
    printed = run_example(1, tmp_path)
    found = re.search(r"rank 0 of 1: loss ([0-9.]+), keeps \[(\d+), 16\]", printed)
    assert float(found[1]) < 0.6
    assert int(found[2]) > 950


@pytest.mark.slow
def test_saving_and_loading(tmp_path):
    printed = run_example(2, tmp_path)
    assert "2 rows written" in printed
    assert "step=1, rows={'user': 2}" in printed
    assert (tmp_path / "dump" / "manifest.json").exists()

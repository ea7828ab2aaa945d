# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The README's custom loop runs under horovodrun as it stands."""

import re
import sys
from pathlib import Path

from test_readme import run_example


def test_custom_loop_on_two_ranks(tmp_path):
    launcher = [Path(sys.executable).parent / "horovodrun", "-np", "2", "--gloo"]
    printed = run_example(1, tmp_path, *launcher)
    found = re.findall(r"rank (\d) of 2: loss ([0-9.]+), keeps \[(\d+), 16\]", printed)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert all(float(loss) < 0.6 for _, loss, _ in found)
    # Together they keep each of the 1000 users about once: nobody keeps all.
    assert 950 < sum(int(rows) for _, _, rows in found) <= 1000

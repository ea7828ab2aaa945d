# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every test of this suite has passed on a GPU too, or waits for the next run there: the committed summary of
tests/gpu/run.sh says so."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "gpu"))
import proof

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def collected():
    """The ids of all tests that run without a GPU and on one rank."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--ignore=tests/distributed",
               "--ignore=tests/gpu", "-p", "no:cacheprovider"]  # fmt: skip
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.fixture(scope="module")
def unproven(collected):
    """Those of them that have not passed on a GPU and should have."""
    tests = json.loads(proof.LATEST.read_text())["tests"]
    passed = {name for name, test in tests.items() if test["outcome"] == "passed"}
    return [test for test in collected if test not in passed and not proof.is_exempt(test)]


def test_every_test_has_passed_on_a_gpu(collected, unproven):
    assert len(collected) > 100
    missing = [test for test in unproven if not any(proof.matches(test, pattern) for pattern in proof.awaited())]
    assert not missing, f"run tests/gpu/run.sh; without a twin that passed on a GPU: {missing}"


def test_what_the_next_run_is_to_prove_has_not_been_proven(unproven):
    for pattern, reason in proof.awaited().items():
        assert len(reason) > 10, pattern
        assert any(proof.matches(test, pattern) for test in unproven), f"take {pattern} out of tests/gpu/awaited.txt"


def test_every_exemption_is_needed_and_has_a_reason(collected):
    for pattern, reason in proof.exemptions().items():
        assert len(reason) > 10, pattern
        assert any(proof.matches(test, pattern) for test in collected), pattern


def test_names_of_tests_are_the_same_in_every_run(collected):
    """No address of an object is in one."""
    assert not [test for test in collected if re.search(r"0x[0-9a-f]{6}", test)]

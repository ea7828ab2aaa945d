# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes what a run on a GPU showed: set SOK_GPU_SUMMARY to the file's path."""

import hashlib
import json
import os
import pathlib

import pytest
import tensorflow as tf

ROOT = pathlib.Path(__file__).parents[2]
TREES = ("sok", "cc_ops", "cuda", "tests")
SOURCES = (".py", ".h", ".cc", ".cu", ".cuh", ".json", ".sh")
_outcomes: dict[str, str] = {}


def tree_hash(folder: str) -> str:
    """SHA-256 over the names and contents of a folder's sources, results and caches left out."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / folder).rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in SOURCES or "results/" in name or path.name == "_build_info.json":
            continue
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def pytest_collection_modifyitems(config, items):
    if not tf.config.list_physical_devices("GPU"):
        here = pathlib.Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="no GPU in this machine"))


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session):
    path = os.environ.get("SOK_GPU_SUMMARY")
    if not path:
        return
    devices = [
        tf.config.experimental.get_device_details(device).get("device_name")
        for device in tf.config.list_physical_devices("GPU")
    ]
    binary = hashlib.sha256((ROOT / "sok/_sok_ops.so").read_bytes()).hexdigest()
    summary = {
        "gpu": devices,
        "tensorflow": tf.__version__,
        "binary_sha256": binary,
        "tree_sha256": {tree: tree_hash(tree) for tree in TREES},
        "outcomes": dict(sorted(_outcomes.items())),
    }
    pathlib.Path(path).write_text(json.dumps(summary, indent=1) + "\n")

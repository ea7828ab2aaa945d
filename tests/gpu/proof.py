# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run on a GPU showed: a pytest plugin that records it, and the summary made of such records.

    python tests/gpu/proof.py SUMMARY RECORDS SEED     merges the records of all parts of a run, and what SUMMARY
                                                       has of an earlier run of other parts on this very tree
    python tests/gpu/proof.py --check SUMMARY          fails unless the summary is one of this very tree, in which all
                                                       tests passed, and none is awaited
"""

import fnmatch
import hashlib
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
TREES = ("sok", "cc_ops", "cuda", "tests")
SOURCES = (".py", ".h", ".cc", ".cu", ".cuh", ".json", ".sh")
HERE = pathlib.Path(__file__).parent
LATEST = HERE / "results" / "h200.json"


def tree_hash(folder: str) -> str:
    """SHA-256 over the names and contents of a folder's sources, results and caches left out."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / folder).rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in SOURCES or "/results/" in name or path.name == "_build_info.json":
            continue
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def exemptions() -> dict[str, str]:
    """Patterns of test ids that have no twin on a GPU, and why."""
    return _entries("exemptions.txt")


def awaited() -> dict[str, str]:
    """Patterns of test ids that the next run on a GPU is to prove, and why the last one has not."""
    return _entries("awaited.txt")


def _entries(name: str) -> dict[str, str]:
    lines = (HERE / name).read_text().splitlines()
    entries = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {pattern: reason.strip() for pattern, _, reason in entries}


def matches(test: str, pattern: str) -> bool:
    # Brackets of parameters are no patterns.
    return fnmatch.fnmatchcase(test.split("[")[0], pattern)


def is_exempt(test: str) -> bool:
    return any(matches(test, pattern) for pattern in exemptions())


# ---- the plugin: `-p proof`, SOK_GPU_RECORD names the file ------------------------------------------

_tests: dict[str, dict] = {}


def pytest_collection_modifyitems(config, items):
    exempt = [item for item in items if is_exempt(item.nodeid)]
    config.hook.pytest_deselected(items=exempt)
    items[:] = [item for item in items if item not in set(exempt)]


def pytest_runtest_logreport(report):
    record = _tests.setdefault(report.nodeid, {"outcome": "passed", "kernels": 0})
    if report.outcome != "passed":
        record["outcome"] = report.outcome
    record["kernels"] = dict(report.user_properties).get("kernels", record["kernels"])


def pytest_sessionfinish():
    pathlib.Path(os.environ["SOK_GPU_RECORD"]).write_text(json.dumps(_tests))


# ---- the summary ---------------------------------------------------------------------------------------


def summarise(records: str, seed: str) -> dict:
    import tensorflow as tf

    tests: dict[str, dict] = {}
    for path in sorted(pathlib.Path(records).glob("*.json")):
        tests.update(json.loads(path.read_text()))
    return {
        "gpu": [
            tf.config.experimental.get_device_details(device).get("device_name")
            for device in tf.config.list_physical_devices("GPU")
        ],
        "tensorflow": tf.__version__,
        "seed": int(seed),
        "binary_sha256": hashlib.sha256((ROOT / "sok/_sok_ops.so").read_bytes()).hexdigest(),
        "tree_sha256": {tree: tree_hash(tree) for tree in TREES},
        "passed": sum(test["outcome"] == "passed" for test in tests.values()),
        "tests": dict(sorted(tests.items())),
    }


def add_earlier(summary: dict, earlier: dict) -> None:
    """Adds the tests of an earlier run with the same seed, if it was of the same tree and binary."""
    if any(earlier[key] != summary[key] for key in ("tree_sha256", "binary_sha256", "seed", "tensorflow")):
        return
    summary["tests"] = dict(sorted({**earlier["tests"], **summary["tests"]}.items()))
    summary["passed"] = sum(test["outcome"] == "passed" for test in summary["tests"].values())


def check(path: str) -> list[str]:
    """What keeps a summary from being the proof of this tree."""
    summary = json.loads(pathlib.Path(path).read_text())
    wrong = [
        f"{tree} is not the tree that was tested" for tree in TREES if summary["tree_sha256"][tree] != tree_hash(tree)
    ]
    failed = [name for name, test in summary["tests"].items() if test["outcome"] != "passed"]
    wrong += [f"{name} did not pass" for name in failed]
    return wrong + [f"tests/gpu/awaited.txt has {name}: when it has passed, take its line out" for name in awaited()]


def main(arguments: list[str]) -> int:
    if arguments[0] == "--check":
        problems = check(arguments[1])
        print("\n".join(problems) or f"{arguments[1]} proves this tree")
        return bool(problems)
    path, records, seed = arguments
    summary = summarise(records, seed)
    if pathlib.Path(path).exists():
        add_earlier(summary, json.loads(pathlib.Path(path).read_text()))
    pathlib.Path(path).write_text(json.dumps(summary, indent=1) + "\n")
    failed = {name: test["outcome"] for name, test in summary["tests"].items() if test["outcome"] != "passed"}
    print(f"{summary['passed']} passed, {len(failed)} did not", *failed, sep="\n  ")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

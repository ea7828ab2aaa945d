# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the native GPU tests, once for each tool of compute-sanitizer given, and records their outcomes.

native.py RECORDS PROGRAM [memcheck racecheck initcheck]
"""

import json
import os
import pathlib
import subprocess
import sys

# Under a sanitizer a kernel takes up to a thousand times as long.
SMALLER = {"SOK_TEST_SCALE": "100"}

# initcheck does not see what the copy engine writes: all that comes out would be uninitialised.
WITHOUT_COPY_ENGINE = ("initcheck",)


def outcomes(report: pathlib.Path, prefix: str) -> dict[str, dict]:
    tests = {}
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            failed = bool(test.get("failures")) or test["result"] != "COMPLETED"
            tests[f"{prefix}::{suite['name']}.{test['name']}"] = {
                "outcome": "failed" if failed else "passed",
                "kernels": int(test.get("kernels", 0)),
            }
    return tests


def main(records: str, program: str, *tools: str) -> int:
    status = 0
    for tool in tools or ("native",):
        report = pathlib.Path(records) / f"{tool}.report"
        command = [program, f"--gtest_output=json:{report}", "--gtest_brief=1"]
        if tools:
            if tool in WITHOUT_COPY_ENGINE:
                command.append("--gtest_filter=-DeviceCopyEngineTest.*")
            command = ["compute-sanitizer", f"--tool={tool}", "--error-exitcode=9", "--print-limit=5", *command]
        limited = ["timeout", "--signal=KILL", os.environ.get("LIMIT", "450"), *command]
        done = subprocess.run(limited, env={**os.environ, **(SMALLER if tools else {})}, check=False)
        tests = outcomes(report, tool) if report.exists() else {}
        ended = {"outcome": "failed" if done.returncode else "passed", "kernels": 0}
        tests[f"{tool}::no finding"] = ended
        (pathlib.Path(records) / f"{tool}.json").write_text(json.dumps(tests))
        status = status or done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A dump that is killed leaves the one before it."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import killed_dumps
import numpy as np
import pytest

import sok
from sok.checkpoint import manifest, reader

KILLS = 50
TOTAL = killed_dumps.ROWS * (killed_dumps.WIDTH * 4 + 8)


def generation_of(folder):
    return reader.read_manifest(folder).generation


def new_bytes(folder, known):
    """Of the generation that is being written: the one that was not there before."""
    total = 0
    for entry in os.scandir(folder):
        if manifest.is_generation(entry.name) and entry.name not in known:
            total += sum(f.stat().st_size for f in os.scandir(entry.path))
    return total


@pytest.mark.slow
def test_fifty_kills(tmp_path):
    seed = 20
    generator = random.Random(seed)
    folder = tmp_path / "dump"
    process = subprocess.Popen(
        [sys.executable, killed_dumps.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip

    def start(version):
        process.stdin.write(f"{folder} {version}\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    start(1)
    assert int(process.stdout.readline()) == 0
    finished, version = generation_of(folder), 1
    log = []
    for kill in range(KILLS):
        # A few beyond the last byte: there the manifest is written and the old shards are removed.
        target = generator.randrange(1, int(TOTAL * 1.02))
        known = set(os.listdir(folder))
        child = start(kill + 2)
        deadline = time.monotonic() + 120
        while True:
            try:
                reached = new_bytes(folder, known)
            except FileNotFoundError:
                continue  # it was removed while it was counted
            if reached >= target or (reached >= TOTAL and generator.random() < 0.02):
                break
            if reached >= TOTAL and generation_of(folder) != finished:
                break
            assert time.monotonic() < deadline
        with contextlib.suppress(ProcessLookupError):  # it was faster
            os.kill(child, signal.SIGKILL)
        status = int(process.stdout.readline())
        now = generation_of(folder)
        new = now != finished
        try:
            at = TOTAL if new else new_bytes(folder, known)
        except FileNotFoundError:
            at = TOTAL
        log.append({"kill": kill, "target": target, "byte": at, "of": TOTAL, "killed": status == signal.SIGKILL,
                    "new": new})  # fmt: skip
        if new:
            finished, version = now, kill + 2
        table = sok.DynamicVariable(killed_dumps.WIDTH, name="t")
        assert sok.load(folder, table).step == version
        ids, values = sok.export(table)
        np.testing.assert_array_equal(np.sort(ids), np.arange(killed_dumps.ROWS))
        assert np.all(values.numpy() == version)
    # What the killed ones have left goes with the next dump.
    start(99)
    assert int(process.stdout.readline()) == 0
    assert sorted(path.name for path in folder.iterdir()) == [generation_of(folder), "manifest.json"]
    process.stdin.close()
    assert process.wait(60) == 0
    text = json.dumps({"seed": seed, "kills": log}, indent=1)
    (tmp_path / "kills.json").write_text(text)
    print(text)
    in_mid_write = [k for k in log if k["killed"] and not k["new"] and 0 < k["byte"] < TOTAL]
    assert len(in_mid_write) >= 40, text

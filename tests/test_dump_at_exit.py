# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A program that ends while a dump is being written."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import sok

PROGRAM = """
import sys
import tensorflow as tf
import sok

table = sok.DynamicVariable(8, initializer="ones", name="items")
sok.lookup_sparse(table, tf.range(200_000, dtype=tf.int64)[:, None])
sok.dump(sys.argv[1], table, blocking=False, progress=True)
"""



def run(program, folder):
    return subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_a_dump_at_the_end_of_a_program_is_written(tmp_path):
    done = run(PROGRAM, tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    table = sok.DynamicVariable(8, name="items")
    sok.load(str(tmp_path / "dump"), table)
    assert table.size[0] == 200_000
    np.testing.assert_array_equal(sok.lookup_sparse(table, tf.constant([199_999]), training=False), np.ones((1, 8)))


@pytest.mark.slow
def test_what_nobody_asks_for_is_told_at_the_end(tmp_path):
    broken = "\nsok.checkpoint.writer._Dump._write_shard = lambda *_: 1 / 0\n"
    program = PROGRAM.replace("\nsok.dump", broken + "sok.dump")
    done = run(program, tmp_path)
    assert "failed: ZeroDivisionError" in done.stderr

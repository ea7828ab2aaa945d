# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A process that makes processes that dump, for the test that kills them.

It has imported the library before it forks, so that each of them starts at once. Reads lines "folder
version", answers with the process that dumps a table whose values are all `version` into the folder.
"""

import os
import sys

import numpy as np

import sok
from sok.checkpoint import shards

ROWS, WIDTH = 100_000, 64
# Small ones, so that many moments fall between two files and inside of a manifest.
shards.SHARD_BYTES = 2 << 20


def work(folder, version):
    table = sok.DynamicVariable(WIDTH, name="t", capacity=ROWS)
    sok.assign(table, np.arange(ROWS), np.full((ROWS, WIDTH), version, np.float32))
    sok.dump(folder, table, step=version)


if __name__ == "__main__":
    for line in sys.stdin:
        folder, version = line.split()
        child = os.fork()
        if child == 0:
            work(folder, int(version))
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)

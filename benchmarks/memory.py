# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a process whose hash table (width 64, float32) grows, over the bytes of its rows."""

import resource
import subprocess
import sys

import defaults
import measure

WIDTH = 64
BATCH = 10_000


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def grow(rows: int) -> None:
    """Prints the bytes by which the peak grows with the table; a process can be asked once."""
    import tensorflow as tf

    import sok

    def insert(table, first):
        # Found first by a lookup that inserts, which then reads one vector: outputs stay small.
        ids = tf.range(first, first + BATCH, dtype=tf.int64)[tf.newaxis]
        sok.lookup_sparse(table, ids, combiners="sum")

    # What TensorFlow allocates once, for any table.
    small = sok.DynamicVariable(WIDTH, initializer="random", seed=1)
    insert(small, 0)
    before = peak_bytes()
    table = sok.DynamicVariable(WIDTH, initializer="random", seed=1)
    for first in range(0, rows, BATCH):
        insert(table, first)
    assert table.size == [rows, WIDTH]
    print(peak_bytes() - before)


def main() -> None:
    if sys.argv[1:2] == ["--grow"]:
        grow(int(sys.argv[2]))
        return
    measure.arguments(__doc__)
    rows = []
    for count in defaults.MEMORY_ROWS:
        command = [sys.executable, __file__, "--grow", str(count)]
        grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        row_bytes = count * WIDTH * 4
        rows.append(
            {"rows": count, "MB of rows": row_bytes / 1e6, "MB at peak": grown / 1e6, "ratio": grown / row_bytes}
        )
    measure.save("memory", rows)


if __name__ == "__main__":
    main()

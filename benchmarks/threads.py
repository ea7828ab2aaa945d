# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""One thread against two: lookups and steps of the main shape, beside the machine's memory bandwidth."""

import concurrent.futures
import json
import subprocess
import sys

import defaults
import measure
import numpy as np

BYTES = 1 << 28


def bandwidth(threads: int) -> float:
    """GB/s read and written by copies."""
    source = np.ones(BYTES // 8)
    target = np.zeros(BYTES // 8)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:

        def copy(_):
            list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))

        return 2 * BYTES / measure.in_turns({"copy": copy}, 10)["copy"] / 1e6


def stages(threads: int, repeats: int) -> None:
    """Prints the times of a process with so many threads."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import tables
    from lookup import sok_lookup
    from train_step import sok_step

    shape = defaults.SHAPES["main"]
    static, hashed = tables.static(shape), tables.hashed(shape)
    gradient = tf.ones([shape.bags, shape.width])
    functions = {}
    for ids in defaults.DISTRIBUTIONS:
        batches = tables.Batches(ids, shape)
        for kind, table in (("static", static), ("hash", hashed)):
            functions[f"{kind} lookup, {ids}"] = batches.each(sok_lookup(table, False), "dense")
            functions[f"{kind} step, {ids}"] = batches.each(sok_step(table, gradient), "dense")
    print(json.dumps(measure.in_turns(functions, repeats)))


def main() -> None:
    if sys.argv[1:2] == ["--threads"]:
        stages(int(sys.argv[2]), int(sys.argv[3]))
        return
    chosen = measure.arguments(__doc__)
    times = []
    for threads in (1, 2):
        command = [sys.executable, __file__, "--threads", str(threads), str(chosen.repeats)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        times.append(json.loads(output.splitlines()[-1]))
    rows = [
        {"stage": name, "1 thread, ms": one, "2 threads, ms": times[1][name], "ratio": one / times[1][name]}
        for name, one in times[0].items()
    ]
    one, two = bandwidth(1), bandwidth(2)
    rows.append({"stage": "copy, GB/s", "1 thread, ms": one, "2 threads, ms": two, "ratio": two / one})
    measure.save("threads", rows)


if __name__ == "__main__":
    main()

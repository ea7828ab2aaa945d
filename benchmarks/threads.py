# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""One thread and two, each in a process of its own; and copies of as many bytes as each stage must move.

What a stage must move: different rows once (a step: three times, as it reads and writes them, and twice more for
the accumulators), the output, the ids, and of a step the output's gradient.
"""

import concurrent.futures
import json
import subprocess
import sys

import defaults
import measure
import numpy as np

SHAPE = defaults.SHAPES["main"]


def bytes_of(verb: str, distribution: str) -> int:
    """The least bytes that a stage reads and writes, over a batch."""
    ids = measure.batches(distribution, SHAPE)[0][0]
    rows = len(np.unique(ids)) * SHAPE.width * 4
    output = SHAPE.bags * SHAPE.width * 4
    return rows + output + ids.nbytes if verb == "lookup" else 5 * rows + 2 * output + ids.nbytes


def copy_of(size: int, threads: int, pool: concurrent.futures.Executor):
    """A function that reads and writes `size` bytes together."""
    source, target = np.ones(size // 16), np.zeros(size // 16)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
    return lambda _: list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))


def stages(threads: int, repeats: int) -> None:
    """Prints the times of a process with so many threads."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import tables
    from lookup import sok_lookup
    from train_step import sok_step

    static, hashed = tables.static(SHAPE), tables.hashed(SHAPE)
    gradient = tf.ones([SHAPE.bags, SHAPE.width])
    functions = {}
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for ids in defaults.DISTRIBUTIONS:
            batches = tables.Batches(ids, SHAPE)
            for kind, table in (("static", static), ("hash", hashed)):
                functions[f"{kind} lookup, {ids}"] = batches.each(sok_lookup(table, False), "dense")
                functions[f"{kind} step, {ids}"] = batches.each(sok_step(table, gradient), "dense")
            for verb in ("lookup", "step"):
                functions[f"copy, as {verb}, {ids}"] = copy_of(bytes_of(verb, ids), threads, pool)
        print(json.dumps(measure.in_turns(functions, repeats)))


def main() -> None:
    if sys.argv[1:2] == ["--threads"]:
        stages(int(sys.argv[2]), int(sys.argv[3]))
        return
    chosen = measure.arguments(__doc__)
    least: list[dict[str, float]] = [{}, {}]
    # Twice each, in turns: the rest of the machine then weighs on both.
    for _ in range(2):
        for threads, times in enumerate(least, 1):
            command = [sys.executable, __file__, "--threads", str(threads), str(chosen.repeats)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for name, time in json.loads(output.splitlines()[-1]).items():
                times[name] = min(time, times.get(name, time))
    rows = []
    for name, one in least[0].items():
        two = least[1][name]
        moved = bytes_of("step" if "step" in name else "lookup", name.split(", ")[-1])
        rows.append(
            {
                "stage": name,
                "1 thread, ms": one,
                "2 threads, ms": two,
                "ratio": one / two,
                "MB": moved / 1e6,
                "1 thread, GB/s": moved / one / 1e6,
                "2 threads, GB/s": moved / two / 1e6,
            }
        )
    measure.save("threads", rows)


if __name__ == "__main__":
    main()

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dump and load of a large table, beside the disk's own sequential rate in the same run.

    python benchmarks/state.py --gigabytes 2 --folder /data --out benchmarks/results/state.json

The disk's rate: one file of as many bytes, in pieces of 32 MB, written and flushed, then read with a cold
cache. Peak memory is that of the process above what it held before, from /proc. Beside training: a thread
dumps while steps go on; what it delays is the longest step against the longest one without a dump.
"""

import argparse
import gc
import json
import os
import platform
import shutil
import tempfile
import threading
import time

import keras
import numpy as np
import tensorflow as tf

import sok

WIDTH = 64
PIECE = 32 << 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """The most that the process held above what it held at first."""

    def __enter__(self):
        gc.collect()
        self._first, self._most, self._stop = resident(), 0, False
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop:
            self._most = max(self._most, resident() - self._first)
            time.sleep(0.002)

    def __exit__(self, *_):
        self._stop = True
        self._thread.join()

    @property
    def megabytes(self):
        return round(self._most / 1e6)


def drop_from_cache(folder):
    for directory, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def disk_write(folder, size):
    data = np.random.default_rng(1).bytes(PIECE)
    start = time.perf_counter()
    descriptor = os.open(f"{folder}/plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(size // PIECE):
        os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - start


def disk_read(folder):
    drop_from_cache(folder)
    buffer = bytearray(PIECE)
    start = time.perf_counter()
    with open(f"{folder}/plain", "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def table_of(rows, name="bench"):
    table = sok.DynamicVariable(WIDTH, name=name, capacity=rows, seed=1)
    piece = 1 << 17
    for begin in range(0, rows, piece):
        ids = np.arange(begin, min(rows, begin + piece)) * 7919
        sok.lookup_sparse(table, tf.constant(ids[:, None]))
    return table


class Training:
    """Steps over a power-law batch."""

    def __init__(self, table, rows, batch):
        self._table, self._rows, self._batch = table, rows, batch
        self._optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.01))
        self._random = np.random.default_rng(2)
        self._step = tf.function(self._compute)

    def _compute(self, ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(sok.lookup_sparse(self._table, ids)))
        self._optimizer.apply_gradients(zip(tape.gradient(loss, [self._table]), [self._table], strict=True))

    def step(self):
        ids = (self._rows * self._random.random((self._batch, 1)) ** 3).astype(np.int64) * 7919
        ids = tf.constant(ids)
        start = time.perf_counter()
        self._step(ids)
        return time.perf_counter() - start


def run(arguments):
    folder = tempfile.mkdtemp(dir=arguments.folder)
    try:
        return measure(arguments, folder)
    finally:
        shutil.rmtree(folder)


def measure(arguments, folder):
    # Values and the state of Adagrad: 64 + 64 floats and a key.
    rows = int(arguments.gigabytes * 1e9) // (8 + 8 * WIDTH)
    table = table_of(rows)
    training = Training(table, rows, arguments.batch)
    for _ in range(3):
        training.step()
    size = rows * (8 + 8 * WIDTH)
    path = f"{folder}/dump"
    report = {}
    times = {"disk_write": [], "dump": [], "disk_read": [], "load": []}
    for _ in range(arguments.repeats):
        times["disk_write"].append(disk_write(folder, size))
        with PeakMemory() as dump_memory:
            start = time.perf_counter()
            sok.dump(path, table)
            times["dump"].append(time.perf_counter() - start)
        times["disk_read"].append(disk_read(folder))
        os.remove(f"{folder}/plain")
        drop_from_cache(folder)
        other = sok.DynamicVariable(WIDTH, name="bench", capacity=rows)
        start = time.perf_counter()
        sok.load(path, other)
        times["load"].append(time.perf_counter() - start)
        del other
        gc.collect()
        shutil.rmtree(path)
    best = {name: min(values) for name, values in times.items()}
    report |= {
        "gigabytes": size / 1e9,
        "rows": rows,
        "seconds": times,
        "gigabytes_per_second": {name: round(size / 1e9 / value, 3) for name, value in best.items()},
        "dump_of_disk": round(best["disk_write"] / best["dump"], 3),
        "load_of_disk": round(best["disk_read"] / best["load"], 3),
        "dump_extra_megabytes": dump_memory.megabytes,
    }
    quiet = [training.step() for _ in range(arguments.steps)]
    with PeakMemory() as beside_memory:
        start = time.perf_counter()
        handle = sok.dump(path, table, blocking=False)
        call = time.perf_counter() - start
        beside = []
        while not handle.done():
            beside.append(training.step())
        result = handle.result()
    report["beside_training"] = {
        "seconds_of_the_call": round(call, 4),
        "seconds": round(result.seconds, 3),
        "steps": len(beside),
        "longest_step_ms": round(1e3 * max(beside), 2),
        "median_step_ms": round(1e3 * float(np.median(beside)), 2),
        "longest_step_without_ms": round(1e3 * max(quiet), 2),
        "median_step_without_ms": round(1e3 * float(np.median(quiet)), 2),
        "longest_delay_of_blocking_time": round((max(max(beside), call) - float(np.median(quiet))) / best["dump"], 4),
        "extra_megabytes": beside_memory.megabytes,
        "copied_megabytes": round(result.extra_bytes / 1e6, 1),
    }
    report["machine"] = {
        "device": table.table.handle.device,
        "cpus": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "tensorflow": tf.__version__,
    }
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    report = run(arguments)
    text = json.dumps(report, indent=1)
    print(text)
    print(f"dump {report['dump_of_disk']:.2f} of the disk, load {report['load_of_disk']:.2f}")
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()

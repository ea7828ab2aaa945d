# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dump and load of a large table, beside the disk's own sequential rate in the same run.

    python benchmarks/state.py --gigabytes 2 --folder /data --out benchmarks/results/state.json
    python benchmarks/state.py --gigabytes 2 --device gpu --repeats 2 --out benchmarks/results/state_gpu.json

The disk's rate: one file of as many bytes, in pieces of 32 MB, written and flushed, then read with a cold
cache: through the page cache, and past it (O_DIRECT). Shares are of the faster one. `load` is into a new
table, whose pages the system has to find and clear: `new_pages` does that alone, for as many bytes, on all
cores. `load_again` is into a table that was emptied and has its pages, `load_over_rows` into one with rows,
which reads every file twice. Peak host memory is that of the process above what it held before, from /proc;
device memory is that of TensorFlow's allocator. Beside training: a thread dumps while steps go on; what it
delays is the longest step against the median of those without a dump.
"""

import argparse
import concurrent.futures
import gc
import json
import mmap
import os
import pathlib
import platform
import re
import shutil
import tempfile
import threading
import time

import keras
import numpy as np
import tensorflow as tf

import sok
from sok.checkpoint import files

WIDTH = 64
ROW_BYTES = 8 + 8 * WIDTH  # a key, values, the state of Adagrad
PIECE = 32 << 20
DEVICES = {"cpu": "/CPU:0", "gpu": "/GPU:0"}


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Memory:
    """The most that the process, and the device, held above what they held at first."""

    def __init__(self, device):
        self._gpu = re.sub("^/", "", device) if "GPU" in device else None

    def _on_device(self, which):
        return tf.config.experimental.get_memory_info(self._gpu)[which] if self._gpu else 0

    def __enter__(self):
        gc.collect()
        self._first, self._most, self._stop = resident(), 0, False
        self._first_on_device = self._on_device("current")
        if self._gpu:
            tf.config.experimental.reset_memory_stats(self._gpu)
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
        self._most_on_device = self._on_device("peak") - self._first_on_device

    @property
    def megabytes(self):
        host = {"extra_megabytes": round(self._most / 1e6)}
        return host | ({"extra_megabytes_on_device": round(self._most_on_device / 1e6)} if self._gpu else {})


def drop_from_cache(folder):
    for directory, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def disk_write(path, size, buffer, flags):
    start = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags)
    for _ in range(size // PIECE):
        os.write(descriptor, buffer)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - start


def disk_read(path, buffer, flags):
    start = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY | flags)
    while os.readv(descriptor, [buffer]):
        pass
    os.close(descriptor)
    return time.perf_counter() - start


def direct_flag(folder):
    """O_DIRECT, if the file system has it."""
    flag = getattr(os, "O_DIRECT", 0)
    try:
        os.close(os.open(f"{folder}/probe", os.O_WRONLY | os.O_CREAT | flag))
    except OSError:
        return 0
    return flag


def measure_disk(folder, size, times):
    path, buffer, direct = f"{folder}/plain", files.aligned(PIECE), direct_flag(folder)
    np.frombuffer(buffer, np.uint8)[:] = np.frombuffer(np.random.default_rng(1).bytes(PIECE), np.uint8)
    for way, flags in {"cached": 0, "direct": direct}.items():
        times[f"disk_write_{way}"].append(disk_write(path, size, buffer, flags))
        drop_from_cache(folder)
        times[f"disk_read_{way}"].append(disk_read(path, buffer, flags))
        os.remove(path)


def new_pages(size):
    """Touches fresh memory, in huge pages if there are any, as a table's slabs do."""
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    cores = len(os.sched_getaffinity(0))
    parts = np.array_split(np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE], cores)

    def touch(part):
        part[:] = 1

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        list(pool.map(touch, parts))
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
        return loss

    def step(self):
        ids = (self._rows * self._random.random((self._batch, 1)) ** 3).astype(np.int64) * 7919
        ids = tf.constant(ids)
        start = time.perf_counter()
        float(self._step(ids))  # a device has done it by then
        return time.perf_counter() - start


def timed(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def run(arguments):
    folder = tempfile.mkdtemp(dir=arguments.folder)
    try:
        with tf.device(DEVICES[arguments.device]):
            return measure(arguments, folder)
    finally:
        shutil.rmtree(folder)


def measure(arguments, folder):
    rows = int(arguments.gigabytes * 1e9) // ROW_BYTES
    table = table_of(rows)
    training = Training(table, rows, arguments.batch)
    for _ in range(3):
        training.step()
    size = rows * ROW_BYTES
    path = f"{folder}/dump"
    names = ["dump", "load", "load_over_rows", "load_again", "new_pages"]
    names += [f"disk_{verb}_{way}" for verb in ("write", "read") for way in ("cached", "direct")]
    times = {name: [] for name in names}
    extra = {}
    memory = Memory(DEVICES[arguments.device])
    for _ in range(arguments.repeats):
        measure_disk(folder, size, times)
        with memory:
            times["dump"].append(timed(sok.dump, path, table))
        extra["dump"] = memory.megabytes
        drop_from_cache(folder)
        times["new_pages"].append(new_pages(size))
        other = sok.DynamicVariable(WIDTH, name="bench", capacity=rows)
        times["load"].append(timed(sok.load, path, other))
        for name in ("load_over_rows", "load_again"):
            drop_from_cache(folder)
            with memory:
                times[name].append(timed(sok.load, path, other))
            extra[name] = memory.megabytes
            sok.erase(other, sok.export(other)[0])
        del other
        gc.collect()
        shutil.rmtree(path)
    best = {name: min(values) for name, values in times.items()}
    fastest = {verb: min(best[f"disk_{verb}_{way}"] for way in ("cached", "direct")) for verb in ("write", "read")}
    report = {
        "gigabytes": size / 1e9,
        "rows": rows,
        "seconds": {name: [round(value, 3) for value in values] for name, values in times.items()},
        "gigabytes_per_second": {name: round(size / 1e9 / value, 3) for name, value in best.items()},
        "dump_of_disk": round(fastest["write"] / best["dump"], 3),
        "load_of_disk": round(fastest["read"] / best["load"], 3),
        "memory": extra,
        "beside_training": beside_training(training, table, path, arguments.steps, memory, best["dump"]),
        "machine": {
            "device": table.table.handle.device,
            "cpus": len(os.sched_getaffinity(0)),
            "processor": processor(),
            "tensorflow": tf.__version__,
            "load_average": os.getloadavg()[0],
        },
    }
    return report


def beside_training(training, table, path, steps, memory, blocking):
    quiet = [training.step() for _ in range(steps)]
    with memory:
        start = time.perf_counter()
        handle = sok.dump(path, table, blocking=False)
        call = time.perf_counter() - start
        beside = []
        while not handle.done():
            beside.append(training.step())
        result = handle.result()
    return {
        "seconds_of_the_call": round(call, 4),
        "seconds": round(result.seconds, 3),
        "steps": len(beside),
        "longest_step_ms": round(1e3 * max(beside, default=0), 2),
        "median_step_ms": round(1e3 * float(np.median(beside or [0])), 2),
        "longest_step_without_ms": round(1e3 * max(quiet), 2),
        "median_step_without_ms": round(1e3 * float(np.median(quiet)), 2),
        "longest_delay_of_blocking_time": round((max([call, *beside]) - float(np.median(quiet))) / blocking, 4),
        "copied_megabytes": round(result.extra_bytes / 1e6, 1),
    } | memory.megabytes


def processor():
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
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

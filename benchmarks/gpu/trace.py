# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one lookup and one training step do on a GPU, kernel by kernel and copy by copy.

    CUDA_INJECTION64_PATH=libtrace.so SOK_TRACE=trace.jsonl trace.py IDS_MODULE_DIR run
    trace.py trace.jsonl table     prints each phase's activities; trace.cc says how to build libtrace.so

    CUDA_INJECTION64_PATH=libtrace.so SOK_TRACE=trace.jsonl trace.py IDS_MODULE_DIR fit [POLICY [LOOP]]
    trace.py trace.jsonl kernels   prints what each kernel took of a step of DLRM's `fit`
    trace.py trace.jsonl gaps      prints between which kernels the device was idle in it, and the larger copies

    CUDA_INJECTION64_PATH=libtrace.so SOK_TRACE=trace.jsonl stages CASE_FILE NAME
    trace.py trace.jsonl forward NAME   prints what the kernel of a forward pass took, batches taking turns

Case b: 26 tables of 1 M x 128, batch 65,536, one id each, in one pass; case c: one table of 10 M x 64, 16,384 bags
of 10, also with TensorFlow's own ops. A step is lookup, backward, Adagrad. The phases are parted by pauses of the
host, by which the table finds them.
"""

import collections
import itertools
import json
import pathlib
import statistics
import sys
import time

CASES = (("b", "power"), ("c", "power"), ("c", "uniform"))
PHASES = [
    f"{name} {dist}, {table}, {what}"
    for name, dist in CASES
    for table, what in [*itertools.product(("static", "hash"), ("lookup", "step")), ("TensorFlow", "step")]
    if (name, table) != ("b", "TensorFlow")
]
PAUSE = 0.3


def phase(function):
    """Runs the function alone, so that the trace shows a pause before and after it."""
    import tensorflow as tf

    tf.test.experimental.sync_devices()
    time.sleep(PAUSE)
    function()
    tf.test.experimental.sync_devices()
    time.sleep(PAUSE)


def run(folder):
    import keras
    import numpy as np
    import tensorflow as tf

    import sok

    sys.path[:0] = [folder, str(pathlib.Path(__file__).parent)]
    import ids as recipe
    import with_tensorflow

    tf.config.set_soft_device_placement(False)
    for name, dist in CASES:
        case = recipe.CASES[name]
        batch = recipe.batch(name, dist, 0)
        hotness = case["ids"] // case["batch"]
        ids = [tf.identity(tf.constant(values.reshape(-1, hotness), tf.int64)) for values, _ in batch]
        upstream = [tf.random.normal((case["batch"], case["dim"])) for _ in ids]
        for hashed in (False, True):
            if hashed:
                tables = [sok.DynamicVariable(case["dim"], "random", capacity=case["rows"] * 9 // 8) for _ in ids]
                for begin in range(0, case["rows"], 1 << 20):
                    every = tf.range(begin, min(begin + (1 << 20), case["rows"]), dtype=tf.int64)
                    sok.lookup_sparse(tables, [every[:, None]] * len(tables), combiners=["sum"] * len(tables))
            else:
                tables = [sok.Variable(shape=(case["rows"], case["dim"]), initializer="random") for _ in ids]
            optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.01))
            optimizer.build(tables)
            combiners = ["sum"] * len(tables)

            @tf.function
            def lookup(tables=tables, ids=ids, combiners=combiners):
                return sok.lookup_sparse(tables, ids, combiners=combiners, training=False)

            @tf.function
            def step(tables=tables, ids=ids, combiners=combiners, upstream=upstream, optimizer=optimizer):
                with tf.GradientTape() as tape:
                    vectors = sok.lookup_sparse(tables, ids, combiners=combiners)
                gradients = tape.gradient(vectors, tables, output_gradients=upstream)
                optimizer.apply_gradients(list(zip(gradients, tables, strict=True)))

            for _ in range(10):
                lookup()
                step()
            phase(lookup)
            phase(step)
            del lookup, step, tables, optimizer
        if name == "c":
            values, lengths = batch[0]
            splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            peer = tf.function(with_tensorflow.tensorflow_step(case["rows"], case["dim"], splits))
            arguments = (tf.identity(tf.constant(values, tf.int64)), upstream[0])
            for _ in range(10):
                peer(*arguments)
            phase(lambda peer=peer, arguments=arguments: peer(*arguments))
            del peer


FIT_STEPS = 20


def fit(folder, policy="mixed_bfloat16", loop="runs ahead"):
    """The DLRM of `with_tensorflow.py fit`, its dense part by XLA, for some steps."""
    import tensorflow as tf

    sys.path[:0] = [str(pathlib.Path(__file__).parent)]
    import with_tensorflow

    tf.config.experimental.enable_tensor_float_32_execution(True)
    _, train = with_tensorflow.dlrm_fit(*with_tensorflow.dlrm_batches(folder), policy, True)
    train(20, loop)
    phase(lambda: train(FIT_STEPS, loop))


def kernels(path):
    """Prints a step's share of each kernel and copy, the longest first: one JSON object a line.

    The batches are fetched ahead: the copies are those of up to four more than the steps.
    """
    group = _steps_of_fit(path)
    times, counts = collections.Counter(), collections.Counter()
    for activity in group:
        name = activity["kind"], activity["name"]
        times[name] += activity["ns"]
        counts[name] += 1
    busy, end = 0, 0
    for activity in group:
        last = activity["start_ns"] + activity["ns"]
        busy += max(0, last - max(activity["start_ns"], end))
        end = max(end, last)
    span = end - group[0]["start_ns"]
    print(json.dumps({"steps": FIT_STEPS, "span_ms": span / FIT_STEPS / 1e6, "busy_ms": busy / FIT_STEPS / 1e6}))
    for name, ns in times.most_common():
        print(json.dumps({"kind": name[0], "name": name[1], "ms": round(ns / FIT_STEPS / 1e6, 4),
                          "times": counts[name] / FIT_STEPS}))  # fmt: skip


def gaps(path, least_us=15):
    """Prints where no kernel ran for a while, the longest first, a step's share each; and copies of over 100 KB."""
    group = _steps_of_fit(path)
    idle, end, before = collections.Counter(), None, None
    for activity in (a for a in group if a["kind"] == "kernel"):
        if end is not None and activity["start_ns"] - end > least_us * 1000:
            idle[before, activity["name"]] += activity["start_ns"] - end
        if end is None or activity["start_ns"] + activity["ns"] > end:
            end, before = activity["start_ns"] + activity["ns"], activity["name"]
    for (first, then), ns in idle.most_common():
        print(json.dumps({"idle_ms": round(ns / FIT_STEPS / 1e6, 4), "after": first, "before": then}))
    start = group[0]["start_ns"]
    for copy in (a for a in group if a["kind"] == "copy" and a["bytes"] > 100_000):
        print(json.dumps({"copy": copy["name"], "bytes": copy["bytes"], "us": copy["ns"] / 1e3,
                          "at_ms": round((copy["start_ns"] - start) / 1e6, 3)}))  # fmt: skip


def forward(path, name, least=30):
    """Prints the median of the lookup kernel where only it ran: first of static tables, then of hash tables."""
    with open(path) as lines:
        activities = sorted((json.loads(line) for line in lines), key=lambda a: a["start_ns"])
    kernels = (a for a in activities if a["kind"] == "kernel")
    runs = [list(run) for is_lookup, run in itertools.groupby(kernels, lambda a: "lookup" in a["name"]) if is_lookup]
    for table, run in zip(("static", "hash"), [run for run in runs if len(run) >= least], strict=True):
        print(json.dumps({"case": name, "table": table, "what": "forward, its kernel", "calls": len(run),
                          "ms": round(statistics.median(a["ns"] for a in run) / 1e6, 4)}))  # fmt: skip


def _steps_of_fit(path):
    return max(phases_of(path)[-3:], key=lambda g: sum(a["kind"] == "kernel" for a in g))


def phases_of(path):
    """The activities between pauses: the last ones are the phases, in order."""
    with open(path) as lines:
        activities = sorted((json.loads(line) for line in lines), key=lambda a: a["start_ns"])
    groups, end = [], None
    for activity in activities:
        if activity["kind"] == "synchronise":
            continue
        if end is None or activity["start_ns"] - end > PAUSE * 1e9 * 0.9:
            groups.append([])
        groups[-1].append(activity)
        end = max(end or 0, activity["start_ns"] + activity["ns"])
    return groups


def table(path):
    """Prints each phase, one JSON object a line."""
    # A phase is a group between two pauses: few activities. Warming up and filling tables takes many.
    groups = phases_of(path)
    found = [g for g in groups if len(g) < 60]
    for name, group in zip(PHASES, found[-len(PHASES):], strict=True):
        start = group[0]["start_ns"]
        last = group[-1]
        kinds = collections.Counter(a["kind"] for a in group)
        print(json.dumps({
            "phase": name,
            "kernels": kinds["kernel"],
            "copies": kinds["copy"],
            "memsets": kinds["memset"],
            "kernel_ms": round(sum(a["ns"] for a in group if a["kind"] == "kernel") / 1e6, 4),
            "span_ms": round((last["start_ns"] + last["ns"] - start) / 1e6, 4),
            "activities": [[round((a["start_ns"] - start) / 1e3, 1), round(a["ns"] / 1e3, 1), a["kind"], a["name"],
                            a["bytes"]] for a in group],
        }))  # fmt: skip


if __name__ == "__main__":
    {"run": run, "table": table, "fit": fit, "kernels": kernels, "gaps": gaps, "forward": forward}[sys.argv[2]](
        sys.argv[1], *sys.argv[3:]
    )

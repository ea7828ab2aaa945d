# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""SOK's hash table beside TFRA 0.8.1, in two processes that take turns.

TFRA needs an environment of its own, since it works with TensorFlow 2.16 only (Python 3.9 to 3.11):

    python3.11 -m venv tfra && tfra/bin/pip install tensorflow-cpu==2.16.2 tf_keras==2.16.0 \\
        tensorflow-recommenders-addons==0.8.1 numpy==1.26.4
    python benchmarks/tfra.py --tfra tfra/bin/python

Each process answers a line with the name of a case by the milliseconds that one run of it took: a lookup or a
step after another one that is not counted, because the other process has had the caches and the cores.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

import defaults
import measure
import numpy as np

SHAPE = defaults.SHAPES["main"]
INSERT_REPEATS = 8  # each is NEW_ROWS / INSERT_BATCH calls
CASES = [
    *(f"{verb}, {ids}" for verb in ("lookup", "step") for ids in defaults.DISTRIBUTIONS),
    *(f"insert {kind}, {width}" for kind in ("uniform", "normal") for width in defaults.INSERT_WIDTHS),
]


def new_ids() -> list[np.ndarray]:
    ids = np.random.default_rng(defaults.SEED).permutation(defaults.NEW_ROWS)
    return np.array_split(ids, defaults.NEW_ROWS // defaults.INSERT_BATCH)


class SokSide:
    def __init__(self):
        import keras

        import sok

        self.sok = sok
        self.optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.01, 0.1))
        self.table = self.create(SHAPE.width, "uniform")

    def create(self, width, kind):
        return self.sok.DynamicVariable(width, initializer="random" if kind == "uniform" else "normal", seed=1)

    def insert(self, table, ids):
        self.sok.all2all_dense_embedding(table, ids)

    def functions(self, tf, splits, gradient):
        def read(ids, **options):
            bags = tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
            return self.sok.lookup_sparse(self.table, bags, combiners="sum", **options)

        @tf.function
        def lookup(ids):
            return read(ids, training=False)

        @tf.function
        def step(ids):
            with tf.GradientTape() as tape:
                output = read(ids)
            slices = tape.gradient(output, self.table, output_gradients=gradient)
            self.optimizer.apply_gradients([(slices, self.table)])

        self.optimizer.build([self.table])
        return {"lookup": lookup, "step": step}


class TfraSide:
    """unique, Cuckoo table, segment sum: its sparse lookup fails inside of tf.function."""

    def __init__(self):
        import tf_keras
        from tensorflow_recommenders_addons import dynamic_embedding as tfra

        self.tfra = tfra
        self.optimizer = tfra.DynamicEmbeddingOptimizer(tf_keras.optimizers.legacy.Adagrad(0.01, 0.1))
        self.made = 0
        self.table = self.create(SHAPE.width, "uniform")

    def create(self, width, kind):
        import tensorflow as tf

        initializer = (
            tf.random_uniform_initializer(-0.05, 0.05) if kind == "uniform" else tf.random_normal_initializer()
        )
        self.made += 1
        return self.tfra.get_variable(f"table{self.made}", dim=width, devices=["/CPU:0"], initializer=initializer)

    def insert(self, table, ids):
        table.upsert(ids, table.lookup(ids))

    def functions(self, tf, splits, gradient):
        bags = tf.constant(np.repeat(np.arange(SHAPE.bags), SHAPE.hotness))

        def combine(rows, places):
            return tf.math.segment_sum(tf.gather(rows, places), bags)

        @tf.function
        def lookup(ids):
            keys, places = tf.unique(ids)
            return combine(self.table.lookup(keys), places)

        shadow = self.tfra.shadow_ops.ShadowVariable(self.table)

        @tf.function
        def step(ids):
            keys, places = tf.unique(ids)
            with tf.GradientTape() as tape:
                rows = self.tfra.shadow_ops.embedding_lookup(shadow, keys)
                output = tf.sparse.segment_sum(rows, places, bags)
            slices = tape.gradient(output, shadow, output_gradients=gradient)
            self.optimizer.apply_gradients([(slices, shadow)])

        return {"lookup": lookup, "step": step}


def serve(side) -> None:
    """Answers on the process's own standard output, which nothing else may write to."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import tensorflow as tf

    side = side()
    gradient = tf.constant(np.random.default_rng(3).standard_normal((SHAPE.bags, SHAPE.width), np.float32))
    splits = tf.constant(np.arange(SHAPE.bags + 1, dtype=np.int64) * SHAPE.hotness)
    fresh = [tf.constant(ids) for ids in new_ids()]
    for ids in fresh:
        side.insert(side.table, ids)
    batches = {
        name: [tf.constant(batch[0].reshape(-1)) for batch in measure.batches(name, SHAPE)]
        for name in defaults.DISTRIBUTIONS
    }
    functions = side.functions(tf, splits, gradient)
    answers.write("ready\n")
    for number, line in enumerate(sys.stdin):
        verb, of = line.strip().split(", ")
        if verb in functions:
            functions[verb](batches[of][(number + 1) % defaults.BATCHES])
            ids = batches[of][number % defaults.BATCHES]
            start = time.perf_counter()
            functions[verb](ids)
        else:
            start = time.perf_counter()
            table = side.create(int(of), verb.split()[1])
            for ids in fresh:
                side.insert(table, ids)
        answers.write(f"{1e3 * (time.perf_counter() - start)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", choices=["sok", "tfra"])
    parser.add_argument("--tfra", help="the interpreter of TFRA's environment")
    parser.add_argument("--repeats", type=int, default=defaults.REPEATS)
    parser.add_argument("--cases", nargs="*", default=CASES, choices=CASES)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(SokSide if chosen.serve == "sok" else TfraSide)
        return
    if chosen.tfra is None:
        parser.error("pass --tfra, the interpreter of an environment with TFRA 0.8.1")
    # Its environment must not see this one's packages.
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = pathlib.Path(__file__).resolve()
    sides = {}
    for name, python, environment in (("sok", sys.executable, None), ("tfra", chosen.tfra, bare)):
        sides[name] = subprocess.Popen(
            [python, script, "--serve", name], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(name, case):
        sides[name].stdin.write(f"{case}\n")
        sides[name].stdin.flush()
        return float(sides[name].stdout.readline())

    for process in sides.values():
        assert process.stdout.readline() == "ready\n"
    rows = []
    for case in chosen.cases:
        insert = case.startswith("insert")
        least = dict.fromkeys(sides, float("inf"))
        for number in range(INSERT_REPEATS if insert else chosen.repeats + defaults.BATCHES):
            for name in sides:
                taken = ask(name, case)
                if insert or number >= defaults.BATCHES:
                    least[name] = min(least[name], taken)
        row = {"case": case, "sok, ms": least["sok"], "tfra, ms": least["tfra"], "ratio": least["tfra"] / least["sok"]}
        if insert:
            row |= {f"{name}, M rows/s": defaults.NEW_ROWS / least[name] / 1e3 for name in sides}
        rows.append(row)
    for process in sides.values():
        process.stdin.close()
        process.wait()
    measure.save("tfra", rows, tfra="0.8.1, TensorFlow 2.16.2")


if __name__ == "__main__":
    main()

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training steps inside TensorFlow on one GPU, beside TensorFlow's own best path.

    with_tensorflow.py IDS_MODULE_DIR step     case c: forward, backward and Adagrad, eager and in tf.function
    with_tensorflow.py IDS_MODULE_DIR fit      DLRM, model.fit: 26 tables of 1 M x 128, batch 65,536
    with_tensorflow.py IDS_MODULE_DIR memory   peak device memory of training steps beside the tables' own size

Prints one JSON object a line. A time is the median over rounds of a step's share of a round's wall time; the
programs compared take turns, a round each.
"""

import functools
import gc
import itertools
import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import sok

ROUNDS, STEPS, BATCHES = 9, 40, 8
FIT_STEPS = 500


def report(**figures):
    print(json.dumps(figures), flush=True)


def median_ms(programs):
    """Milliseconds a step of each program: `step()` returns a tensor to wait for."""
    times = {name: [] for name in programs}
    for round_ in range(ROUNDS + 1):
        for name, step in programs.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                last = step()
            np.asarray(last)
            if round_:  # the first warms up
                times[name].append((time.perf_counter() - start) / STEPS * 1e3)
    return {name: float(np.median(values)) for name, values in times.items()}


# ---- case c ------------------------------------------------------------------------------------------


def tensorflow_step(rows, dim, splits):
    """unique + gather + segment sum, and the sparse Adagrad of the rows touched."""
    table = tf.Variable(tf.random.uniform((rows, dim), -0.05, 0.05))
    accumulator = tf.Variable(tf.fill((rows, dim), 0.1))
    segments = tf.repeat(tf.range(len(splits) - 1), np.diff(splits))

    def step(ids, upstream):
        unique, inverse = tf.unique(ids)
        found = tf.gather(table, unique)
        out = tf.math.segment_sum(tf.gather(found, inverse), segments)
        merged = tf.math.unsorted_segment_sum(tf.gather(upstream, segments), inverse, tf.size(unique))
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=table.handle, accum=accumulator.handle, lr=0.01, epsilon=1e-7, grad=merged, indices=unique
        )
        return out[0, 0]

    return step


def tensorflow_ragged_step(rows, dim, splits):
    """`embedding_lookup_sparse` of ragged ids, the fast path, with the same Adagrad."""
    table = tf.Variable(tf.random.uniform((rows, dim), -0.05, 0.05))
    accumulator = tf.Variable(tf.fill((rows, dim), 0.1))

    def step(ids, upstream):
        ragged = tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
        with tf.GradientTape() as tape:
            out = tf.nn.embedding_lookup_sparse(table, ragged, None, combiner="sum", allow_fast_lookup=True)
        gradient = tape.gradient(out, table, output_gradients=upstream)
        unique, inverse = tf.unique(gradient.indices)
        merged = tf.math.unsorted_segment_sum(gradient.values, inverse, tf.size(unique))
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=table.handle, accum=accumulator.handle, lr=0.01, epsilon=1e-7, grad=merged, indices=unique
        )
        return out[0, 0]

    return step


def sok_step(table, splits):
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.01))
    optimizer.build([table])

    def step(ids, upstream):
        ragged = tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
        with tf.GradientTape() as tape:
            out = sok.lookup_sparse(table, ragged, combiners="sum")
        gradient = tape.gradient(out, table, output_gradients=upstream)
        optimizer.apply_gradients([(gradient, table)])
        return out[0, 0]

    return step


def of_all_batches(step):
    """A step of each batch in one call of a function, as Keras's `steps_per_execution` makes them.

    Each has a gradient of its own too: of equal ops on equal inputs TensorFlow would run one.
    """

    @tf.function
    def steps(batches, upstreams):
        for ids, upstream in zip(batches, upstreams, strict=True):
            last = step(ids, upstream)
        return last

    return steps


def steps(folder):
    sys.path.insert(0, folder)
    import ids as recipe

    case = recipe.CASES["c"]
    for dist in ("uniform", "power"):
        batches = [recipe.batch("c", dist, k)[0] for k in range(BATCHES)]
        splits = np.concatenate([[0], np.cumsum(batches[0][1])]).astype(np.int64)
        on_gpu = [tf.identity(tf.constant(values, tf.int64)) for values, _ in batches]
        upstream = tf.random.normal((len(splits) - 1, case["dim"]))
        device_splits = tf.identity(tf.constant(splits))
        static = sok.Variable(shape=(case["rows"], case["dim"]), initializer="random")
        hashed = sok.DynamicVariable(case["dim"], "random", capacity=case["rows"] * 9 // 8)
        for begin in range(0, case["rows"], 1 << 20):
            every = tf.range(begin, min(begin + (1 << 20), case["rows"]), dtype=tf.int64)
            sok.lookup_sparse(hashed, every[:, None])
        programs = {
            "TensorFlow, unique and gather": tensorflow_step(case["rows"], case["dim"], splits),
            "TensorFlow, ragged": tensorflow_ragged_step(case["rows"], case["dim"], device_splits),
            "static": sok_step(static, device_splits),
            "hash": sok_step(hashed, device_splits),
        }
        functions = {f"{name}, tf.function": tf.function(f) for name, f in programs.items()}
        several = {f"{name}, {BATCHES} steps a call": of_all_batches(f) for name, f in programs.items()}
        functions |= {"static, eager": programs["static"], "an empty tf.function": tf.function(lambda _, x: x[0, 0])}
        turns = itertools.count()

        def stepper(function, on_gpu=on_gpu, upstream=upstream, turns=turns):
            return lambda: function(on_gpu[next(turns) % len(on_gpu)], upstream)

        times = median_ms({name: stepper(f) for name, f in functions.items()})
        upstreams = [upstream + 0.0 for _ in on_gpu]
        of_several = median_ms({name: functools.partial(f, on_gpu, upstreams) for name, f in several.items()})
        times |= {name: ms / BATCHES for name, ms in of_several.items()}
        for name, ms in times.items():
            report(case="c", dist=dist, what="forward, backward, Adagrad", program=name, ms=round(ms, 4))


# ---- DLRM ---------------------------------------------------------------------------------------------


class Ranker(keras.Model):
    """DLRM with all tables in one pass: bottom 13-512-256-128, top 1024-1024-512-256-1.

    compile_dense: the perceptrons by XLA, which knows none of the library's ops.
    """

    def __init__(self, tables, rows, dim, compile_dense):
        super().__init__()
        self.names = [f"f{t}" for t in range(tables)]
        self.embeddings = sok.EmbeddingCollection(
            [
                sok.FeatureConfig(name, sok.TableConfig(name, dim, vocabulary_size=rows, seed=t))
                for t, name in enumerate(self.names)
            ]
        )
        relu = lambda *units: [keras.layers.Dense(u, "relu") for u in units]  # noqa: E731
        self.bottom = keras.Sequential(relu(512, 256, dim))
        self.top = keras.Sequential([*relu(1024, 1024, 512, 256), keras.layers.Dense(1, dtype="float32")])
        self.interaction = sok.layers.DotInteraction(beside=1)
        # Before a function is traced: Keras traces a model first in a scope where weights that are not built yet are
        # drawn anew instead of read, and the function would keep that.
        self.bottom.build((None, 13))
        self.top.build((None, dim + (tables + 1) * tables // 2))
        compiled = lambda part: tf.function(lambda x: part(x), jit_compile=True) if compile_dense else part  # noqa: E731
        self.run_bottom, self.run_top = compiled(self.bottom), compiled(self.top)

    def call(self, inputs, training=False):
        ids = tf.unstack(inputs["ids"]) if "ids" in inputs else [inputs[name] for name in self.names]
        vectors = self.embeddings(dict(zip(self.names, ids, strict=True)), training=training)
        dense = self.run_bottom(inputs["dense"])
        others = [tf.cast(vectors[name], dense.dtype) for name in self.names]
        return self.run_top(self.interaction([dense, *others]))


# How a batch comes to the GPU: the ids of 26 features as so many tensors or as one [26, batch]; copied ahead by the
# library, by tf.data, or by the step itself.
AHEAD = {
    "ahead": lambda data: sok.data.prefetch_to_device(data, 4),
    "ahead by tf.data": tf.data.experimental.prefetch_to_device("/GPU:0", 4),
    "by the step": lambda data: data.prefetch(4),
}
INPUTS = ("26 tensors, ahead", "26 tensors, ahead by tf.data", "26 tensors, by the step", "one tensor, ahead")


@functools.cache
def dlrm_batches(folder, count=4, one_tensor=False):
    """Batches of case b: inputs and labels, in the host's memory."""
    sys.path.insert(0, folder)
    import ids as recipe

    case, batches = recipe.CASES["b"], []
    for k in range(count):
        inputs = {f"f{t}": values.astype(np.int64) for t, (values, _) in enumerate(recipe.batch("b", "power", k))}
        if one_tensor:
            inputs = {"ids": np.stack(list(inputs.values()))}
        inputs["dense"] = np.random.default_rng(k).normal(size=(case["batch"], 13)).astype(np.float32)
        batches.append((inputs, (inputs["dense"][:, :1] > 0).astype(np.float32)))
    return case, batches


# Who waits for what after a step of `fit`: Keras's loop for the device, or nobody.
LOOPS = {"Keras's": [], "runs ahead": [sok.callbacks.RunAhead()]}


def dlrm_fit(case, batches, policy, compile_dense, ahead="ahead"):
    """A compiled DLRM all of whose weights are seen to train, and a function that fits it for a number of steps.

    A loop that runs ahead stays: Keras's own cannot be timed after it.
    """
    keras.config.set_dtype_policy(policy)
    model = Ranker(case["tables"], case["rows"], case["dim"], compile_dense)
    scale = "dynamic" if policy == "mixed_float16" else None
    model.compile(
        sok.OptimizerWrapper(sok.optimizers.RowWiseAdagrad(0.01), loss_scale=scale, jit_compile=compile_dense),
        keras.losses.BinaryCrossentropy(from_logits=True),
        jit_compile=False,
    )
    data = tf.data.Dataset.from_tensors(batches[0])
    for batch in batches[1:]:
        data = data.concatenate(tf.data.Dataset.from_tensors(batch))
    data = data.repeat().apply(AHEAD[ahead])

    def train(steps, loop="Keras's"):
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=LOOPS[loop])

    train(1)
    dense = [weight for part in (model.bottom, model.top) for weight in part.trainable_weights]
    before = [weight.numpy() for weight in dense]
    train(2)
    still = [w.path for w, value in zip(dense, before, strict=True) if np.array_equal(w.numpy(), value)]
    if still:
        raise RuntimeError(f"these weights are not trained: {still}")
    return model, train


def step_ms(model, batch, steps=100):
    """Milliseconds a training step takes without the way of its batch to the device."""
    batch = tf.nest.map_structure(lambda values: tf.identity(tf.constant(values)), batch)
    step = tf.function(lambda: model.train_step(batch)["loss"])
    for _ in range(2):  # the first warms up
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        np.asarray(loss)
    return (time.perf_counter() - start) / steps * 1e3


def samples_a_second(batch, ms):
    return round(batch / ms * 1e3)


def fit(folder):
    tf.config.experimental.enable_tensor_float_32_execution(True)
    policies = ("mixed_bfloat16", "float32", "mixed_float16")
    runs = [
        *itertools.product((True,), policies, INPUTS[:1]),
        *itertools.product((True,), policies[:1], INPUTS[1:]),
        *itertools.product((False,), policies[:2], INPUTS[:1]),
    ]
    for compile_dense, policy, inputs in runs:
        case, batches = dlrm_batches(folder, one_tensor=inputs.startswith("one"))
        model, train = dlrm_fit(case, batches, policy, compile_dense, inputs.split(", ")[1])
        of = {"case": "dlrm", "policy": policy, "dense": "XLA" if compile_dense else "ops", "inputs": inputs}
        rate = functools.partial(samples_a_second, case["batch"])
        for loop in LOOPS:
            train(20, loop)
            # The start of `fit` is in it.
            start = time.perf_counter()
            train(FIT_STEPS, loop)
            ms = (time.perf_counter() - start) / FIT_STEPS * 1e3
            peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
            report(what="fit", **of, loop=loop, ms=round(ms, 3), samples_a_second=rate(ms), peak_bytes=peak)
        if inputs.endswith(", ahead"):
            ms = step_ms(model, batches[0])
            report(what="a step, its batch on the device", **of, ms=round(ms, 3), samples_a_second=rate(ms))
        del model, train
        keras.utils.clear_session()


# ---- memory -------------------------------------------------------------------------------------------


def memory(folder):
    sys.path.insert(0, folder)
    import ids as recipe

    for name in "abc":
        memory_of(recipe, name)
        gc.collect()


def memory_of(recipe, name):
    case = recipe.CASES[name]
    batch = recipe.batch(name, "uniform", 0)
    inputs = [
        tf.RaggedTensor.from_row_lengths(tf.constant(values, tf.int64), lengths, validate=False)
        for values, lengths in batch
    ]
    inputs = [tf.RaggedTensor.from_row_splits(tf.identity(i.values), tf.identity(i.row_splits)) for i in inputs]
    upstream = [tf.random.normal((case["batch"], case["dim"])) for _ in inputs]
    combiners = ["sum"] * len(inputs)
    for kind in ("static", "hash"):
        for rule in (keras.optimizers.SGD(0.01), keras.optimizers.Adagrad(0.01), keras.optimizers.Adam(0.01)):
            if kind == "static":
                tables = [sok.Variable(shape=(case["rows"], case["dim"]), initializer="random") for _ in inputs]
            else:
                tables = [sok.DynamicVariable(case["dim"], "random", capacity=case["rows"]) for _ in inputs]
                for begin in range(0, case["rows"], 1 << 20):
                    every = tf.range(begin, min(begin + (1 << 20), case["rows"]), dtype=tf.int64)[:, None]
                    sok.lookup_sparse(tables, [every] * len(tables), combiners=combiners)
            optimizer = sok.OptimizerWrapper(rule)
            optimizer.build(tables)

            @tf.function
            def step(tables=tables, optimizer=optimizer):
                with tf.GradientTape() as tape:
                    vectors = sok.lookup_sparse(tables, inputs, combiners=combiners)
                gradients = tape.gradient(vectors, tables, output_gradients=upstream)
                optimizer.apply_gradients(list(zip(gradients, tables, strict=True)))

            step()
            tf.test.experimental.sync_devices()
            tf.config.experimental.reset_memory_stats("GPU:0")
            before = tf.config.experimental.get_memory_info("GPU:0")["current"]
            for _ in range(5):
                step()
            tf.test.experimental.sync_devices()
            peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
            own = sum(of["bytes"] for of in sok.stats(*tables).values())
            report(case=name, what="memory", table=kind, optimizer=type(rule).__name__, tables_bytes=own,
                   rows_bytes=len(tables) * case["rows"] * case["dim"] * 4, before_bytes=before, peak_bytes=peak,
                   output_bytes=4 * len(tables) * case["batch"] * case["dim"])  # fmt: skip
            del step, tables, optimizer
            gc.collect()


if __name__ == "__main__":
    {"step": steps, "fit": fit, "memory": memory}[sys.argv[2]](sys.argv[1])

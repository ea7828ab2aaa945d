# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookups with the combiner sum: SOK's tables beside TensorFlow's three ways and torch's EmbeddingBag."""

import importlib.util
import os

import defaults
import measure
import tables
import tensorflow as tf

import sok


def tensorflow_lookups(variable: tf.Variable) -> dict:
    """name -> (function of ids, kind of ids)."""

    @tf.function(reduce_retracing=True)
    def fast(ids):
        return tf.nn.embedding_lookup_sparse(variable, ids, None, combiner="sum", allow_fast_lookup=True)

    @tf.function(reduce_retracing=True)
    def unique(ids):
        keys, places = tf.unique(ids.values)
        rows = tf.gather(tf.gather(variable, keys), places)
        return tf.math.segment_sum(rows, ids.value_rowids())

    return {"tf sparse": (fast, "sparse"), "tf ragged": (fast, "ragged"), "tf unique": (unique, "ragged")}


def sok_lookup(table, training: bool):
    @tf.function(reduce_retracing=True)
    def lookup(ids):
        return sok.lookup_sparse(table, ids, combiners="sum", training=training)

    return lookup


def torch_lookup(batches: tables.Batches, values) -> dict:
    if importlib.util.find_spec("torch") is None:
        return {}
    # Its threads would otherwise spin for a while after each call, on the cores of whoever is next.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(measure.machine()["cores"])
    bag = torch.nn.EmbeddingBag.from_pretrained(torch.from_numpy(values), mode="sum")
    ids = [torch.from_numpy(dense.numpy()) for dense in batches.dense]

    def lookup(number):
        with torch.no_grad():
            return bag(ids[number % len(ids)])

    return {"torch": lookup}


def functions_of(shape: defaults.Shape, batches: tables.Batches, static, hashed) -> dict:
    values = static.numpy().state["values"]
    functions = {peer: batches.each(*lookup) for peer, lookup in tensorflow_lookups(tf.Variable(values)).items()}
    functions |= torch_lookup(batches, values)
    for kind in ("ragged", "sparse", "dense"):
        functions[f"static {kind}"] = batches.each(sok_lookup(static, False), kind)
    functions["hash ragged"] = batches.each(sok_lookup(hashed, False), "ragged")
    functions["hash training"] = batches.each(sok_lookup(hashed, True), "ragged")
    return functions


if __name__ == "__main__":
    tables.beside_tensorflow("lookup", __doc__, functions_of, {"static": "static ragged", "hash": "hash ragged"})

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookups with the combiner sum: SOK's tables beside TensorFlow's three ways."""

import defaults
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


def functions_of(shape: defaults.Shape, batches: tables.Batches, static, hashed) -> dict:
    peers = tensorflow_lookups(tf.Variable(static.numpy().state["values"]))
    functions = {peer: batches.each(*lookup) for peer, lookup in peers.items()}
    for kind in ("ragged", "sparse", "dense"):
        functions[f"static {kind}"] = batches.each(sok_lookup(static, False), kind)
    functions["hash ragged"] = batches.each(sok_lookup(hashed, False), "ragged")
    functions["hash training"] = batches.each(sok_lookup(hashed, True), "ragged")
    return functions


if __name__ == "__main__":
    tables.beside_tensorflow("lookup", __doc__, functions_of, {"static": "static ragged", "hash": "hash ragged"})

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models with a table from each of the ways to have one, and everything that their tables hold."""

import keras
import kinds
import numpy as np
import reference
import tensorflow as tf

import sok

WIDTH = 3
KINDS = ("embedding", "collection", "own")


def examples(rng):
    """Ids that are easily lost, and labels."""
    special = np.asarray(reference.SENTINELS["int64"])
    ids = rng.choice(special, (40, 2))
    return ids, rng.normal(size=(40, 1)).astype(np.float32)


def make_model(kind="embedding", optimizer=None, **kwargs):
    """The same model with a table from each of the ways to have one."""
    inputs = keras.Input((2,), dtype="int64", name="ids")
    if kind == "embedding":
        x = sok.layers.DistributedEmbedding(WIDTH, "sum", name="embedding", **kwargs)(inputs)
    elif kind == "collection":
        table = sok.TableConfig("a. b", WIDTH, **kwargs)
        other = sok.TableConfig("other", 2, vocabulary_size=4, out_of_range="zero")
        layer = sok.EmbeddingCollection(
            [sok.FeatureConfig("x", table), sok.FeatureConfig("y", other)], name="embedding"
        )
        x = keras.layers.Concatenate()(list(layer({"x": inputs, "y": inputs}).values()))
    else:
        x = Own(name="embedding")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    optimizer = optimizer or keras.optimizers.Adam(0.05)
    model.compile(sok.OptimizerWrapper(optimizer), "mse")
    return model


@keras.saving.register_keras_serializable("tests")
class Own(sok.layers.TableMixin, keras.layers.Layer):
    """A user's layer with two tables and an ordinary weight."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_jit = False
        self.first = sok.DynamicVariable(WIDTH)
        self.second = sok.DynamicVariable(WIDTH, dtype="bfloat16")

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(WIDTH,), initializer="ones", name="scale")

    def call(self, inputs, training=None):
        a, b = sok.lookup_sparse([self.first, self.second], [inputs, inputs], training=bool(training))
        return self.scale * (a + tf.cast(b, tf.float32))


def tables_of(model):
    return [v for v in model.variables if isinstance(v, sok.variables.TableVariable)]


def states_of(model):
    """Everything that the tables hold, by id."""
    result = []
    for table in tables_of(model):
        found = sok.check_out(table)
        ids = found.pop("ids").tolist()
        result.append({name: {id_: values[i] for i, id_ in enumerate(ids)} for name, values in sorted(found.items())})
    return result


def assert_same(a, b):
    assert len(a) == len(b)
    for mine, theirs in zip(a, b, strict=True):
        assert list(mine) == list(theirs)
        for name in mine:
            kinds.assert_rows(mine[name], theirs[name])

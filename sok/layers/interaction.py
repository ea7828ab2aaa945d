# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""How the vectors of an example meet."""

from typing import Any

import keras
import tensorflow as tf

from sok import checks, pipeline
from sok.stages import interaction

_MOST_VECTORS = 128  # that the op takes


def _width(shapes: Any) -> int | None:
    """The first width that is known."""
    return next((shape[1] for shape in shapes if len(shape) == 2 and shape[1] is not None), None)


@keras.saving.register_keras_serializable("sok")
class DotInteraction(keras.layers.Layer):
    """The dot product of every two vectors of an example, one kernel forward and one backward.

    What DLRM puts between its embeddings and its top perceptron: Naumov et al., Deep Learning
    Recommendation Model for Personalization and Recommendation Systems, 2019 (arXiv:1906.00091).

    Args:
        beside: how many of the first vectors also stand in front of the products: in DLRM the one of the
            dense features.

    Input: a list of tensors [batch, width] of one shape, at least 2. More than 128 are combined by
    TensorFlow's own ops.
    Output: [batch, beside * width + N * (N - 1) / 2] for N tensors, in the layer's compute dtype (float32,
    float16 or bfloat16): first the vectors, then the products of the pairs (0, 1), (0, 2), …, (N - 2, N - 1).
    Sums are float32 whatever the dtype.

    Raises:
        ValueError: fewer than two tensors, or shapes that differ.

    >>> a, b, c = tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 4.0]]), tf.constant([[5.0, 6.0]])
    >>> sok.layers.DotInteraction(beside=1)([a, b, c]).numpy()
    array([[ 1.,  2., 11., 17., 39.]], dtype=float32)
    """

    def __init__(self, beside: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_jit = False
        self.beside = checks.whole("beside", beside, 0)

    def build(self, input_shape: Any = None) -> None:
        self.built = True

    def call(self, vectors: Any) -> Any:
        vectors = self._checked(vectors)
        if pipeline.in_plain_ops() or len(vectors) > _MOST_VECTORS:
            return interaction.dot_interaction_in_plain_ops(vectors, self.beside)
        return interaction.dot_interaction([tf.convert_to_tensor(vector) for vector in vectors], self.beside)

    def _checked(self, vectors: Any) -> list[Any]:
        if not isinstance(vectors, (list, tuple)) or len(vectors) < 2:
            what = f"{len(vectors)} tensors" if isinstance(vectors, (list, tuple)) else type(vectors).__name__
            raise ValueError(f"layer {self.name!r} takes a list of at least 2 tensors [batch, width], got {what}")
        if self.beside > len(vectors):
            raise ValueError(
                f"layer {self.name!r}: beside must be at most the number of vectors, {len(vectors)}, got {self.beside}"
            )
        shapes = [tuple(vector.shape) for vector in vectors]
        width = _width(shapes)
        for number, shape in enumerate(shapes):
            if len(shape) != 2 or shape[1] not in (None, width):
                raise ValueError(
                    f"layer {self.name!r}: every vector must be [batch, width] of one width, but number {number} is "
                    f"{list(shape)} where number 0 is {list(shapes[0])}"
                )
        return list(vectors)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int | None]:
        count, batch, width = len(input_shape), input_shape[0][0], _width(input_shape)
        products = count * (count - 1) // 2
        return batch, None if width is None else self.beside * width + products

    def compute_output_spec(self, vectors: Any) -> keras.KerasTensor:
        vectors = self._checked(vectors)
        shape = self.compute_output_shape([tuple(vector.shape) for vector in vectors])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beside": self.beside}

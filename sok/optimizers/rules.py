# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which native rule does what an optimizer does, and what the rule needs to know of it.

One class a Keras: Keras 3, tf_keras, and tf_keras's legacy optimizers keep the same things in different
places. A rule's hyper-parameters carry the names of the optimizers' own, so that one function reads them
all.
"""

import re
import sys
from typing import Any

import keras
import tensorflow as tf

from sok.optimizers.rowwise_adagrad import RowWiseAdagrad
from sok.stages.update import OPTIMIZERS, hyper_parameters, initial_of

_Clip = tuple[str, float]


def _sgd(source: "Source") -> str:
    return "momentum" if source.has_momentum() else "sgd"


def _rmsprop(source: "Source") -> str:
    centered = "_centered" if source.optimizer.centered else ""
    return f"rmsprop{centered}_momentum" if source.has_momentum() else f"rmsprop{centered}"


def _adam(source: "Source") -> str:
    return "adam_amsgrad" if source.optimizer.amsgrad else "adam"


_RULES = {
    "SGD": _sgd,
    "Adagrad": lambda source: "adagrad",
    "RowWiseAdagrad": lambda source: "rowwise_adagrad",
    "RMSprop": _rmsprop,
    "Adam": _adam,
    "AdamW": _adam,
    "Adamax": lambda source: "adamax",
    "Adadelta": lambda source: "adadelta",
    "Ftrl": lambda source: "ftrl",
}
# What an array of a table's shape would be needed for.
_REFUSED = {
    "use_ema": "average the weights of a few checkpoints instead",
    "gradient_accumulation_steps": "use a larger batch instead",
}


def supported() -> tuple[str, ...]:
    """Names of the optimizers that can train tables.

    >>> "Adagrad" in sok.optimizers.supported()
    True
    """
    return tuple(sorted(_RULES))


class Source:
    """A Keras 3 optimizer as the update of a table sees it.

    Raises:
        ValueError: no native rule does what the optimizer does; the message lists those that have one.
    """

    def __init__(self, optimizer: Any):
        self.optimizer = optimizer
        name = type(optimizer).__name__
        # Exact types: a subclass may have changed the formula.
        if name not in _RULES or type(optimizer) is not self._known_type(name):
            raise ValueError(
                f"sok.OptimizerWrapper cannot train tables with {name}: it supports {', '.join(supported())}"
            )
        for option, instead in _REFUSED.items():
            if getattr(optimizer, option, None):
                raise ValueError(
                    f"{option} needs dense arrays of every table's shape: construct {name} without it, and {instead}"
                )

    @property
    def rule(self) -> str:
        """The native rule that the optimizer is now: assigning a momentum makes it another."""
        return _RULES[type(self.optimizer).__name__](self)

    @property
    def initial(self) -> float:
        """See `sok.stages.update.initial_of`."""
        return initial_of(self.rule, self.value)

    def check_catch_up(self) -> None:
        """Refuses what has no closed form for several steps with a zero gradient.

        Raises:
            ValueError: such an optimizer, or weight decay beside momentum.
        """
        name = type(self.optimizer).__name__
        catch_up = OPTIMIZERS[self.rule]["catch_up"]
        if catch_up == "none":
            raise ValueError(
                f'update="lazy_global" has no closed form for the steps of {name} that a row missed; it works with '
                'SGD and RMSprop. Use update="global" for the same result, or "local"'
            )
        if catch_up == "moves" and self.value("weight_decay"):
            raise ValueError(
                f'update="lazy_global" has no closed form for momentum with weight decay ({name}). Use update="global" '
                'for the same result, or "local"'
            )

    def _known_type(self, name: str) -> Any:
        return RowWiseAdagrad if name == "RowWiseAdagrad" else getattr(keras.optimizers, name, None)

    def has_momentum(self) -> bool:
        return bool(self.optimizer.momentum)

    def value(self, name: str) -> Any:
        """A hyper-parameter by its name; None if the optimizer does not have it."""
        return getattr(self.optimizer, name, None)

    def learning_rate(self, iterations: Any) -> tf.Tensor:
        """The learning rate of the step after `iterations` steps, float32."""
        rate = self.optimizer._learning_rate
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(iterations)
        elif callable(rate) and not isinstance(rate, keras.Variable):
            rate = rate()
        return tf.cast(tf.convert_to_tensor(rate), tf.float32)

    def clips(self) -> list[_Clip]:
        """Clippings in their order: ("value", "norm" or "global_norm", limit)."""
        for kind in ("norm", "global_norm", "value"):
            limit = getattr(self.optimizer, _CLIP_ATTRIBUTES[kind])
            if limit:
                return [(kind, float(limit))]
        return []

    def decays(self, name: str) -> bool:
        """Whether the optimizer's weight decay reaches a variable of this name."""
        pattern = getattr(self.optimizer, "_exclude_from_weight_decay_pattern", None)
        return pattern is None or pattern.search(name) is None

    def hyper(self, learning_rate: tf.Tensor, iterations: tf.Tensor, decay: bool) -> tf.Tensor:
        """The rule's hyper-parameters as the optimizer has them now: float32, in the rule's order."""
        del iterations

        def value(name):
            if name == "learning_rate":
                return learning_rate
            return None if name == "weight_decay" and not decay else self.value(name)

        return hyper_parameters(self.rule, value)


_CLIP_ATTRIBUTES = {"value": "clipvalue", "norm": "clipnorm", "global_norm": "global_clipnorm"}


class TfKerasSource(Source):
    """The same for an optimizer of tf_keras."""

    def _known_type(self, name):
        return getattr(sys.modules["tf_keras"].optimizers, name, None)

    def learning_rate(self, iterations):
        rate = self.optimizer._learning_rate
        if isinstance(rate, sys.modules["tf_keras"].optimizers.schedules.LearningRateSchedule):
            rate = rate(iterations)
        return tf.cast(rate, tf.float32)

    def decays(self, name):
        names = getattr(self.optimizer, "_exclude_from_weight_decay_names", [])
        return not any(re.search(pattern, name) for pattern in names)

    def hyper(self, learning_rate, iterations, decay):
        hyper = super().hyper(learning_rate, iterations, decay)
        if not self.value("adaptive_epsilon"):
            return hyper
        beta_2_power = tf.pow(tf.cast(self.optimizer.beta_2, tf.float32), tf.cast(iterations, tf.float32) + 1.0)
        place = OPTIMIZERS[self.rule]["hyper"].index("epsilon")
        return tf.tensor_scatter_nd_update(hyper, [[place]], [hyper[place] * tf.sqrt(1.0 - beta_2_power)])


class LegacySource(Source):
    """The same for an optimizer of tf_keras.optimizers.legacy."""

    def _known_type(self, name):
        return getattr(sys.modules["tf_keras"].optimizers.legacy, name, None)

    def has_momentum(self):
        return self.optimizer._momentum

    def value(self, name):
        if name == "epsilon_outside":
            # These take the root first; with momentum, RMSprop does not.
            return float(self.rule in ("adagrad", "rmsprop", "rmsprop_centered"))
        if name in self.optimizer._hyper:
            return self.optimizer._get_hyper(name)
        return getattr(self.optimizer, name, getattr(self.optimizer, f"_{name}", None))

    def learning_rate(self, iterations):
        step = tf.cast(iterations, tf.float32)
        rate = self.value("learning_rate")
        if isinstance(rate, sys.modules["tf_keras"].optimizers.schedules.LearningRateSchedule):
            rate = rate(step)
        return tf.cast(rate, tf.float32) / (1.0 + self.optimizer._initial_decay * step)

    def clips(self):
        limits = ((kind, getattr(self.optimizer, name)) for kind, name in _CLIP_ATTRIBUTES.items())
        return [(kind, float(limit)) for kind, limit in limits if limit is not None]

    def decays(self, name):
        return False


def source_type(optimizer: Any) -> type[Source]:
    """The class above for the Keras that an optimizer belongs to.

    Raises:
        TypeError: it is no optimizer of any of them.
    """
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return Source
    # Whoever made a tf_keras optimizer has imported it.
    tf_keras = sys.modules.get("tf_keras")
    if tf_keras is not None and isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        return LegacySource
    if tf_keras is not None and isinstance(optimizer, tf_keras.optimizers.Optimizer):
        return TfKerasSource
    raise TypeError(
        "expected an optimizer of Keras or tf_keras, its name or its config, got "
        f"{type(optimizer).__name__}: {optimizer!r}"
    )

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The oracle of optimizers, in float64 numpy: one row at a time, by the textbook.

Nothing here is shared with the library. `OPTIMIZERS` is what the tests run over: for each name the Keras
optimizer, and the formula with the same hyper-parameters.
"""

import keras
import numpy as np

import sok


def _sgd(w, g, s, t, learning_rate):
    return w - learning_rate * g


def _momentum(w, g, s, t, learning_rate, momentum):
    s["momentum"] = momentum * s["momentum"] - learning_rate * g
    return w + s["momentum"]


def _nesterov(w, g, s, t, learning_rate, momentum):
    s["momentum"] = momentum * s["momentum"] - learning_rate * g
    return w + momentum * s["momentum"] - learning_rate * g


def _adagrad(w, g, s, t, learning_rate, initial_accumulator_value=0.1, epsilon=1e-7):
    s["accumulator"] = s["accumulator"] + g**2
    return w - learning_rate * g / np.sqrt(s["accumulator"] + epsilon)


def _rowwise_adagrad(w, g, s, t, learning_rate, initial_accumulator_value=0.1, epsilon=1e-7):
    s["accumulator"] = s["accumulator"] + np.mean(g**2)
    return w - learning_rate * g / np.sqrt(s["accumulator"] + epsilon)


def _rmsprop(w, g, s, t, learning_rate, rho=0.9, epsilon=1e-7, momentum=0.0, centered=False):
    s["velocity"] = rho * s["velocity"] + (1 - rho) * g**2
    variance = s["velocity"]
    if centered:
        s["average_gradient"] = rho * s["average_gradient"] + (1 - rho) * g
        variance = variance - s["average_gradient"] ** 2
    increment = learning_rate * g / np.sqrt(variance + epsilon)
    s["momentum"] = momentum * s["momentum"] + increment
    return w - s["momentum"]


def _adam(w, g, s, t, learning_rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7, amsgrad=False):
    s["m"] = beta_1 * s["m"] + (1 - beta_1) * g
    s["v"] = beta_2 * s["v"] + (1 - beta_2) * g**2
    s["v_hat"] = np.maximum(s["v_hat"], s["v"])
    alpha = learning_rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
    return w - alpha * s["m"] / (np.sqrt(s["v_hat"] if amsgrad else s["v"]) + epsilon)


def _adamax(w, g, s, t, learning_rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    s["m"] = beta_1 * s["m"] + (1 - beta_1) * g
    s["u"] = np.maximum(beta_2 * s["u"], np.abs(g))
    return w - learning_rate / (1 - beta_1**t) * s["m"] / (s["u"] + epsilon)


def _adadelta(w, g, s, t, learning_rate, rho=0.95, epsilon=1e-7):
    s["accumulated_grad"] = rho * s["accumulated_grad"] + (1 - rho) * g**2
    root = np.sqrt(s["accumulated_delta"] + epsilon) / np.sqrt(s["accumulated_grad"] + epsilon)
    delta = -root * g
    s["accumulated_delta"] = rho * s["accumulated_delta"] + (1 - rho) * delta**2
    return w + learning_rate * delta


def _ftrl(
    w, g, s, t, learning_rate, initial_accumulator_value=0.1, l1=0.0, l2=0.0, beta=0.0, shrinkage=0.0,
    power=-0.5,
):  # fmt: skip
    new = s["accumulator"] + g**2
    sigma = (new**-power - s["accumulator"] ** -power) / learning_rate
    s["linear"] = s["linear"] + g + 2 * shrinkage * w - sigma * w
    s["accumulator"] = new
    quadratic = new**-power / learning_rate + 2 * l2 + beta / learning_rate
    return (np.clip(s["linear"], -l1, l1) - s["linear"]) / quadratic


_FORMULAS = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov": _nesterov,
    "adagrad": _adagrad,
    "rowwise_adagrad": _rowwise_adagrad,
    "rmsprop": _rmsprop,
    "adam": _adam,
    "adamw": _adam,
    "adamax": _adamax,
    "adadelta": _adadelta,
    "ftrl": _ftrl,
}


class Reference:
    """An optimizer in float64.

    Args:
        formula: a key of `_FORMULAS`.
        hyper: its arguments, and perhaps `weight_decay`.
        update: "local" or "global".
    """

    def __init__(self, formula, hyper, update="local"):
        hyper = dict(hyper)
        self.formula = _FORMULAS[formula]
        self.weight_decay = hyper.pop("weight_decay", 0.0) or 0.0
        self.hyper = hyper
        self.update = update
        self.step_count = 0
        self.slots = {}

    def _slots_of(self, table, key, width):
        initial = self.hyper.get("initial_accumulator_value", 0.1)
        names = ("momentum", "velocity", "average_gradient", "m", "v", "v_hat", "u", "linear")
        names += ("accumulated_grad", "accumulated_delta")
        fresh = {name: np.zeros(width) for name in names}
        fresh["accumulator"] = initial if self.formula is _rowwise_adagrad else np.full(width, initial)
        return self.slots.setdefault((table, key), fresh)

    def step(self, tables, gradients, learning_rate=None):
        """One step, in place.

        Args:
            tables: {name: {key: row}}.
            gradients: {name: ([keys], [gradients])}, repeated keys as they come.
            learning_rate: of this step, if not the constructor's.
        """
        self.step_count += 1
        hyper = self.hyper if learning_rate is None else {**self.hyper, "learning_rate": learning_rate}
        for name, rows in tables.items():
            keys, values = gradients[name]
            width = len(next(iter(rows.values())))
            sums = {key: np.zeros(width) for key in rows} if self.update == "global" else {}
            for key, value in zip(keys, values, strict=True):
                sums[key] = sums.get(key, 0.0) + np.asarray(value, np.float64)
            for key, g in sums.items():
                w = rows[key] * (1 - self.weight_decay * hyper["learning_rate"])
                rows[key] = self.formula(w, g, self._slots_of(name, key, width), self.step_count, **hyper)


def keras_optimizer(formula, hyper):
    """The Keras optimizer that a formula with these hyper-parameters is."""
    hyper = dict(hyper)
    names = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
    names |= {"shrinkage": "l2_shrinkage_regularization_strength", "power": "learning_rate_power"}
    hyper = {names.get(name, name): value for name, value in hyper.items()}
    kinds = keras.optimizers
    if formula == "nesterov":
        return kinds.SGD(nesterov=True, **hyper)
    types = {"sgd": kinds.SGD, "momentum": kinds.SGD, "adagrad": kinds.Adagrad, "adam": kinds.Adam}
    types |= {"rowwise_adagrad": sok.optimizers.RowWiseAdagrad, "rmsprop": kinds.RMSprop}
    types |= {"adamw": kinds.AdamW, "adamax": kinds.Adamax, "adadelta": kinds.Adadelta}
    return (types | {"ftrl": kinds.Ftrl})[formula](**hyper)


# Every native rule, with hyper-parameters that leave no term at zero.
CASES = {
    "sgd": ("sgd", {"learning_rate": 0.1}),
    "sgd_decay": ("sgd", {"learning_rate": 0.1, "weight_decay": 0.3}),
    "momentum": ("momentum", {"learning_rate": 0.05, "momentum": 0.9}),
    "nesterov": ("nesterov", {"learning_rate": 0.05, "momentum": 0.8}),
    "adagrad": ("adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.02, "epsilon": 1e-3}),
    "rowwise_adagrad": ("rowwise_adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.05}),
    "rmsprop": ("rmsprop", {"learning_rate": 0.02, "rho": 0.8, "epsilon": 1e-3}),
    "rmsprop_momentum": ("rmsprop", {"learning_rate": 0.02, "momentum": 0.7, "epsilon": 1e-3}),
    "rmsprop_centered": ("rmsprop", {"learning_rate": 0.02, "centered": True, "epsilon": 1e-3}),
    "rmsprop_centered_momentum": (
        "rmsprop",
        {"learning_rate": 0.02, "centered": True, "momentum": 0.7, "epsilon": 1e-3},
    ),
    "adam": ("adam", {"learning_rate": 0.02, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4}),
    "adam_amsgrad": ("adam", {"learning_rate": 0.02, "beta_2": 0.9, "amsgrad": True}),
    "adamw": ("adamw", {"learning_rate": 0.02, "weight_decay": 0.5, "beta_2": 0.99}),
    "adamax": ("adamax", {"learning_rate": 0.02, "beta_1": 0.8, "beta_2": 0.9}),
    "adadelta": ("adadelta", {"learning_rate": 0.9, "rho": 0.9, "epsilon": 1e-4}),
    "ftrl": ("ftrl", {"learning_rate": 0.1, "l1": 0.02, "l2": 0.03, "beta": 0.1, "shrinkage": 0.01}),
    "ftrl_power": ("ftrl", {"learning_rate": 0.1, "power": -0.7, "initial_accumulator_value": 0.3}),
}

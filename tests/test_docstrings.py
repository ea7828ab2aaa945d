# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples in docstrings run, and give what they say; public names have docstrings."""

import doctest
import importlib
import inspect
import pkgutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import sok

# The native library is no Python module; wrappers of other packages need those.
_ELSEWHERE = ("sok._sok_ops", "sok.comm.horovod", "sok.comm.build_horovod", "sok.optimizers.tf_keras")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sok.__path__, "sok.")
    if module.name not in _ELSEWHERE and not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    results = doctest.testmod(
        module,
        extraglobs={"sok": sok, "tf": tf, "keras": keras, "np": np},
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
    )
    assert results.failed == 0


@pytest.mark.parametrize("name", [n for n in sok.checkpoint.__all__ if inspect.isfunction(getattr(sok.checkpoint, n))])
def test_functions_of_dumps_say_what_they_take_and_raise(name):
    text = inspect.getdoc(getattr(sok.checkpoint, name))
    for part in ("Args:", "Raises:", ">>> "):
        assert part in text


def _public(owner):
    """name -> function or class, of a module's __all__ and of those of the modules in it."""
    found = {}
    for name in owner.__all__:
        thing = getattr(owner, name)
        if inspect.ismodule(thing):
            # sok.initializers has none: its functions are the library's own.
            found |= _public(thing) if hasattr(thing, "__all__") else {}
        elif callable(thing):
            found[f"{owner.__name__}.{name}"] = thing
    return found


PUBLIC = _public(sok)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_say_what_they_do(name):
    text = inspect.getdoc(PUBLIC[name])
    assert text
    # Keras's optimizers are offered again, with their own documentation.
    if PUBLIC[name].__module__.startswith("sok."):
        assert ">>> " in text, "no example, which test_examples would run"

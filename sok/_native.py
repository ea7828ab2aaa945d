# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads the native library, the only place that does.

`ops` is the module of raw ops (`ops.sok_lookup(...)`); `DESCRIPTION` is what the library says about
itself: the names of its optimizers, combiners and row types. `library` has its plain C functions.
"""

import ctypes
import json
import pathlib

import tensorflow as tf

_DIRECTORY = pathlib.Path(__file__).parent
_LIBRARY = _DIRECTORY / "_sok_ops.so"
_REBUILD = (
    "in a checkout or an unpacked source distribution of SOK, run "
    "`pip install --force-reinstall --no-deps .` (or `make build`, to use the checkout itself)"
)


def _load():
    if not _LIBRARY.exists():
        raise ImportError(f"SOK's native library {_LIBRARY} is missing. Build it: {_REBUILD}")
    built_for = json.loads((_DIRECTORY / "_build_info.json").read_text())["tensorflow"]
    # TensorFlow keeps its C++ interface within a minor version only.
    if built_for.split(".")[:2] != tf.__version__.split(".")[:2]:
        raise ImportError(
            f"SOK's native library was built for TensorFlow {built_for}, but TensorFlow "
            f"{tf.__version__} is installed. Rebuild it: {_REBUILD}"
        )
    try:
        return tf.load_op_library(str(_LIBRARY))
    except tf.errors.NotFoundError as error:
        raise ImportError(
            f"SOK's native library, built for TensorFlow {built_for}, does not load in TensorFlow "
            f"{tf.__version__}: {error.message}. Rebuild it: {_REBUILD}"
        ) from error


def set_gpu_switch(name: str, on: bool) -> None:
    """Sets a switch of the GPU's ops; a library without CUDA has nothing to set."""
    setter = getattr(library, f"sok_set_{name}", None)
    if setter is not None:
        setter(ctypes.c_bool(on))


def call_json(function: str) -> dict:
    """What a function of the library without arguments says, as JSON."""
    pointer = getattr(library, function)
    pointer.restype = ctypes.c_char_p
    return json.loads(pointer())


ops = _load()
library = ctypes.CDLL(str(_LIBRARY))
DESCRIPTION = call_json("sok_describe")
COMBINERS = tuple(DESCRIPTION["combiners"])
REACHES = tuple(DESCRIPTION["reaches"])
# TensorFlow calls float16 "half" in op attributes only.
ROW_DTYPES = tuple(tf.as_dtype(name).name for name in DESCRIPTION["row_types"])
KEY_DTYPES = ("int32", "int64", "uint32", "uint64")

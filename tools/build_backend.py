# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 backend: setuptools', which also asks for TensorFlow, CMake and ninja where they are
missing. A list in pyproject.toml could not know which TensorFlow the wheel is for."""

import platform
import subprocess

import find_tensorflow
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  the hooks that stay as they are


def _works(tool):
    """Not only found: a script of another environment may be on the path, and fail in this one."""
    try:
        return subprocess.run([tool, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def get_requires_for_build_wheel(config_settings=None):
    needs = [tool for tool in ("cmake", "ninja") if not _works(tool)]
    target = find_tensorflow.target()
    if target.folder is None:
        # Only headers and the library to link with are needed, and the CPU package is smaller.
        package = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"
        needs.append(f"{package}=={target.minor}.*")
    return build_meta.get_requires_for_build_wheel(config_settings) + needs


get_requires_for_build_editable = get_requires_for_build_wheel

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the TensorFlow to build for, without importing it, which takes seconds.

It is of version SOK_TF_VERSION (like "2.19") if that is set, else the one that is installed, else the
newest supported. CMake runs this file; setup.py and the build backend import it.
"""

from __future__ import annotations

import importlib.metadata
import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

NEWEST = "2.21"
PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")


class TensorFlow(NamedTuple):
    package: str
    version: str
    folder: Path | None  # None: not installed

    @property
    def minor(self) -> str:
        """Like "2.21": TensorFlow's C++ interface is one within such a version."""
        return ".".join(self.version.split(".")[:2])


def _places() -> list[str]:
    # In pip's isolated builds the environment that pip installs into is no longer on sys.path, but
    # the library will run in it.
    places = [*sys.path, sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    return list(dict.fromkeys(places))


def target() -> TensorFlow:
    """The TensorFlow that the library is to be built for."""
    wanted = os.environ.get("SOK_TF_VERSION")
    for place in _places():
        for package in PACKAGES:
            for distribution in importlib.metadata.distributions(name=package, path=[place]):
                found = TensorFlow(package, distribution.version, Path(place, "tensorflow"))
                if Path(place, "tensorflow", "include").is_dir() and wanted in (None, "", found.minor):
                    return found
    return TensorFlow("tensorflow", wanted or NEWEST, None)


if __name__ == "__main__":
    tensorflow = target()
    if tensorflow.folder is None:
        version = tensorflow.version
        sys.exit(f"{sys.executable} has no TensorFlow {version}: pip install tensorflow=={version}.*")
    print(tensorflow.version, tensorflow.folder, sep=";")

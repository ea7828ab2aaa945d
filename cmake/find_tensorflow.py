# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds TensorFlow's package without importing it, which takes seconds.

CMake runs this file and setup.py imports it. In pip's isolated builds the environment that pip
installs into is no longer on sys.path, but it is what the library will run in; so its folder is
searched as well.
"""

from __future__ import annotations

import importlib.metadata
import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")


class TensorFlow(NamedTuple):
    package: str
    version: str
    folder: Path

    @property
    def minor(self) -> str:
        """Like "2.21": TensorFlow's C++ interface is one within such a version."""
        return ".".join(self.version.split(".")[:2])


def find(wanted: str | None = None) -> TensorFlow | None:
    """The TensorFlow of this environment; with `wanted` ("2.21") only one of that version."""
    paths = [*sys.path, sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    if site.ENABLE_USER_SITE:
        paths.append(site.getusersitepackages())
    for path in dict.fromkeys(paths):
        for package in PACKAGES:
            for distribution in importlib.metadata.distributions(name=package, path=[path]):
                folder = Path(str(distribution.locate_file("tensorflow")))
                found = TensorFlow(package, distribution.version, folder)
                if (folder / "include").is_dir() and wanted in (None, found.minor):
                    return found
    return None


if __name__ == "__main__":
    tensorflow = find(os.environ.get("SOK_TF_VERSION"))
    if tensorflow is None:
        sys.exit(f"no TensorFlow for {sys.executable}: pip install tensorflow")
    print(tensorflow.version, tensorflow.folder, sep=";")

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the native library with CMake into a wheel for one version of TensorFlow.

Which one: tools/find_tensorflow.py. The wheel requires exactly this version, since TensorFlow's C++
interface holds within a minor version only. CMAKE_ARGS passes options on: CMAKE_ARGS=-DSOK_CUDA=off.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
import find_tensorflow  # noqa: E402

TENSORFLOW = find_tensorflow.target()


class BuildWithCMake(build_ext):
    """Leaves `_sok_ops.so` and `_build_info.json` in the package."""

    def build_extension(self, ext):
        output = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        folder = Path(self.build_temp).resolve()
        options = [
            f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DSOK_OUTPUT_DIR={output}",
            # A newer compiler than ours may warn where ours does not.
            "-DSOK_WERROR=OFF",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]
        output.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options], check=True)
        subprocess.run(["cmake", "--build", folder], check=True)

    def get_ext_filename(self, fullname):
        return os.path.join(*fullname.split(".")) + ".so"


class TensorFlowWheel(bdist_wheel):
    """Any Python 3, one platform; the build number tells wheels for several TensorFlows apart."""

    def initialize_options(self):
        super().initialize_options()
        self.build_number = f"0tf{TENSORFLOW.minor}"

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("sok._sok_ops", sources=[])],
    cmdclass={"build_ext": BuildWithCMake, "bdist_wheel": TensorFlowWheel},
    install_requires=[
        f"{TENSORFLOW.package}=={TENSORFLOW.minor}.*",
        "fsspec>=2024.6",
        "keras>=3.12,<4",
        "numpy",
        "tqdm>=4.60",
        "xxhash>=3",
    ],
)

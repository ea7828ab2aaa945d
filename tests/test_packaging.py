# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wheels and source distributions, built and installed as users do it."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import tensorflow as tf

ROOT = Path(__file__).parents[1]
MINOR = ".".join(tf.__version__.split(".")[:2])
LOOKUP = """
import sok, tensorflow as tf
table = sok.DynamicVariable(2, initializer="13")
print(sok.__file__, sok.lookup_sparse(table, tf.constant([[7, -1]], tf.int64), combiners="sum").numpy())
"""

pytestmark = pytest.mark.packaging


def run(*command, cwd):
    environment = {**os.environ, "CMAKE_ARGS": "-DSOK_CUDA=off", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    result = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout[-5000:]}\n{result.stderr[-5000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def wheel(elsewhere):
    """Built from the checkout, with build isolation, from another directory."""
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", "dist", ROOT, cwd=elsewhere)
    (path,) = (elsewhere / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(elsewhere):
    run(sys.executable, "-m", "build", "--sdist", "--outdir", "dist", ROOT, cwd=elsewhere)
    (path,) = (elsewhere / "dist").glob("*.tar.gz")
    return path


def test_the_wheel_names_its_tensorflow(wheel):
    assert f"-0tf{MINOR}-py3-none-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert f"Requires-Dist: tensorflow=={MINOR}.*" in text
    assert {"sok/_sok_ops.so", "sok/_build_info.json", "sok/__init__.py"} <= set(names)
    python_files = {str(path.relative_to(ROOT)) for path in (ROOT / "sok").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == python_files


def test_the_wheel_works_in_a_fresh_environment(wheel, elsewhere):
    run(sys.executable, "-m", "venv", "fresh", cwd=elsewhere)
    python = elsewhere / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", wheel, cwd=elsewhere)
    printed = run(python, "-c", LOOKUP, cwd=elsewhere)
    assert "[[26. 26.]]" in printed
    assert str(elsewhere / "fresh") in printed


def test_pip_installs_from_the_source_distribution(sdist, elsewhere):
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    suffixes = (".py", ".h", ".cc", ".cu", ".cuh", ".cmake")
    sources = [path for folder in ("cc_ops", "cuda", "cmake", "sok") for path in (ROOT / folder).rglob("*.*")]
    assert {str(path.relative_to(ROOT)) for path in sources if path.suffix in suffixes} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", "installed", sdist, cwd=elsewhere)
    code = f"import sys; sys.path.insert(0, 'installed'){LOOKUP}"
    printed = run(sys.executable, "-c", code, cwd=elsewhere)
    assert "[[26. 26.]]" in printed
    assert "installed" in printed

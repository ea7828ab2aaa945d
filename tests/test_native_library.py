# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""How the native library is found, and what an import says when it does not fit."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

ROOT = Path(__file__).parents[1]


def run(code, cwd, **environment):
    """A new process: (exit status, stdout, stderr)."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr


@pytest.fixture
def package(tmp_path):
    """A package of the same Python files without a native library."""
    folder = tmp_path / "sok"
    folder.mkdir()
    for path in (ROOT / "sok").iterdir():
        if path.name not in ("_sok_ops.so", "_build_info.json", "__pycache__"):
            (folder / path.name).symlink_to(path)
    return folder


def error_of(package):
    status, _, stderr = run("import sok", package.parent)
    assert status == 1
    return stderr.strip().splitlines()[-1]


def test_a_missing_library_is_named_with_the_command_that_builds_it(package):
    error = error_of(package)
    assert error.startswith(f"ImportError: SOK's native library {package / '_sok_ops.so'} is missing")
    assert "`make build`" in error


def test_a_library_for_another_tensorflow_is_refused(package):
    (package / "_sok_ops.so").write_bytes(b"")
    (package / "_build_info.json").write_text(json.dumps({"tensorflow": "2.3.0"}))
    error = error_of(package)
    assert "was built for TensorFlow 2.3.0, but TensorFlow" in error
    assert f"TensorFlow {tf.__version__} is installed" in error
    assert "pip install --force-reinstall --no-deps ." in error


def test_a_library_that_does_not_load_says_so(package):
    (package / "_sok_ops.so").write_bytes(b"no library")
    (package / "_build_info.json").write_text(json.dumps({"tensorflow": tf.__version__}))
    error = error_of(package)
    assert re.search(r"ImportError: .* does not load in TensorFlow .*: .*_sok_ops\.so", error), error
    assert "pip install --force-reinstall --no-deps ." in error


def test_the_tensorflow_to_build_for():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import find_tensorflow
    finally:
        sys.path.pop(0)
    found = find_tensorflow.target()
    assert found.version == tf.__version__
    assert found.folder == Path(tf.__file__).parent
    assert tf.__version__.startswith(found.minor)


def test_another_tensorflow_can_be_asked_for(monkeypatch):
    script = str(ROOT / "tools" / "find_tensorflow.py")
    monkeypatch.setenv("SOK_TF_VERSION", "2.3")
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.strip() == f"{sys.executable} has no TensorFlow 2.3: pip install tensorflow==2.3.*"


def test_an_isolated_build_asks_for_the_tensorflow_that_is_missing(monkeypatch):
    """What pip calls: a build for the TensorFlow at hand needs no other."""
    code = "import build_backend; print(build_backend.get_requires_for_build_wheel())"
    tools = str(ROOT / "tools")
    status, here, stderr = run(code, ROOT, PYTHONPATH=tools)
    assert status == 0, stderr
    assert "tensorflow" not in here
    status, other, stderr = run(code, ROOT, PYTHONPATH=tools, SOK_TF_VERSION="2.3")
    assert status == 0, stderr
    assert re.search(r"'tensorflow(-cpu)?==2\.3\.\*'", other), other

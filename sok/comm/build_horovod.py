# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the Horovod 0.28.1 wheel for the TensorFlow of this Python environment.

Horovod's last release does not compile against a current TensorFlow as it stands. This module
downloads its sdist, applies ``EDITS``, and builds it with Gloo (``--cuda``: and NCCL):

    python -m sok.comm.build_horovod [--cuda] [--install] [--wheel-dir DIR]

The wheel's path is the only line on stdout. Wheels are kept in ``$SOK_CACHE`` (``~/.cache/sok``), one
folder for each TensorFlow, Python and recipe, so that only the first call compiles (3 to 5 minutes).
With ``--cuda``, ``HOROVOD_CUDA_HOME``, ``HOROVOD_NCCL_HOME`` and ``HOROVOD_BUILD_CUDA_CC_LIST`` are
honoured. The file needs nothing but the standard library and pip, and also runs as a plain script.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

VERSION = "0.28.1"
SDIST_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
JOBS = 2
SITE_PACKAGES = Path(sysconfig.get_path("platlib"))
RUNTIME_NEEDS = ["pyyaml", "psutil", "cloudpickle", "packaging"]

# (file, text, its replacement); the CUDA parts are inert in a CPU build.
# fmt: off
EDITS: list[tuple[str, str, str]] = [
    # The XLA headers that this source includes are no longer shipped with TensorFlow.
    ("horovod/tensorflow/CMakeLists.txt",
     'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n', ""),
    # Library paths relative to the wheel, not those of the machine that built it.
    ("horovod/tensorflow/CMakeLists.txt", 'PROPERTIES PREFIX "")\n',
     'PROPERTIES PREFIX "" BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH\n'
     '    "$ORIGIN/../../tensorflow;$ORIGIN/../../tensorflow/python;$ORIGIN/../../nvidia/nccl/lib")\n'),
    # TensorFlow no longer exports AsGpuStreamValue, and its stream header has moved.
    ("horovod/tensorflow/mpi_ops.cc",
     "// Forward declaration of AsGpuStreamValue\n", '#include "xla/stream_executor/stream.h"\n'),
    ("horovod/tensorflow/mpi_ops.cc", "GpuStreamHandle AsGpuStreamValue(Stream* stream);",
     "inline GpuStreamHandle AsGpuStreamValue(Stream* stream) {\n"
     "  return static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream);\n}"),
    ("horovod/tensorflow/mpi_ops.cc",
     '"tensorflow/compiler/xla/stream_executor/stream.h"', '"xla/stream_executor/stream.h"'),
    ("horovod/common/ops/cuda/CMakeLists.txt", "set(CMAKE_CUDA_STANDARD 11)", "set(CMAKE_CUDA_STANDARD 17)"),
    # A size of 0 here blinds the stall check under Gloo: HOROVOD_STALL_SHUTDOWN_TIME_SECONDS would do nothing.
    ("horovod/common/gloo/gloo_controller.cc", "global_ranks_.reserve(size_);", "global_ranks_.resize(size_);"),
    # horovodrun imports this file, and Python 3.12 has no distutils.
    ("horovod/runner/js_run.py",
     "from distutils.spawn import find_executable", "from shutil import which as find_executable"),
    # Ninja's flags; a fixed number of jobs, whatever MAKEFLAGS says.
    ("setup.py", "make_args = ['-j8'] if not os.environ.get('MAKEFLAGS') else []", f"make_args = ['-j{JOBS}']"),
    ("setup.py", "make_args.append('VERBOSE=1')", "pass"),
]
# fmt: on
ENVIRONMENT = {
    **dict.fromkeys(["HOROVOD_WITHOUT_PYTORCH", "HOROVOD_WITHOUT_MXNET", "HOROVOD_WITHOUT_MPI"], "1"),
    **dict.fromkeys(["HOROVOD_WITH_TENSORFLOW", "HOROVOD_WITH_GLOO"], "1"),
    "CMAKE_GENERATOR": "Ninja",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 refuses the 2.8 that Horovod's copy of Gloo asks for
}
ENVIRONMENT_CUDA = {"HOROVOD_GPU": "CUDA", "HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_NCCL_LINK": "SHARED"}
RECIPE = hashlib.sha256(repr((SDIST_SHA256, EDITS, ENVIRONMENT, ENVIRONMENT_CUDA)).encode()).hexdigest()[:8]


class BuildError(RuntimeError):
    """What went wrong, and what to do about it."""


def say(message: str) -> None:
    print(f"build_horovod: {message}", file=sys.stderr, flush=True)


def installed(*names: str) -> str | None:
    """The version of the first of these distributions that is installed."""
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cuda_toolkit() -> tuple[str, str]:
    """The CUDA toolkit's folder and its major version."""
    home = os.environ.get("HOROVOD_CUDA_HOME") or os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    nvcc = Path(home, "bin", "nvcc")
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout if nvcc.exists() else ""
    if not (found := re.search(r"release (\d+)", text)):
        raise BuildError(f"no CUDA toolkit in {home}: set HOROVOD_CUDA_HOME to its folder, or leave out --cuda")
    return home, found[1]


class Builder:
    """One wheel: its name in the cache, and the way to make it."""

    def __init__(self, cuda: bool) -> None:
        tensorflow = installed("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
        if not tensorflow:
            raise BuildError(f"no TensorFlow in {sys.executable}: pip install tensorflow")
        self.cuda, variant = cuda, "cpu"
        if cuda:
            self.cuda_home, self.cuda_major = cuda_toolkit()
            self.architectures = os.environ.get("HOROVOD_BUILD_CUDA_CC_LIST", "80,90")
            variant = f"cuda{self.cuda_major}.sm{self.architectures.replace(',', '.')}"
        # A local version tells this build from any other Horovod that may be installed.
        self.local = re.sub(r"[^0-9a-z.]+", ".", f"tf{tensorflow}.{variant}.{RECIPE}".lower())
        tag = f"{sys.implementation.cache_tag}-{platform.machine()}"
        root = Path(os.environ.get("SOK_CACHE") or Path.home() / ".cache" / "sok")
        self.folder = root.expanduser().absolute() / "horovod" / f"{VERSION}+{self.local}-{tag}"
        self.log = self.folder / "build.log"

    def run(self, what: str, command: list[object], env: dict[str, str], cwd: Path) -> None:
        """Runs a command into the log; shows the log's compiler errors and last lines when it fails."""
        with self.log.open("a") as log:
            print("$", *command, file=log, flush=True)
            code = subprocess.run([str(x) for x in command], stdout=log, stderr=log, env=env, cwd=cwd).returncode
        if code:
            lines = self.log.read_text(errors="replace").splitlines()
            errors = [line for line in lines[:-25] if re.search(r"error:|CMake Error|FAILED:", line)][:10]
            print(*errors, "...", *lines[-25:], sep="\n", file=sys.stderr)
            hint = "" if installed("pip") else "; there is no pip here: python -m ensurepip"
            raise BuildError(f"{what} failed (exit code {code}){hint}; the whole log is in {self.log}")

    def pip(self, what: str, *arguments: object, env: dict[str, str], cwd: Path) -> None:
        self.run(what, [sys.executable, "-m", "pip", *arguments], env, cwd)

    def wheel(self) -> Path:
        """The wheel from the cache, built first when it is not there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(f"cannot make the cache: {error}; set SOK_CACHE to a folder that you may write") from error
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits and finds the wheel
            for path in self.folder.glob("*.whl"):
                record = Path(f"{path}.sha256")
                if record.exists() and record.read_text().split()[:1] == [sha256(path)]:
                    say(f"found {path.name} in the cache")
                    return path
                say(f"{path} does not match its recorded sha256: building it again")
                path.unlink()
            self.log.write_text("")
            with tempfile.TemporaryDirectory(prefix="sok-horovod-") as work:
                return self.build(Path(work))

    def environment(self, work: Path) -> dict[str, str]:
        """The build's environment; fetches the tools that are missing into ``work``, not into the user's Python."""
        tools = work / "tools"
        # A stray HOROVOD_* of the user's shell would change the build.
        env = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")} | ENVIRONMENT
        env["PATH"] = os.pathsep.join([f"{tools}/bin", sysconfig.get_path("scripts"), env.get("PATH", os.defpath)])
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tools), env.get("PYTHONPATH")]))
        compiler = env.get("CXX", "g++").split()[0]
        if not shutil.which(compiler):
            raise BuildError(f"no C++ compiler {compiler!r}: install g++ 9 or later, or set CXX")
        needs = [name for name in ("cmake", "ninja") if not shutil.which(name, path=env["PATH"])]
        needs += [] if installed("packaging") else ["packaging"]
        # From 70.1 on setuptools makes wheels by itself, and needs no `wheel` beside it.
        needs += [] if int((installed("setuptools") or "0").split(".")[0]) > 70 else ["setuptools>70.1"]
        if self.cuda:
            env |= ENVIRONMENT_CUDA
            env |= {"HOROVOD_CUDA_HOME": self.cuda_home, "HOROVOD_BUILD_CUDA_CC_LIST": self.architectures}
            env["HOROVOD_NCCL_HOME"] = os.environ.get("HOROVOD_NCCL_HOME") or str(work / "nccl")
            nccl = SITE_PACKAGES / "nvidia" / "nccl"
            if not nccl.exists() and "HOROVOD_NCCL_HOME" not in os.environ:
                nccl = tools / "nvidia" / "nccl"
                needs.append(f"nvidia-nccl-cu{self.cuda_major}")
            # The package has libnccl.so.2 only, and the linker looks for libnccl.so.
            (work / "nccl" / "lib").mkdir(parents=True)
            (work / "nccl" / "include").symlink_to(nccl / "include")
            (work / "nccl" / "lib" / "libnccl.so").symlink_to(nccl / "lib" / "libnccl.so.2")
        if needs:
            say(f"fetching {', '.join(needs)}")
            self.pip("fetching the build tools", "install", "--target", tools, *needs, env=env, cwd=work)
        return env

    def build(self, work: Path) -> Path:
        """Downloads, edits and compiles a fresh copy (a second build in one tree fails)."""
        say(f"building Horovod {VERSION}+{self.local}, 3 to 5 minutes; log: {self.log}")
        env = self.environment(work)
        # pip checks the hash before it runs the sdist's setup.py for its metadata.
        (work / "sdist.txt").write_text(f"horovod=={VERSION} --hash=sha256:{SDIST_SHA256}\n")
        options = ["--no-deps", "--no-build-isolation", "--use-pep517"]
        fetch = ["download", "--no-binary", "horovod", *options, "-r", "sdist.txt"]
        self.pip("downloading the sdist", *fetch, env=env, cwd=work)
        with tarfile.open(work / f"horovod-{VERSION}.tar.gz") as archive:
            # Not in the first releases of 3.10 and 3.11; without it 3.12 warns.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(work)
        source = work / f"horovod-{VERSION}"
        for name, old, new in EDITS:
            text = (source / name).read_text()
            if text.count(old) != 1:
                raise BuildError(f"cannot edit Horovod's {name}: {old!r} is not there exactly once; correct EDITS")
            (source / name).write_text(text.replace(old, new))
        env["HOROVOD_LOCAL_VERSION"] = self.local
        self.pip("compiling Horovod", "wheel", "-v", *options, "-w", work / "out", source, env=env, cwd=work)
        (built,) = (work / "out").glob("*.whl")
        if not any("tensorflow/mpi_lib" in name for name in zipfile.ZipFile(built).namelist()):
            raise BuildError(f"the wheel holds no TensorFlow library; see CMake's output in {self.log}")
        path = self.folder / built.name
        Path(f"{path}.sha256").write_text(f"{sha256(built)}  {path.name}\n")
        shutil.move(built, path)
        return path

    def install(self, wheel: Path) -> None:
        """Installs the wheel, unless this very build is installed already, and what it needs at run time."""
        env = dict(os.environ)
        if installed("horovod") != f"{VERSION}+{self.local}":
            self.pip("installing the wheel", "install", "--no-deps", wheel, env=env, cwd=self.folder)
        needs = list(RUNTIME_NEEDS)
        if self.cuda and not (SITE_PACKAGES / "nvidia" / "nccl").exists():
            needs.append(f"nvidia-nccl-cu{self.cuda_major}")
        self.pip("installing what Horovod needs", "install", *needs, env=env, cwd=self.folder)
        self.run("importing it", [sys.executable, "-c", "import horovod.tensorflow"], env, self.folder)
        say(f"horovod {VERSION}+{self.local} is installed in {sys.prefix}")


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuda", action="store_true", help="also build the NCCL operations for GPUs")
    parser.add_argument("--install", action="store_true", help="install the wheel into this Python environment")
    parser.add_argument("--wheel-dir", type=Path, metavar="DIR", help="also copy the wheel to this folder")
    options = parser.parse_args(arguments)
    try:
        builder = Builder(options.cuda)
        wheel = builder.wheel()
        if options.install:
            builder.install(wheel)
        if options.wheel_dir:
            options.wheel_dir.mkdir(parents=True, exist_ok=True)
            wheel = Path(shutil.copy2(wheel, options.wheel_dir))
    except BuildError as error:
        say(f"error: {error}")
        return 1
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())

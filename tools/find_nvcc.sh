#!/bin/sh
# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
# usage: find_nvcc.sh PYTHON FOLDER
# Prints the path of nvcc: the system's, else one from PyPI, which goes into FOLDER.
set -eu
for nvcc in "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" "$(command -v nvcc || true)"; do
  if [ -x "$nvcc" ]; then
    echo "$nvcc"
    exit 0
  fi
done
nvcc=$2/nvidia/cu13/bin/nvcc
if [ ! -x "$nvcc" ]; then
  "$1" -m pip install --quiet --disable-pip-version-check --no-deps --target "$2" \
    -r "$(dirname "$0")/../requirements-cuda.txt" >&2
  # Names that a toolkit of the system has, and that nvcc and CMake look for.
  ln -sfn lib "$2/nvidia/cu13/lib64"
  ln -sfn libcudart.so.13 "$2/nvidia/cu13/lib/libcudart.so"
fi
echo "$(cd "$(dirname "$nvcc")" && pwd)/nvcc"

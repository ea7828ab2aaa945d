#!/usr/bin/env bash
# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The GPU tests, on a machine that has one: run.sh SUMMARY_FILE [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/../.."
summary=$1
shift
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} SOK_GPU_SUMMARY=$summary
exec "${PY:-python3}" -m pytest -q -p no:cacheprovider tests/gpu "$@"

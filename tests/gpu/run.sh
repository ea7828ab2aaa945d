#!/usr/bin/env bash
# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Everything that must hold on a GPU, on a machine that has one:
#
#   run.sh SUMMARY SEED [PART...]     all parts by default, side by side
#
#   suite      the Python suite, with every op and table on the GPU
#   twins      each op against the same op on the CPU
#   native     the device library without TensorFlow against the CPU's
#   memcheck, racecheck, initcheck    the native tests under that tool of compute-sanitizer
#
# SUMMARY gets a JSON file, to which a later run of other parts adds; SEED is for all that is drawn at random. What
# takes more than LIMIT (450) seconds is ended, and has not passed. JOBS (10) files of tests run at a time; NATIVE
# names the program of the native tests.
set -uo pipefail
cd "$(dirname "$0")/../.."
summary=$1
export SOK_TEST_SEED=$2
parts=${*:3}
parts=${parts:-suite twins native memcheck racecheck initcheck}
python=${PY:-python3}
native=${NATIVE:-build/gpu/tests/native/sok_gpu_tests}
export PYTHONPATH=$PWD:$PWD/tests/gpu${PYTHONPATH:+:$PYTHONPATH}
export TF_FORCE_GPU_ALLOW_GROWTH=true TF_CPP_MIN_LOG_LEVEL=3
records=$(mktemp -d)
trap 'rm -rf "$records"' EXIT

# Those that take longest, which start first.
slow="tests/test_demo.py tests/test_notebook.py tests/test_training_follows_oracle.py tests/test_dump_killed.py"

# The files of tests given, some at a time.
in_parallel() {
  printf '%s\n' "$@" | timeout "${LIMIT:-450}" xargs -P "${JOBS:-10}" -I{} bash -c '
    name=$(tr "/" "_" <<<"{}")
    SOK_GPU_RECORD=$0/$name.json '"$python"' -m pytest -q -p proof -p no:cacheprovider \
      --hypothesis-seed="$SOK_TEST_SEED" "{}" >"$0/$name.log" 2>&1
    status=$?
    # 5: all of its tests are exempt.
    if ((status != 0 && status != 5)); then cat "$0/$name.log"; fi' "$records"
}

one() {
  local start=$SECONDS
  case $1 in
    suite) SOK_TEST_DEVICE=gpu in_parallel $slow $(ls -S tests/test_*.py | grep -vxF -f <(tr " " "\n" <<<"$slow")) ;;
    twins) in_parallel tests/gpu/test_*.py ;;
    native) "$python" tests/gpu/native.py "$records" "$native" ;;
    memcheck | racecheck | initcheck) "$python" tests/gpu/native.py "$records" "$native" "$1" ;;
    *) echo "unknown part $1" >&2 ;;
  esac
  echo "== $1 took $((SECONDS - start)) s"
}

for part in $parts; do one "$part" & done
wait
"$python" tests/gpu/proof.py "$summary" "$records" "$SOK_TEST_SEED"

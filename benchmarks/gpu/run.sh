#!/usr/bin/env bash
# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
# All figures of one GPU, on a machine that has one:
#
#   run.sh IDS NAME [PART...]     all parts by default, one after the other
#
#   stages        cases a, b and c without TensorFlow    (STAGES: the program, stages.cu says how to build it)
#   peer          the same by FBGEMM, right after it     (PEER: the command that does so, run in IDS)
#   forward       case c's forward pass, its kernel without what is between two
#   keys          find and insert
#   interaction   the dot products of a DLRM
#   step, memory, fit, trace    inside TensorFlow
#
# IDS is the folder of the module `ids` that draws the batches. Each part leaves results/NAME-PART.jsonl (peer: -fbgemm.txt);
# report.py NAME then makes the tables and the chart. A part has LIMIT (500) seconds.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
ids=$(cd "$1" && pwd)
name=$2
parts=${*:3}
python=${PY:-python3}
stages=${STAGES:-$root/build/cuda/stages}
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} TF_CPP_MIN_LOG_LEVEL=3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Cases one after the other: the batches of the largest are 0.3 GB.
stages() {
  for case in a b c; do
    for dist in uniform power; do
      "$python" "$here/cases.py" "$ids" $case $dist "$scratch/case" && "$stages" "$scratch/case" "$case $dist"
    done
  done
}

# Builds trace.cc: what it is loaded into writes $scratch/trace.
build_trace() {
  local cuda=${CUDA_HOME:-/usr/local/cuda}
  local cupti=${CUPTI:-$cuda/extras/CUPTI/lib64}
  g++ -shared -fPIC -O2 -I"$cuda/include" -I"$cuda/extras/CUPTI/include" "$here/trace.cc" -o "$scratch/libtrace.so" \
    -L"$cupti" -Wl,-rpath,"$cupti" -lcupti
}

traced() { CUDA_INJECTION64_PATH=$scratch/libtrace.so SOK_TRACE=$scratch/trace "$@" >&2; }

trace() {
  build_trace || return
  traced "$python" "$here/trace.py" "$ids" run
  "$python" "$here/trace.py" "$scratch/trace" table
}

forward() {
  build_trace || return
  for dist in uniform power; do
    "$python" "$here/cases.py" "$ids" c $dist "$scratch/case" || return
    traced "$stages" "$scratch/case" "c $dist"
    "$python" "$here/trace.py" "$scratch/trace" forward "c $dist"
  done
}

export -f stages trace forward build_trace traced
export here ids python scratch
one() {
  case $1 in
    stages | trace | forward) timeout "${LIMIT:-500}" bash -c "stages='$stages'; $1" ;;
    peer) (cd "$ids" && timeout "${LIMIT:-500}" ${PEER:-"$python" tbe_bench.py a,b,c} | grep '^tbe ') ;;
    keys | interaction) timeout "${LIMIT:-500}" "$stages" "$1" ;;
    step | memory | fit) timeout "${LIMIT:-500}" "$python" "$here/with_tensorflow.py" "$ids" "$1" ;;
    *) echo "unknown part $1" >&2 ;;
  esac
}

for part in ${parts:-stages peer forward keys interaction step memory fit trace}; do
  out=$here/results/$name-$part.jsonl
  [ "$part" = peer ] && out=$here/results/$name-fbgemm.txt
  start=$SECONDS
  one "$part" | tee "$out"
  echo "== $part took $((SECONDS - start)) s" >&2
done

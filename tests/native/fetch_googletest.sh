#!/bin/sh
# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
# usage: fetch_googletest.sh FOLDER
# Unpacks Debian's GoogleTest into FOLDER/usr, which needs no root.
set -eu
mkdir -p "$1"
cd "$1"
[ ! -d usr ] || exit 0
command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
  echo "fetch_googletest.sh: no apt-get here: install GoogleTest's CMake package" >&2
  exit 1
}
if ! apt-get download -qq libgtest-dev; then
  # The system's package lists are missing or stale: use own ones.
  lists="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache"
  mkdir -p lists/partial cache/archives/partial
  apt-get update -qq $lists
  apt-get download -qq $lists libgtest-dev
fi
dpkg -x libgtest-dev_*.deb unpacked
mv unpacked/usr usr

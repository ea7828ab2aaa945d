#!/bin/sh
# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
# usage: make_venv.sh PYTHON FOLDER
# Makes a virtual environment with pip, also with a Debian python3 that came without python3-venv.
set -eu
python=$1
folder=$2

"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' || {
  echo "make_venv.sh: $("$python" --version) found, Python 3.10 to 3.13 needed: make PYTHON=python3.12" >&2
  exit 1
}
rm -rf "$folder"
if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  exec "$python" -m venv "$folder"
fi
# Debian keeps pip's wheel in a package of its own, which needs no installing to be used once.
"$python" -m venv --without-pip "$folder"
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
(cd "$download" && apt-get download -qq python3-pip-whl && dpkg -x ./*.deb .) || {
  echo "make_venv.sh: $python has no ensurepip: install python3-venv, or choose another: make PYTHON=..." >&2
  exit 1
}
PYTHONPATH=$(echo "$download"/usr/share/python-wheels/pip-*.whl) "$folder/bin/python" -m pip install -q pip

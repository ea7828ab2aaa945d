# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps that tests change: their manifests, with a checksum that fits again, and their files."""

import json

from sok.checkpoint import manifest


def read(dump):
    return json.loads((dump / "manifest.json").read_text())


def write(dump, data):
    body = {name: value for name, value in data.items() if name != "checksum"}
    check = manifest.checksum(manifest._canonical(body))
    (dump / "manifest.json").write_text(json.dumps({**body, "checksum": check}))


def shard_of(dump):
    data = read(dump)
    return dump / data["generation"] / data["tables"][0]["shards"][0]["file"]


def variables_of(dump):
    data = read(dump)
    return dump / data["generation"] / data["variables_shard"]["file"]

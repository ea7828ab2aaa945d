# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps that are damaged, or made to do damage: refused by name, and the table is as it was."""

import json

import kinds
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from signed_dumps import read, shard_of, write

import sok
from sok.checkpoint import manifest


@pytest.fixture
def dump(tmp_path):
    """A folder with a dump of the table "t"."""
    table = sok.DynamicVariable(2, name="t", initializer="normal")
    sok.lookup_sparse(table, tf.range(50)[:, None])
    sok.dump(tmp_path / "d", [table, tf.Variable([1.0, 2.0], name="w")])
    return tmp_path / "d"


def replace_shard(dump, arrays, rows=None):
    """Another file in the place of the table's, with all numbers in order."""
    data, path = read(dump), shard_of(dump)
    content = safetensors.numpy.save(arrays)
    path.write_bytes(content)
    shard = data["tables"][0]["shards"][0]
    shard |= {"bytes": len(content), "checksum": manifest.checksum(content)}
    if rows is not None:
        shard["rows"] = data["tables"][0]["rows"] = rows
    write(dump, data)


def assert_refused(dump, match, error=ValueError, make=None, **kwargs):
    """Loading fails so, and changes neither table nor variable."""
    table = (make or (lambda: sok.DynamicVariable(2, name="t")))()
    weight = tf.Variable([7.0, 8.0], name="w")
    if not table.is_static:
        sok.assign(table, [3, 100], np.ones((2, table.dimension)))
    before, seed = kinds.export_as_dict(table), table.table.seed
    with pytest.raises(error, match=match):
        sok.load(dump, [table, weight], **kwargs)
    kinds.assert_rows(kinds.export_as_dict(table), before)
    assert table.table.seed == seed
    np.testing.assert_array_equal(weight, [7.0, 8.0])


def test_shard_that_was_cut(dump):
    path = shard_of(dump)
    path.write_bytes(path.read_bytes()[:-1])
    assert_refused(dump, rf"{path.name} has \d+ bytes, the manifest says \d+: it was cut or changed")


def test_shard_that_is_longer(dump):
    path = shard_of(dump)
    path.write_bytes(path.read_bytes() + b"\0" * (1 << 16))
    assert_refused(dump, f"{path.name} has .* bytes, the manifest says")


def test_shard_that_is_missing(dump):
    path = shard_of(dump)
    path.unlink()
    assert_refused(dump, f"{path.name} is missing")


@pytest.mark.parametrize("where", [0, 7, 20, 200, -1])
def test_one_flipped_bit(dump, where):
    path = shard_of(dump)
    content = bytearray(path.read_bytes())
    content[where] ^= 4
    path.write_bytes(content)
    assert_refused(dump, f"{path.name}: its checksum does not fit")


def test_a_flipped_bit_in_the_variables(dump):
    path = shard_of(dump).parent / "variables.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert_refused(dump, "variables.safetensors: its checksum does not fit")


def test_every_flipped_byte_of_the_manifest(dump):
    """Whatever changes in it, it is noticed."""
    path = dump / "manifest.json"
    content = path.read_bytes()
    for where in range(0, len(content), 7):
        changed = bytearray(content)
        changed[where] ^= 1
        if json_equal(changed, content):
            continue
        path.write_bytes(changed)
        table = sok.DynamicVariable(2, name="t")
        with pytest.raises(ValueError, match=r"manifest\.json"):
            sok.load(dump, table, strict=False)
        assert table.size[0] == 0


def json_equal(a, b):
    try:
        return json.loads(bytes(a)) == json.loads(bytes(b))
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not a manifest"),
        (b"[" * 100_000, "not a manifest"),
        (b"\xff\xfe\x00", "not a manifest"),
        (b"[1]", "has no 'format'"),
        (b'{"format": "other"}', "format is 'other', not 'sok.dump'"),
        (b'{"format": "sok.dump", "version": 2}', "version 2 of the format; this library reads version 1"),
        (b'{"format": "sok.dump", "version": "1"}', "'version' is '1'"),
        (b'{"format": "sok.dump", "version": 1}', "has no 'checksum'"),
    ],
)
def test_manifests_that_are_none(dump, content, match):
    (dump / "manifest.json").write_bytes(content)
    assert_refused(dump, match)


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (["generation"], "../elsewhere", "which is no name of a file in a dump"),
        (["generation"], "data-0123456789abcdef/..", "which is no name of a file in a dump"),
        (["tables", 0, "shards", 0, "file"], "../../secret.safetensors", "which is no name of a file in a dump"),
        (["tables", 0, "shards", 0, "file"], "/etc/passwd", "which is no name of a file in a dump"),
        (["tables", 0, "shards", 0, "file"], "a\x00.safetensors", "which is no name of a file in a dump"),
        (["tables", 0, "shards", 0, "file"], "x" * 300 + ".safetensors", "which is no name of a file in a dump"),
        (["tables", 0, "shards", 0, "rank"], 1, "was written by rank 1 of 1"),
        (["tables", 0, "placement", "owner"], 3, "was written by rank 0, not by 3"),
        (["tables", 0, "shards", 0, "rows"], 10**18, "has 50 rows, its shards 1000000000000000000"),
        (["tables", 0, "shards", 0, "rows"], -1, "'rows' is -1"),
        (["tables", 0, "shards", 0, "rows"], 1.5, "'rows' is 1.5"),
        (["tables", 0, "shards", 0, "rows"], True, "'rows' is True"),
        (["tables", 0, "shards", 0, "bytes"], 2**61, "has 2305843009213693952 bytes for 50 rows"),
        (["tables", 0, "shards", 0, "bytes"], 10, "has 10 bytes for 50 rows"),
        (["tables", 0, "shards", 0, "file"], "variables.safetensors", "names variables.safetensors twice"),
        pytest.param(["tables", 0, "rows"], 10**4000, "'rows' is 1000", id="rows-of-4001-digits"),
        (["tables", 0, "rows"], [50], r"'rows' is \[50\]"),
        (["tables", 0, "name"], 5, "'name' is 5"),
        (["tables", 0, "name"], ["t"], r"'name' is \['t'\]"),
        (["tables", 0, "planes", 0, "initial"], float("nan"), "'initial' is nan, which is no finite float32"),
        (["tables", 0, "planes", 0, "initial"], float("inf"), "'initial' is inf, which is no finite float32"),
        pytest.param(["tables", 0, "planes", 0, "initial"], 10**400, "no finite float32", id="initial-of-401-digits"),
        (["tables", 0, "planes", 0, "initial"], "0", "'initial' is '0'"),
        (["tables", 0, "rows"], 51, "has 51 rows, its shards 50"),
        (["tables", 0, "planes", 0, "width"], 2**40, "'width' is 1099511627776"),
        (["tables", 0, "planes", 0, "width"], 0, "'width' is 0"),
        (["tables", 0, "planes", 0, "dtype"], "object", "not one of float32"),
        (["tables", 0, "planes", 0, "name"], "other", "plane 0 has the name 'other'"),
        (["tables", 0, "planes"], [], "has no planes"),
        (["tables", 0, "key_dtype"], "float32", "not one of int32"),
        (["tables", 0, "kind"], "tree", "not one of hash, static"),
        (["tables", 0, "placement"], {}, "has no 'kind'"),
        (["tables", 0, "seed"], 2**64, "'seed' is"),
        (["tables"], {}, "'tables' is {}"),
        (["variables", 0, "shape"], [2**39, 2**39], "its variables are larger than their file"),
        (["variables", 0, "shape"], [-2], "a variable has the shape"),
        (["variables", 0, "shape"], [True, 2], "a variable has the shape"),
        (["variables", 0, "shape"], [1] * 65, "a variable has the shape"),
        (["variables", 0, "dtype"], "string", "'dtype' is 'string', not one of bool"),
        (["variables_shard", "bytes"], 2**40, r"variables.safetensors has \d+ bytes for 1 variables of 8"),
        (["ranks"], 0, "'ranks' is 0"),
        (["values_only"], 1, "'values_only' is 1"),
        (["written_by"], "me", "'written_by' is 'me'"),
        (["step"], -1, "'step' is -1"),
        (["step"], False, "'step' is False"),
        (["variables_shard"], None, "has variables, but no file of them"),
    ],
)
def test_fields_that_lie(dump, path, value, match):
    data = read(dump)
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    write(dump, data)
    assert_refused(dump, match)


def test_huge_counts_in_the_file_itself(dump):
    """Rows and bytes fit each other and the manifest, but not the tensors."""
    keys, values = np.arange(10), np.ones((10, 2), np.float32)
    replace_shard(dump, {"keys": keys, "values": values}, rows=11)
    assert_refused(dump, r"has \d+ bytes for 11 rows|the tensor 'keys' is int64 \[10\], not int64 \[11\]")
    path, data = shard_of(dump), read(dump)
    header = json.dumps(
        {"keys": {"dtype": "I64", "shape": [10], "data_offsets": [0, 2**60]}, "values": {}}
    ).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(160)
    path.write_bytes(content)
    data["tables"][0]["rows"] = data["tables"][0]["shards"][0]["rows"] = 10
    data["tables"][0]["shards"][0] |= {"bytes": len(content), "checksum": manifest.checksum(content)}
    write(dump, data)
    assert_refused(dump, f"{path.name} is no file of tensors")
    content = (2**63).to_bytes(8, "little") + content[8:]
    path.write_bytes(content)
    data["tables"][0]["shards"][0]["checksum"] = manifest.checksum(content)
    write(dump, data)
    assert_refused(dump, f"{path.name} is no file of tensors")


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"[1, 2]", "its header is no object"),
        (b"{", "is no file of tensors: Expecting"),
        (b"[" * 5000, "is no file of tensors"),
        ({"keys": 5}, "'keys' is 5"),
        ({"keys": {"dtype": "I64", "shape": [10]}}, "'keys' is"),
        ({"keys": {"dtype": [], "shape": [10], "data_offsets": [0, 80]}}, "'keys' is"),
        ({"keys": {"dtype": "I64", "shape": [10], "data_offsets": [0, 80, 80]}}, "'keys' is"),
        ({"keys": {"dtype": "I64", "shape": [10], "data_offsets": [0.0, 80.0]}}, "'keys' is"),
        ({"keys": {"dtype": "I64", "shape": [10], "data_offsets": [-80, 0]}}, "'keys' lies at -80 to 0 of"),
        ({"keys": {"dtype": "I64", "shape": [10], "data_offsets": [80, 0]}}, "'keys' lies at 80 to 0 of"),
        ({"keys": {"dtype": "I64", "shape": [10], "data_offsets": [0, 2**70]}}, "'keys' lies at 0 to"),
        ({"keys": {"dtype": "I64", "shape": [10], "data_offsets": [0, 72]}}, "'keys' lies at 0 to 72 of"),
        ({"keys": {"dtype": "X9", "shape": [10], "data_offsets": [0, 80]}}, r"'keys' is None \[10\], not int64"),
    ],
)
def test_headers_that_lie(dump, header, match):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(160)
    data, path = read(dump), shard_of(dump)
    path.write_bytes(content)
    data["tables"][0]["rows"] = 10
    data["tables"][0]["shards"][0] |= {"rows": 10, "bytes": len(content), "checksum": manifest.checksum(content)}
    write(dump, data)
    assert_refused(dump, match)


def two_files(dump, second):
    """The table's shard and another, with the key of `second`."""
    data, path = read(dump), shard_of(dump)
    arrays = {"keys": np.asarray([second]), "values": np.ones((1, 2), np.float32)}
    content = safetensors.numpy.save(arrays)
    (path.parent / "second.safetensors").write_bytes(content)
    table = data["tables"][0]
    shard = {"file": "second.safetensors", "rows": 1, "bytes": len(content), "checksum": manifest.checksum(content)}
    table["shards"].append(table["shards"][0] | shard)
    table["rows"] += 1
    write(dump, data)


def test_a_key_in_two_files(dump):
    two_files(dump, 100)
    table = sok.DynamicVariable(2, name="t")
    assert sok.load(dump, table, strict=False).rows == {"t": 51}
    two_files(dump, 7)
    table = sok.DynamicVariable(2, name="t")
    with pytest.raises(ValueError, match=r"names second\.safetensors twice"):
        sok.load(dump, table, strict=False)
    data = read(dump)
    del data["tables"][0]["shards"][1]
    data["tables"][0]["rows"] -= 1
    write(dump, data)
    with pytest.raises(ValueError, match=f"'t' has the key 7 in 2 files, {names_of(dump)}"):
        sok.load(dump, table, strict=False)
    assert table.size == [0, 2]


def names_of(dump):
    """Of both files, as messages have them."""
    return rf"{dump}: {shard_of(dump).name} and {dump}: second\.safetensors"


@pytest.mark.parametrize("options", [{}, {"strict": False}, {"values_only": True}], ids=str)
def test_a_key_in_two_files_leaves_a_table_as_it_was(dump, options):
    two_files(dump, 7)
    assert_refused(dump, f"'t' has the key 7 in 2 files, {names_of(dump)}: the dump is damaged", **options)


@pytest.mark.parametrize("options", [{}, {"strict": False}, {"values_only": True}], ids=str)
def test_a_row_of_a_static_table_in_two_files(tmp_path, options):
    """Once for each row that is missing: their number is right."""
    table = sok.Variable(np.ones((6, 2), np.float32), name="t")
    sok.dump(tmp_path, [table, tf.Variable([1.0, 2.0], name="w")])
    replace_shard(tmp_path, {"keys": np.arange(5), "values": np.ones((5, 2), np.float32)}, rows=5)
    two_files(tmp_path, 3)
    assert_refused(
        tmp_path,
        f"'t' has the key 3 in 2 files, {names_of(tmp_path)}",
        make=lambda: sok.Variable(np.full((6, 2), 5.0, np.float32), name="t"),
        **options,
    )


@pytest.mark.parametrize("where", [0, 200, -1])
def test_an_empty_table_is_empty_after_damage(dump, where):
    """Its rows are written while the files are being checked."""
    path, table = shard_of(dump), sok.DynamicVariable(2, name="t")
    content = path.read_bytes()
    changed = bytearray(content)
    changed[where] ^= 4
    two_files(dump, 100)
    path.write_bytes(changed)
    seed, weight = table.table.seed, tf.Variable([7.0, 8.0], name="w")
    with pytest.raises(ValueError, match=f"{path.name}: its checksum does not fit"):
        sok.load(dump, [table, weight])
    assert table.size == [0, 2]
    assert table.table.seed == seed
    np.testing.assert_array_equal(weight, [7.0, 8.0])
    path.write_bytes(content)
    assert sok.load(dump, [table, weight]).rows == {"t": 51}
    assert table.size == [51, 2]


def test_tensors_that_are_others(dump):
    values = np.ones((50, 2), np.float32)
    for arrays, match in (
        ({"keys": np.arange(50), "rows": values}, "has no tensor 'values'; it has keys, rows"),
        ({"keys": np.arange(50.0), "values": values}, r"'keys' is float64 \[50\], not int64 \[50\]"),
        ({"keys": np.arange(50), "values": values.T.copy()}, r"'values' is float32 \[2, 50\], not float32 \[50, 2\]"),
        ({"keys": np.arange(50) // 2, "values": values}, "has the key 0 twice"),
    ):
        replace_shard(dump, arrays)
        assert_refused(dump, match)


def test_keys_outside_of_a_static_table(tmp_path):
    table = sok.Variable(np.ones((5, 2), np.float32), name="t")
    sok.dump(tmp_path, [table, tf.Variable([1.0, 2.0], name="w")])
    replace_shard(tmp_path, {"keys": np.arange(1, 6), "values": np.zeros((5, 2), np.float32)})
    assert_refused(
        tmp_path, "has keys from 1 to 5 for a table of 5 rows", make=lambda: sok.Variable(np.ones((5, 2)), name="t")
    )


def test_dumps_of_other_tables(dump):
    for make, match in (
        (lambda: sok.DynamicVariable(3, name="t"), "'t' has the dimension 2, the variable 3"),
        (lambda: sok.DynamicVariable(2, name="u"), "has no table 'u'; it has 't'"),
        (lambda: sok.Variable(np.ones((9, 2)), name="t"), "'t' is a table of the kind hash, the variable static"),
        (lambda: sok.DynamicVariable(2, name="t", dtype="float16"), "rows of the type float32, the variable float16"),
    ):
        assert_refused(dump, match, make=make)
    assert_refused(
        dump,
        "50 rows do not fit; it takes at most 49",
        tf.errors.ResourceExhaustedError,
        lambda: sok.DynamicVariable(2, name="t", max_capacity=49),
    )


def test_a_damaged_manifest_is_not_dumped_over(dump):
    """Its shards may be somebody's only copy."""
    (dump / "manifest.json").write_bytes(b"{")
    with pytest.raises(ValueError, match="not a manifest"):
        sok.dump(dump, sok.DynamicVariable(2, name="t"))
    assert [path.is_dir() for path in sorted(dump.iterdir())] == [True, False]

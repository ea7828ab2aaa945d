# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counters of tables and of stages."""

import re
from typing import Any

from sok import _native
from sok.lookup import check_table
from sok.variables import TableVariable


def stats(*variables: TableVariable) -> dict[str, dict[str, Any]]:
    """What tables hold and have done, by the name of the table ("items", "items_1" if two share it);
    without tables, what the stages have done in this process, by the name of the stage.

    Of a stage: calls, seconds (on the host), gpu_calls (of the calls, those on a GPU), gpu_kernels (that
    they launched), and for one that sends something to other ranks (exchange_counts, exchange_ids,
    exchange_rows, exchange_gradients, …) sent_bytes, sent_rows (slices along the first dimension of what was
    sent: ids, rows or gradients, numbers in exchange_counts), and sent_bytes_to, a list by rank; what
    stays on this rank does not count. How an all-reduce travels is up to the transport: its bytes count once, and
    not by rank.

    Of a table, on several ranks of the part that this one keeps:

    rows, row_limit (rows that fit before the index grows), bytes (memory of index, rows and states),
    pinned_bytes (of these, rows and states of a GPU's table in host memory),
    inserted, erased, index_growths; load_factor (of the index), groups_per_find (groups of 16 slots
    read to find a key that is there, on average; 1 is the least).

    >>> table = sok.DynamicVariable(4, name="items")
    >>> _ = sok.lookup_sparse(table, tf.constant([3, 4]))
    >>> sok.stats(table)["items"]["rows"]
    2
    >>> sok.stats()["lookup"]["calls"] >= 1
    True
    """
    if not variables:
        stages = _native.call_json("sok_stage_stats")
        return {_stage(op): {k: v for k, v in of.items() if v != []} for op, of in stages.items()}
    result: dict[str, dict[str, Any]] = {}
    for variable in variables:
        check_table(variable)
        counters: dict[str, Any] = dict(variable.table.stats())
        slots = counters["index_slots"]
        reads = counters.pop("groups_read_to_find_all")
        counters["load_factor"] = counters["rows"] / slots if slots else 0.0
        counters["groups_per_find"] = reads / counters["rows"] if slots and counters["rows"] else 0.0
        name, same = variable.name, 0
        while name in result:
            same += 1
            name = f"{variable.name}_{same}"
        result[name] = counters
    return result


def _stage(op: str) -> str:
    """The stage of an op: "table_export" for "Sok>TableExport"."""
    name = op.removeprefix("Sok>")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, started once for all tests."""

import launch
import pytest


@pytest.fixture(scope="session")
def _jobs():
    jobs = {}
    yield jobs
    for job in jobs.values():
        job.close()


@pytest.fixture
def ranks_of(_jobs):
    """The job of a given size; a new one if the last test left ranks dead or apart."""

    def get(size):
        if size in _jobs and not _jobs[size].usable:
            _jobs.pop(size).close()
        if size not in _jobs:
            # Short: a rank that fails alone leaves the others waiting for it.
            _jobs[size] = launch.Ranks(size, {"SOK_COMM_TIMEOUT": "120"})
        return _jobs[size]

    return get


@pytest.fixture(params=[2, 3], ids=["2ranks", "3ranks"])
def ranks(request, ranks_of):
    return ranks_of(request.param)

# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The way of data to a model: batches copied ahead to a GPU, and readers of the public data sets that the demos and
the tests train on.

Nothing of a data set lies in this repository: it is downloaded when first asked for, checked
against a hash, and kept in a cache folder.
"""

from sok.data.prefetch import prefetch_to_device

__all__ = ["prefetch_to_device"]

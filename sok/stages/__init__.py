# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The stages of a lookup, one file each: the op and its gradient. `sok/pipeline.py` joins them."""

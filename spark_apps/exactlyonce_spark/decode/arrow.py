"""pyarrow as this package uses it: its published stubs lack functions and refuse arguments, so arrays are not typed."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow
import pyarrow.compute

pa: Any = pyarrow
pc: Any = pyarrow.compute

Array: TypeAlias = Any
"""A pyarrow.Array, of whatever type its name or its function says."""
DataType: TypeAlias = Any
Field: TypeAlias = Any
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any

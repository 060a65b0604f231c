"""The encodings that a record's value may have."""

from __future__ import annotations

from enum import StrEnum


class FormatType(StrEnum):
    """How a record's value is encoded."""

    JSON = "Json"
    CSV = "Csv"
    RAW = "Raw"
    PARQUET = "Parquet"
    ORC = "Orc"

    @property
    def is_columnar(self) -> bool:
        """Whether the source itself reads rows, and a record has no bytes to parse."""
        return self in (FormatType.PARQUET, FormatType.ORC)

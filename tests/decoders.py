"""Decoders of records for tests that look at a source, and not at what it holds."""

from __future__ import annotations

from exactlyonce.api.format import Format
from exactlyonce_spark.decode.records import RecordDecoder, as_option
from exactlyonce_spark.decode.unread import LeftOut

AS_BYTES = Format.model_validate({"type": "Raw", "schema": "value BINARY"})
"""The format of records whose row is their bytes, in a column `value`."""

BYTES = RecordDecoder(AS_BYTES)
BYTES_OPTION = as_option(AS_BYTES)
NOTHING = LeftOut()

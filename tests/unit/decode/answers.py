"""What decoders answer, for each record."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from exactlyonce_spark.decode.decoder import Decoded, Decoder


class Outcome(Enum):
    MALFORMED = "malformed"


def outcome(decoded: Decoded, count: int, malformed: object) -> list[Any]:
    """Return for each record its row, or that it is malformed, and require that each is told of once, in order."""
    found: list[Any] = [None] * count
    for place, row in zip(decoded.places.tolist(), decoded.rows.to_pylist(), strict=True):
        assert found[place] is None
        found[place] = row
    for record in decoded.malformed:
        assert found[record.place] is None
        assert record.reason
        found[record.place] = malformed
    for place in decoded.tombstones.tolist():
        assert found[place] is None
        found[place] = "tombstone"
    assert None not in found
    assert decoded.places.tolist() == sorted(decoded.places.tolist())
    return found


def shown(value: Any) -> str:
    """Values with their types, and NaN and -0.0 as themselves; Arrow and the oracle have two names for UTC."""
    return repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def both_ways(decoder: Decoder, values: Sequence[bytes | None]) -> list[Any]:
    """Return the one answer of both paths: rows, and for malformed records their reasons."""
    given = pa.array(values, pa.binary())
    at_once, each = decoder.decode(given), decoder.decode_each(given)
    assert at_once.malformed == each.malformed
    assert shown(at_once.rows.to_pylist()) == shown(each.rows.to_pylist())
    found = outcome(at_once, len(values), Outcome.MALFORMED)
    for record in at_once.malformed:
        found[record.place] = record.reason
    return found

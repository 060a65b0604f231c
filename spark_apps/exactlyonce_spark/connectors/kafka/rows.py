"""Kafka's records as the rows that the reader of Kafka yields. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exactlyonce.connectors.kafka.reading import Records
from exactlyonce.positions.ranges import Partition
from exactlyonce_spark.decode.records import MALFORMED, MALFORMED_DDL, VALUE, RecordDecoder
from exactlyonce_spark.decode.records import Records as ReadRecords
from exactlyonce_spark.decode.unread import LeftOut

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMNS: Mapping[str, tuple[str, pa.DataType]] = {
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "key": ("binary", pa.binary()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "headers": ("array<struct<key:string,value:binary>>", pa.list_(pa.field("element", _HEADER))),
}
"""The columns that there may be, with Spark's types and those of Arrow that Spark asks for; `ALWAYS` are always there.

Behind them come `value` and `malformed`, as the decoder makes them.
"""

ALWAYS = ("topic", "partition", "offset")

_FIRST_MILLISECOND, _LAST_MILLISECOND = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, which are those that Spark, SQL and ISO 8601 can write."""

_ROWS, _BYTES = 10_000, 8 * 1024 * 1024
"""The most of one Arrow batch, which a task holds several times over; a record that is larger is a batch of its own."""


def schema_text(columns: Iterable[str], value: str) -> str:
    """Return columns as the DDL of a schema; `value` is Spark's type of the decoded rows."""
    told = [f"{name} {COLUMNS[name][0]}" for name in columns]
    return ", ".join((*told, f"{VALUE} {value}", f"{MALFORMED} {MALFORMED_DDL}"))


def arrow_batches(
    records: Iterable[Records], columns: Sequence[str], decoder: RecordDecoder, left_out: LeftOut
) -> Iterator[pa.RecordBatch]:
    """Return records as rows of some of `COLUMNS`, decoded."""
    schema = pa.schema({name: COLUMNS[name][1] for name in columns})
    names = [*columns, VALUE, MALFORMED]
    for held in _bounded(records):
        messages = [message for _, run in held for message in run] if len(held) > 1 else held[0][1]
        arrays = [
            _of_partitions(held, len(messages), it)
            if it.name in _OF_PARTITION
            else pa.array(_COLUMN[it.name](messages), it.type)
            for it in schema
        ]
        read = _read(messages, _left_out(held, left_out), shows_timestamps="timestamp" in columns)
        yield pa.RecordBatch.from_arrays([*arrays, *decoder.decode(read)], names=names)


def _read(messages: Sequence[Any], left_out: npt.NDArray[np.bool_] | None, *, shows_timestamps: bool) -> ReadRecords:
    return ReadRecords(
        pa.array([message.value() for message in messages], pa.binary()),
        lambda place: messages[place].key(),
        lambda place: _microseconds(messages[place]),
        _out_of_range(messages) if shows_timestamps else {},
        left_out,
    )


def _left_out(held: list[Records], left_out: LeftOut) -> npt.NDArray[np.bool_] | None:
    found = [left_out.of_positions(partition, (it.offset() for it in run)) for partition, run in held]
    if all(it is None for it in found):
        return None
    return np.concatenate(
        [np.zeros(len(run), np.bool_) if it is None else it for it, (_, run) in zip(found, held, strict=True)]
    )


def _bounded(records: Iterable[Records]) -> Iterator[list[Records]]:
    """Gather runs of records until they are as many as an Arrow batch may have."""
    held: list[Records] = []
    rows = size = 0
    for partition, messages in records:
        for part in _parts(messages):
            added = sum(map(len, part))
            if held and size + added > _BYTES:
                yield held
                held, rows, size = [], 0, 0
            held.append((partition, part))
            rows, size = rows + len(part), size + added
            if rows >= _ROWS:
                yield held
                held, rows, size = [], 0, 0
    if held:
        yield held


def _parts(messages: list[Any]) -> Iterator[list[Any]]:
    """Yield messages in parts of which each fits into an Arrow batch."""
    sizes = list(map(len, messages))
    if sum(sizes) <= _BYTES:
        yield messages
        return
    first = size = 0
    for place, added in enumerate(sizes):
        if place > first and size + added > _BYTES:
            yield messages[first:place]
            first, size = place, 0
        size += added
    yield messages[first:]


def _of_partitions(held: list[Records], count: int, of: Any) -> Any:
    """Return topic or partition of each record, which is one value for each run."""
    value = _OF_PARTITION[of.name]
    if len({partition for partition, _ in held}) == 1:
        return pa.repeat(pa.scalar(value(held[0][0]), of.type), count)
    return pa.array([value(partition) for partition, run in held for _ in run], of.type)


def _microseconds(message: Any) -> int | None:
    kind, milliseconds = message.timestamp()
    if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE or not _FIRST_MILLISECOND <= milliseconds <= _LAST_MILLISECOND:
        return None
    return int(milliseconds) * 1000


def _out_of_range(messages: Sequence[Any]) -> dict[int, str]:
    """Return which records are malformed since their timestamp may be read, and no column holds it as it is."""
    found = {}
    for place, message in enumerate(messages):
        kind, milliseconds = message.timestamp()
        is_held = _FIRST_MILLISECOND <= milliseconds <= _LAST_MILLISECOND
        if kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE and not is_held:
            found[place] = f"its timestamp, {milliseconds} milliseconds, is outside of the years 1 to 9999"
    return found


def _headers(message: Any) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return None if not headers else [{"key": key, "value": value} for key, value in headers]


_OF_PARTITION: Mapping[str, Callable[[Partition], Any]] = {
    "topic": lambda partition: partition.origin,
    "partition": lambda partition: partition.key,
}
_COLUMN: Mapping[str, Callable[[list[Any]], list[Any]]] = {
    "offset": lambda messages: [message.offset() for message in messages],
    "key": lambda messages: [message.key() for message in messages],
    "timestamp": lambda messages: [_microseconds(message) for message in messages],
    "headers": lambda messages: [_headers(message) for message in messages],
}

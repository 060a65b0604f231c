"""A real stream from Kinesis for a test: its data stream with aggregates in it, and what is wrong with some records."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from exactlyonce.connectors.kinesis.aggregation import MAGIC
from testbed.faulty_service import Fate, Request
from testbed.kinesis import Kinesis
from testbed.postgres import Postgres
from tests.kinesis_in_memory import aggregated
from tests.rig import Rig
from tests.warm.launcher import shared_pool

SHARDS = 4


def shard(number: int) -> str:
    """Return the name of a shard."""
    return f"shardId-{number:012}"


class Letter(NamedTuple):
    """What is kept of a malformed record."""

    shard: str
    sequence_number: int
    sub_sequence_number: int
    key: str
    value: bytes
    message: str


FAULTS = (Fate.THROTTLED, Fate.REFUSED_500, Fate.CUT, Fate.SLOW, Fate.REFUSED_503, Fate.TAKEN_500)
"""What may become of any call of Kinesis, each of which only reads."""

RECORDS_FAULTS = (
    *(Fate.UNANSWERED, Fate.ITERATOR_EXPIRED, Fate.THROTTLED, Fate.ITERATOR_EXPIRED, Fate.REFUSED_500, Fate.CUT),
    *(Fate.ITERATOR_EXPIRED, Fate.SLOW, Fate.REFUSED_503),
)
"""What may become of GetRecords: an expired iterator every third time, as drivers and not only the operator are to meet it."""


@dataclass
class BadDay:
    """Calls fail or are slow, in each way in turn; one alone of each action is not answered: ten seconds.

    It is every fourth call, but every second one of GetRecords: a stream reads each record once, so these are few.

    `failed` counts how often each action has failed in which way. Once it `is_over`, every call is answered.
    """

    is_over: bool = False

    failed: Counter[tuple[str, Fate]] = field(default_factory=Counter)
    _calls: Counter[str] = field(default_factory=Counter)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def fate(self, request: Request) -> Fate:
        """Return what becomes of a call."""
        with self._guard:
            self._calls[request.action] += 1
            of_records = request.action == "GetRecords"
            turn, is_answered = divmod(self._calls[request.action], 2 if of_records else 4)
            if is_answered or self.is_over:
                return Fate.ANSWERED
            faults = RECORDS_FAULTS if of_records else FAULTS
            fault = faults[turn % len(faults)]
            if fault is Fate.UNANSWERED and self.failed[request.action, fault]:
                fault = Fate.THROTTLED
            self.failed[request.action, fault] += 1
            return fault


@dataclass
class Delivered:
    """The records that have left the service, by sequence number: how often, and how many bytes of data in all.

    `calls` are the answers of GetRecords, each as the sequence numbers in it.
    """

    times: Counter[int] = field(default_factory=Counter)
    data_bytes: Counter[int] = field(default_factory=Counter)
    calls: list[frozenset[int]] = field(default_factory=list)

    def answered(self, request: Request, status: int, body: bytes) -> None:
        """Take an answer of the service."""
        if request.action == "GetRecords" and status == 200:
            records = json.loads(body)["Records"]
            self.calls.append(frozenset(int(record["SequenceNumber"]) for record in records))
            for record in records:
                number = int(record["SequenceNumber"])
                self.times[number] += 1
                self.data_bytes[number] += len(base64.b64decode(record["Data"]))

    def clear(self) -> None:
        """Count from now on."""
        self.times.clear()
        self.data_bytes.clear()
        self.calls.clear()


class KinesisRig(Rig):
    """A stream over Kinesis; some records are aggregates of ten user records.

    `places` says of each id in which shard it is, its sequence number and its sub-sequence number, as Kinesis answered, and
    `sizes` how many bytes the record with a sequence number has.
    """

    def __init__(self, kinesis: Kinesis, server: Postgres, folder: Path, name: str, **overrides: Any) -> None:
        self.kinesis = kinesis
        self.places: dict[int, tuple[str, int, int]] = {}
        self.sizes: dict[int, int] = {}
        source = {
            "kinesis": {
                "streamName": name,
                "region": "us-east-1",
                "endpoint": kinesis.endpoint,
                "secretRef": {"name": "aws"},
                "maxRecordsPerTrigger": 400,
            },
            "format": {"schema": "id BIGINT, customer STRING"},
        }
        super().__init__(_NoKafka(), server, folder, name, {"spec.source": source, **overrides}, partitions=SHARDS)  # type: ignore[arg-type] # it is named in what the overrides replace

    def __post_init__(self) -> None:
        self.kinesis.create_stream(self.name, SHARDS)
        self.postgres.create_database(self.name)
        self.sql("create table orders (id bigint, customer text)")
        self.write_secret()
        self.write_login("aws", {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"})

    def put(self, records: int, *, aggregate_each: int = 4) -> None:
        """Put records with new ids."""
        sent, ids_of = [], []
        for number in range(records):
            first = len(self.produced)
            ids = list(range(first, first + (10 if number % aggregate_each == 0 else 1)))
            texts = [json.dumps({"id": each, "customer": f"customer {each % 7}"}) for each in ids]
            key = str(first)
            sent.append((key, aggregated(texts, key) if len(texts) > 1 else texts[0].encode()))
            ids_of.append(ids)
            self.produced += ids
        for ids, (_, data), (shard_id, sequence_number) in zip(
            ids_of, sent, self.kinesis.put(self.name, *sent), strict=True
        ):
            self.sizes[sequence_number] = len(data)
            self.places |= {each: (shard_id, sequence_number, place) for place, each in enumerate(ids)}

    def put_malformed(self) -> list[Letter]:
        """Put records that no row comes of, one of them in an aggregate whose other two do land, and return them."""
        good = aggregated(["damaged", "with another"])
        first = len(self.produced)
        texts = [json.dumps({"id": first}), "no JSON", json.dumps({"id": first + 1})]
        self.produced += [first, first + 1]
        malformed = [
            (b'{"id": "seven"}', "column id: seven is not a whole number"),
            (
                good[:-1] + b"?",
                "a KPL aggregate is malformed: its MD5 is not that of its content, so it was changed or cut",
            ),
            (MAGIC + b"cut", "a KPL aggregate is malformed: it is cut: 7 bytes are too few to end with an MD5"),
            (_with_index(good, 5), "a KPL aggregate is malformed: user record 0 names partition key 5 of 1"),
        ]
        sent = [(f"key {number}", data) for number, (data, _) in enumerate(malformed)]
        *put, inside = self.kinesis.put(self.name, *sent, ("key 4", aggregated(texts)))
        letters = [
            Letter(*place, 0, key, data, why) for place, (key, data), (_, why) in zip(put, sent, malformed, strict=True)
        ]
        return [
            *letters,
            Letter(*inside, 1, "k", b"no JSON", "the record is not JSON: expected a value at character 0, found 'n'"),
        ]

    def told_by_drivers(self) -> str:
        """Return what the stream's drivers have logged, and the JVMs that were lent to them."""
        logs = [*(self.folder / "state").glob("**/attempts/*/log"), shared_pool().log]
        return "\n".join(log.read_text(errors="replace") for log in logs if log.exists())

    def letters(self) -> list[Letter]:
        """Return the dead letters; the number of each is in its position as well."""
        rows = self.sql(
            "select partition_name, div(position, 4294967296), mod(position, 4294967296), convert_from(key, 'UTF8'), value, "
            "error, place from exactlyonce.dead_letters where topic = %s || '/' || partition_name",
            self.name,
        )
        found = []
        for shard_id, sequence_number, sub_sequence_number, key, value, why, place in rows:
            letter = Letter(shard_id, int(sequence_number), int(sub_sequence_number), key, bytes(value), why)
            assert place == {
                "stream": self.name,
                "shard": letter.shard,
                "sequenceNumber": str(letter.sequence_number),
                "subSequenceNumber": letter.sub_sequence_number,
            }
            found.append(letter)
        return found


def _with_index(aggregate: bytes, index: int) -> bytes:
    """Let each user record of an aggregate name another partition key; its MD5 is right."""
    message = aggregate[len(MAGIC) : -16].replace(b"\x08\x00", bytes([8, index]))
    return MAGIC + message + hashlib.md5(message).digest()


class _NoKafka:
    bootstrap_servers = ""

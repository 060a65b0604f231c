"""A server that is not Kinesis, over HTTP: its answers are told as such, and take no more memory or time than Kinesis' do."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from exactlyonce.aws import clients
from exactlyonce.aws.clients import AnswerLimits, make_client
from exactlyonce.connectors.kinesis.answers import NotKinesis
from exactlyonce.connectors.kinesis.client import UNKNOWN_MILLISECONDS, KinesisAddress, KinesisClient, Page
from exactlyonce.connectors.kinesis.clients import kinesis_client
from exactlyonce.errors import SourceUnreachable
from exactlyonce.schema.aws_login import AwsLogin
from tests.kinesis_api import SHARD, STREAM, ManualTime

RECORD: dict[str, Any] = {
    "SequenceNumber": "7",
    "PartitionKey": "key",
    "Data": base64.b64encode(b"data").decode(),
    "ApproximateArrivalTimestamp": 1.7e9,
}
PAGE: dict[str, Any] = {"Records": [RECORD], "NextShardIterator": "next", "MillisBehindLatest": 0}
LISTED: dict[str, Any] = {
    "ShardId": SHARD,
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
SUMMARY: dict[str, Any] = {
    "StreamName": STREAM,
    "StreamARN": f"arn:aws:kinesis:eu-west-1:1:stream/{STREAM}",
    "StreamStatus": "ACTIVE",
    "StreamCreationTimestamp": 1.7e9,
    "RetentionPeriodHours": 24,
}


@dataclass
class Server:
    """Answers every call with the same bytes."""

    endpoint: str
    status: int = 200
    content: bytes = b""
    length: int | None = None
    asked: int = 0
    accepted: list[Any] = field(default_factory=list)

    @property
    def address(self) -> KinesisAddress:
        return KinesisAddress("eu-west-1", self.endpoint, AwsLogin("id", "a-secret-key"))

    @property
    def client(self) -> KinesisClient:
        return KinesisClient(self.address, kinesis_client(self.address)._aws.api, ManualTime().clock())

    def bounded(self, most_bytes: int) -> KinesisClient:
        limits = AnswerLimits(5.0, 10.0, 10.0, most_bytes)
        client = make_client("kinesis", limits, self.address.login, region="eu-west-1", endpoint=self.endpoint)
        return KinesisClient(self.address, lambda: client, ManualTime().clock())

    def answer(self, told: Any, status: int = 200) -> None:
        self.status, self.length = status, None
        self.content = told if isinstance(told, bytes) else json.dumps(told).encode()


@pytest.fixture(scope="module")
def listening() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known.asked += 1
            # Taken at once: who is told that an answer is empty starts the next test before it is written.
            status, content, length = known.status, known.content, known.length
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) if length is None else length))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = length is not None

        def log_message(self, *told: Any) -> None:
            pass

        def setup(self) -> None:
            super().setup()
            known.accepted.append(self.client_address)

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving.daemon_threads = True
    known = Server(f"http://127.0.0.1:{serving.server_port}")
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield known
    serving.shutdown()
    thread.join()
    serving.server_close()


@pytest.fixture
def server(listening: Server) -> Server:
    listening.asked = 0
    listening.accepted.clear()
    return listening


def describe(client: KinesisClient) -> object:
    return client.describe(STREAM)


def shards(client: KinesisClient) -> object:
    return client.shards(STREAM)


def iterator(client: KinesisClient) -> object:
    return client.iterator(STREAM, SHARD, ShardIteratorType="TRIM_HORIZON")


def records(client: KinesisClient) -> Page:
    return client.records(STREAM, SHARD, "iterator")


CALLS = (describe, shards, iterator, records)
Call = Callable[[KinesisClient], object]


def without(told: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != name}


def page(**changed: Any) -> dict[str, Any]:
    return {**PAGE, "Records": [{**RECORD, **changed}]}


def test_answers_of_kinesis_are_read_and_their_connection_is_used_again(server: Server) -> None:
    client = server.client
    server.answer({"StreamDescriptionSummary": SUMMARY})
    assert client.describe(STREAM).arn == SUMMARY["StreamARN"]
    server.answer({"Shards": [LISTED]})
    assert [shard.id for shard in client.shards(STREAM)] == [SHARD]
    server.answer({"ShardIterator": "it"})
    assert iterator(client) == "it"
    server.answer(PAGE)
    (record,) = client.records(STREAM, SHARD, "it").records
    assert (record.sequence_number, record.data, record.arrival_milliseconds) == (7, b"data", 1_700_000_000_000)
    assert len(server.accepted) <= 1


def test_records_taken_from_the_wire_are_those_that_the_aws_library_parses(server: Server) -> None:
    moments = (1.7e9, 1_700_000_000, 1_700_000_000.123, 1_699_999_999.9996, 0, -86_400.5)
    sent = [
        {
            **RECORD,
            "SequenceNumber": str(7 + place),
            "ApproximateArrivalTimestamp": moment,
            "PartitionKey": f"schlüssel {place}",
        }
        | {"Data": base64.b64encode(bytes(range(place, 256))).decode()}
        for place, moment in enumerate(moments)
    ]
    server.answer({**PAGE, "Records": sent, "ChildShards": [{"ShardId": "child"}], "MillisBehindLatest": 9})
    from_wire, by_library = records(server.client), records(server.bounded(1 << 20))
    assert from_wire == by_library
    assert [record.data for record in from_wire.records] == [bytes(range(place, 256)) for place in range(len(moments))]


def test_a_page_that_does_not_say_how_far_behind_it_is_is_never_taken_for_the_newest(server: Server) -> None:
    server.answer(without(PAGE, "MillisBehindLatest"))
    assert records(server.client).milliseconds_behind == UNKNOWN_MILLISECONDS


def test_the_children_of_a_shard_that_ended_are_named(server: Server) -> None:
    server.answer({**without(PAGE, "NextShardIterator"), "ChildShards": [{"ShardId": "first"}, {"ShardId": "second"}]})
    assert records(server.client).children == ("first", "second")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "content", [b"<html>Hello</html>", b"[]", b"[[1]]", b"{}", b"null", b'"x"', b"\xff\xfe", b"7", b"", b"[" * 100_000]
)
def test_an_answer_of_another_kind_of_server_is_told_as_such(server: Server, call: Call, content: bytes) -> None:
    server.answer(content)
    with pytest.raises(NotKinesis, match="is not Kinesis") as told:
        call(server.client)
    assert server.endpoint in str(told.value)
    assert STREAM in str(told.value)
    assert "correct source.kinesis.endpoint" in str(told.value)
    assert len(str(told.value)) < 600
    assert server.asked == 1


@pytest.mark.parametrize(
    ("status", "content"), [(404, b"<html>No such page</html>"), (400, b"[]"), (400, b'{"__type": 7}'), (418, b"{}")]
)
def test_a_refusal_of_another_kind_of_server_is_told_as_such(server: Server, status: int, content: bytes) -> None:
    server.answer(content, status)
    with pytest.raises(NotKinesis, match="is not Kinesis"):
        describe(server.client)


def test_a_server_that_is_down_for_a_while_is_not_told_to_be_another_one(server: Server) -> None:
    server.answer(b"<html>Bad gateway</html>", 502)
    with pytest.raises(SourceUnreachable, match="502"):
        describe(server.client)
    assert server.asked > 3


@pytest.mark.parametrize("name", RECORD)
def test_a_record_that_lacks_a_field_is_told_by_the_fields_name(server: Server, name: str) -> None:
    server.answer({**PAGE, "Records": [without(RECORD, name)]})
    with pytest.raises(NotKinesis, match=f"has no {name}"):
        records(server.client)


@pytest.mark.parametrize(
    "told",
    [
        without(PAGE, "Records"),
        {**PAGE, "ChildShards": [{}]},
        {**PAGE, "ChildShards": [{"ShardId": "a shard"}]},
        {**PAGE, "MillisBehindLatest": -1},
        {**PAGE, "MillisBehindLatest": "now"},
        {**PAGE, "Records": {"a": 1}},
        {**PAGE, "Records": [7]},
        {**PAGE, "NextShardIterator": 7},
        {**PAGE, "Records": [RECORD, RECORD]},
        {**PAGE, "Records": [{**RECORD, "SequenceNumber": "8"}, RECORD]},
        page(SequenceNumber="x"),
        page(SequenceNumber="-1"),
        page(SequenceNumber="07"),
        page(SequenceNumber=7),
        page(SequenceNumber="9" * 5000),
        page(SequenceNumber=str(1 << 256)),
        page(PartitionKey=7),
        page(PartitionKey="half of a pair: \ud800"),
        page(Data="not base64!"),
        page(Data=7),
        page(ApproximateArrivalTimestamp="yesterday, or so"),
        page(ApproximateArrivalTimestamp=1e300),
        page(ApproximateArrivalTimestamp={}),
        page(ApproximateArrivalTimestamp=True),
        page(ApproximateArrivalTimestamp=-1e300),
    ],
)  # fmt: skip
def test_records_of_another_shape_are_not_read(server: Server, told: Any) -> None:
    server.answer(told)
    with pytest.raises(NotKinesis, match="is not Kinesis"):
        records(server.client)


@pytest.mark.parametrize(
    "told",
    [
        {**LISTED, "ShardId": "a shard\nwith lines"},
        {**LISTED, "ShardId": "s" * 1000},
        {**LISTED, "ParentShardId": 7},
        without(LISTED, "HashKeyRange"),
        {**LISTED, "HashKeyRange": {"StartingHashKey": "9", "EndingHashKey": "0"}},
        {**LISTED, "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(1 << 128)}},
        {**LISTED, "SequenceNumberRange": {}},
        {**LISTED, "SequenceNumberRange": {"StartingSequenceNumber": "1", "EndingSequenceNumber": "x"}},
    ],
)
def test_shards_of_another_shape_are_not_read(server: Server, told: Any) -> None:
    server.answer({"Shards": [told]})
    with pytest.raises(NotKinesis, match="is not Kinesis"):
        shards(server.client)


@pytest.mark.parametrize(
    "changed",
    [
        *({name: None} for name in SUMMARY),
        {"RetentionPeriodHours": 10**30},
        {"RetentionPeriodHours": 0},
        {"RetentionPeriodHours": "24"},
        {"StreamCreationTimestamp": 1e300},
        {"StreamName": "x" * 1000},
    ],
)
def test_a_description_of_another_shape_is_not_read(server: Server, changed: dict[str, Any]) -> None:
    server.answer({"StreamDescriptionSummary": {**SUMMARY, **changed}})
    with pytest.raises(NotKinesis, match="is not Kinesis"):
        describe(server.client)


def test_an_answer_that_is_cut_off_is_asked_for_again_and_not_told_to_be_of_another_server(server: Server) -> None:
    server.answer(PAGE)
    server.length = len(server.content) + 1
    with pytest.raises(SourceUnreachable):
        records(server.client)
    assert server.asked > 3


def test_an_answer_is_read_no_further_than_any_of_kinesis_is_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer({**PAGE, "Padding": "x" * 100_000})
    bounded = server.bounded(50_000)
    with pytest.raises(NotKinesis, match="more than 50000 bytes"):
        records(bounded)
    monkeypatch.setattr(clients, "MOST_VALUES", 1000)
    server.answer({**PAGE, "Padding": [[]] * 1000})
    with pytest.raises(NotKinesis, match="more than 1000 values"):
        records(server.client)

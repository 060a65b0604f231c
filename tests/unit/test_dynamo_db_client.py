"""Requests to DynamoDB: what is sent again and for how long, and what is told of an answer, DynamoDB's or another server's."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError

from exactlyonce.connectors.dynamo_db.store import TableStore
from exactlyonce.connectors.dynamo_db.table import TableUnfit, require_table
from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.dynamo_db.answers import ConditionFailed, LoginRefused, TableMissing
from exactlyonce.dynamo_db.client import Clock, DynamoDbAddress, DynamoDbClient, dynamo_db_client
from exactlyonce.errors import StoreForbidden, StoreUnreachable
from exactlyonce.schema.aws_login import AwsLogin
from exactlyonce.schema.places import TablePlace
from tests.other_server import answering

DYNAMO_DB = (("x-amzn-RequestId", "1"),)
"""The header by which an answer is told to be DynamoDB's."""


class Api:
    """Answers with these problems in turn, the last one for ever; None is an answer."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def put_item(self, **arguments: Any) -> dict[str, Any]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        return {"ResponseMetadata": {"RequestId": "1"}}


def refusal(code: str, message: str = "", status: int = 400, *reasons: str) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    if reasons:
        answer["CancellationReasons"] = [{"Code": reason} for reason in reasons]
    return ClientError(answer, "PutItem")


def client_with(api: Api, login: AwsLogin | None = None) -> DynamoDbClient:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return DynamoDbClient(
        DynamoDbAddress("eu-central-1", login=login), lambda: api, Clock(elapsed_seconds=lambda: now[0], sleep=sleep)
    )


TIMEOUT = ReadTimeoutError(endpoint_url="http://secret-host/?everything")
PASSING = [
    refusal("ProvisionedThroughputExceededException"),
    refusal("RequestLimitExceeded"),
    refusal("ThrottlingException"),
    refusal("TransactionConflictException"),
    refusal("TransactionCanceledException", "", 400, "None", "TransactionConflict"),
    refusal("InternalServerError", status=500),
    refusal("ServiceUnavailable", status=503),
    refusal("502", status=502),
    TIMEOUT,
]


@pytest.mark.parametrize("problem", PASSING, ids=str)
def test_what_may_pass_is_sent_again_until_it_is_answered_or_time_is_up(problem: Exception) -> None:
    api = Api(problem, problem, problem, None)
    client = client_with(api)
    client.call("PutItem", "ledgers")
    assert api.asked == 4
    api = Api(problem)
    client = client_with(api)
    with pytest.raises(StoreUnreachable) as told:
        client.call("PutItem", "ledgers")
    assert 9 <= api.asked <= 61
    assert client.clock.elapsed_seconds() <= 15
    assert "secret-host" not in str(told.value)


@pytest.mark.parametrize(("problem", "times"), [(PASSING[0], 2), (PASSING[4], 2), (PASSING[5], 1), (TIMEOUT, 1)])
def test_what_may_not_arrive_twice_is_sent_again_only_where_it_had_no_effect(problem: Exception, times: int) -> None:
    api = Api(problem, None)
    try:
        client_with(api).call("PutItem", "ledgers", is_idempotent=False)
    except StoreUnreachable:
        assert times == 1
    assert api.asked == times


@pytest.mark.parametrize(
    ("problem", "failed"),
    [
        (refusal("ConditionalCheckFailedException"), (0,)),
        (refusal("TransactionCanceledException", "", 400, "None", "ConditionalCheckFailed"), (1,)),
        (refusal("TransactionCanceledException", "", 400, "ConditionalCheckFailed", "TransactionConflict"), (0,)),
    ],
)
def test_a_condition_that_does_not_hold_is_told_at_once_and_by_its_place(
    problem: Exception, failed: tuple[int]
) -> None:
    api = Api(problem)
    with pytest.raises(ConditionFailed) as told:
        client_with(api).call("PutItem", "ledgers")
    assert (told.value.failed, api.asked) == (failed, 1)


@pytest.mark.parametrize(
    ("problem", "kind", "sentence"),
    [
        (
            refusal("AccessDeniedException", "User: x is not authorized to perform: dynamodb:ConditionCheckItem on y"),
            StoreForbidden,
            "the login may not call dynamodb:ConditionCheckItem on table ledgers of DynamoDB in eu-central-1; grant",
        ),
        (
            refusal("AccessDeniedException", "User: x is not authorized to perform: dynamodb:<script>"),
            StoreForbidden,
            "the login may not call dynamodb:PutItem on table ledgers",
        ),
        (refusal("UnrecognizedClientException"), LoginRefused, "does not accept the login for table ledgers"),
        (NoCredentialsError(), LoginRefused, "there is no login for table ledgers"),
        (refusal("ResourceNotFoundException"), TableMissing, "there is no table ledgers in DynamoDB in eu-central-1"),
        (
            refusal("ValidationException", "odd"),
            StoreUnreachable,
            r"answered ValidationException to dynamodb:PutItem .*\(odd\)",
        ),
        (refusal("404", "<html>canary"), StoreUnreachable, "is not DynamoDB; correct spec.ledger.dynamoDb.endpoint"),
    ],
)
def test_what_does_not_pass_is_told_at_once_in_one_sentence(
    problem: Exception, kind: type[Exception], sentence: str
) -> None:
    api = Api(problem)
    with pytest.raises(kind, match=sentence) as told:
        client_with(api).call("PutItem", "ledgers")
    assert api.asked == 1
    assert type(told.value) is kind
    assert "canary" not in str(told.value)


def test_of_what_a_server_says_little_is_shown() -> None:
    with pytest.raises(StoreUnreachable) as told:
        client_with(Api(refusal("ValidationException", "a\n" * 100_000))).call("PutItem", "ledgers")
    assert len(str(told.value)) < 400
    assert "\n" not in str(told.value)


def test_a_login_of_the_process_is_looked_for_again_after_it_was_refused_and_one_of_a_secret_is_not() -> None:
    for login, times in ((None, 2), (AwsLogin("me", "hidden"), 1)):
        made: list[Api] = []

        def connect(made: list[Api] = made) -> Api:
            made.append(Api(refusal("ExpiredTokenException")))
            return made[-1]

        client = DynamoDbClient(DynamoDbAddress("eu-central-1", login=login), connect)
        for _ in range(2):
            with pytest.raises(LoginRefused):
                client.call("PutItem", "ledgers")
        assert len(made) == times


def test_an_answer_that_is_larger_than_any_of_dynamodbs_is_not_read() -> None:
    """Whoever names an endpoint could otherwise end the operator of everybody."""
    sent = 0

    class Endless(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal sent
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("x-amzn-RequestId", "1")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while sent < 1 << 30:
                    sent += self.wfile.write(b" " * (1 << 20))

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(StoreUnreachable, match="is not DynamoDB"):
            store_at(f"http://127.0.0.1:{server.server_port}").read("log.json")
        server.shutdown()
    assert sent < 1 << 30


def store_at(endpoint: str) -> TableStore:
    address = DynamoDbAddress("eu-central-1", endpoint, AwsLogin("of-a-tenant", "of-a-tenant"))
    return TableStore(dynamo_db_client(address), TablePlace("eu-central-1", "ledgers", "shop/orders", endpoint))


@pytest.mark.parametrize("status", [200, 404, 500])
def test_what_another_server_answers_is_shown_to_nobody(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactlyonce.dynamo_db.client._CALL_SECONDS", 0.0)
    with answering(b"<html>internal-canary", status) as endpoint, pytest.raises(StoreUnreachable) as told:
        store_at(endpoint).read("log.json")
    assert "canary" not in str(told.value)


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, b'["canary"]'),
        (200, b"\xff"),
        (200, b"[" * 9000),
        (200, b'{"Item": 5}'),
        (200, b'{"Item": {"name": {"S": "log.json"}, "content": {"B": "canary1"}}}'),
        (400, b'["canary"]'),
        (400, b'{"__type": 5}'),
        (400, b'{"__type": "x#TransactionCanceledException", "CancellationReasons": 5}'),
    ],
)
def test_json_of_another_shape_than_an_answer_of_dynamodbs_is_told_to_be_another_servers(
    status: int, content: bytes
) -> None:
    with (
        answering(content, status, DYNAMO_DB) as endpoint,
        pytest.raises(StoreUnreachable, match=r"is not DynamoDB; correct spec\.ledger\.dynamoDb\.endpoint") as told,
    ):
        store_at(endpoint).read("log.json")
    assert "canary" not in str(told.value)


@pytest.mark.parametrize(
    "item",
    [
        b'{"content": {"B": "AA=="}}',
        b'{"name": {"S": 5}}',
        b'{"name": {"S": "log/1"}, "upload": {"S": 5}}',
        b'{"name": {"S": "log/1"}, "size": {"N": 1e999}}',
    ],
)
def test_an_item_of_other_types_than_are_written_is_told_to_be_damaged(item: bytes) -> None:
    told = "An item at dynamodb://eu-central-1/ledgers/shop/orders is not what"
    with answering(b'{"Item": %s}' % item, headers=DYNAMO_DB) as endpoint, pytest.raises(LogDamaged, match=told):
        store_at(endpoint).read("log/1")
    with answering(b'{"Items": [%s]}' % item, headers=DYNAMO_DB) as endpoint, pytest.raises(LogDamaged, match=told):
        store_at(endpoint).list("log")


def test_a_description_without_the_keys_of_a_ledger_is_of_no_table_that_fits() -> None:
    for keys in (b"[null]", b'[{"AttributeName": 5}]', b"[]"):
        told = b'"TableStatus": "ACTIVE", "AttributeDefinitions": [null], "KeySchema": ' + keys
        content = b'{"Table": {' + told + b"}}"
        with answering(content, headers=DYNAMO_DB) as endpoint:
            store = store_at(endpoint)
            with pytest.raises(TableUnfit, match="a ledger needs the partition key log and the sort key name"):
                require_table(store._items.client, store._items.place)

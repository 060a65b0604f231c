"""Requests to DynamoDB: what is sent again and for how long, and what is told of an answer, DynamoDB's or another server's."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError

from exactlyonce.aws.calls import Clock, Patience
from exactlyonce.connectors.kinesis.dynamo_db import (
    ConditionFailed,
    DynamoDbAddress,
    DynamoDbClient,
    LoginRefused,
    TableMissing,
    dynamo_db_client,
)
from exactlyonce.connectors.kinesis.lease_form import TableUnfit
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.errors import StoreForbidden, StoreUnreachable
from exactlyonce.schema.aws_login import AwsLogin
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


def refusal(code: str, message: str = "", status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
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
    refusal("InternalServerError", status=500),
    refusal("ServiceUnavailable", status=503),
    refusal("502", status=502),
    TIMEOUT,
]


@pytest.mark.parametrize("problem", PASSING, ids=str)
def test_what_may_pass_is_sent_again_until_it_is_answered_or_time_is_up(problem: Exception) -> None:
    api = Api(problem, problem, problem, None)
    client = client_with(api)
    client.call("PutItem", "leases")
    assert api.asked == 4
    api = Api(problem)
    client = client_with(api)
    with pytest.raises(StoreUnreachable) as told:
        client.call("PutItem", "leases")
    assert 9 <= api.asked <= 61
    assert client.clock.elapsed_seconds() <= 15
    assert "secret-host" not in str(told.value)


def test_a_condition_that_does_not_hold_is_told_at_once() -> None:
    api = Api(refusal("ConditionalCheckFailedException"))
    with pytest.raises(ConditionFailed):
        client_with(api).call("PutItem", "leases")
    assert api.asked == 1


@pytest.mark.parametrize(
    ("problem", "kind", "sentence"),
    [
        (
            refusal("AccessDeniedException", "User: x is not authorized to perform: dynamodb:UpdateItem on y"),
            StoreForbidden,
            "the login may not call dynamodb:UpdateItem on table leases of DynamoDB in eu-central-1; grant",
        ),
        (
            refusal("AccessDeniedException", "User: x is not authorized to perform: dynamodb:<script>"),
            StoreForbidden,
            "the login may not call dynamodb:PutItem on table leases",
        ),
        (refusal("UnrecognizedClientException"), LoginRefused, "does not accept the login for table leases"),
        (NoCredentialsError(), LoginRefused, "there is no login for table leases"),
        (refusal("ResourceNotFoundException"), TableMissing, "there is no table leases in DynamoDB in eu-central-1"),
        (
            refusal("ValidationException", "odd"),
            StoreUnreachable,
            r"answered ValidationException to dynamodb:PutItem .*\(odd\)",
        ),
        (
            refusal("404", "<html>canary"),
            StoreUnreachable,
            "is not DynamoDB; correct spec.source.kinesis.leaseTable.endpoint",
        ),
    ],
)
def test_what_does_not_pass_is_told_at_once_in_one_sentence(
    problem: Exception, kind: type[Exception], sentence: str
) -> None:
    api = Api(problem)
    with pytest.raises(kind, match=sentence) as told:
        client_with(api, AwsLogin("me", "hidden")).call("PutItem", "leases")
    assert api.asked == 1
    assert type(told.value) is kind
    assert "canary" not in str(told.value)


def test_of_what_a_server_says_little_is_shown() -> None:
    with pytest.raises(StoreUnreachable) as told:
        client_with(Api(refusal("ValidationException", "a\n" * 100_000))).call("PutItem", "leases")
    assert len(str(told.value)) < 400
    assert "\n" not in str(told.value)


def test_a_login_of_the_process_is_looked_for_again_in_each_call_that_refuses_it_and_one_of_a_secret_is_not() -> None:
    for login, times in ((None, 4), (AwsLogin("me", "hidden"), 1)):
        made: list[Api] = []

        def connect(made: list[Api] = made) -> Api:
            made.append(Api(refusal("ExpiredTokenException")))
            return made[-1]

        client = DynamoDbClient(DynamoDbAddress("eu-central-1", login=login), connect)
        for _ in range(2):
            with pytest.raises(LoginRefused):
                client.call("PutItem", "leases")
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
            table_at(f"http://127.0.0.1:{server.server_port}").leases()
        server.shutdown()
    assert sent < 1 << 30


def table_at(endpoint: str) -> LeaseTable:
    address = DynamoDbAddress("eu-central-1", endpoint, AwsLogin("of-a-tenant", "of-a-tenant"))
    return LeaseTable(dynamo_db_client(address), "leases")


@pytest.mark.parametrize("status", [200, 404, 500])
def test_what_another_server_answers_is_shown_to_nobody(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactlyonce.connectors.kinesis.dynamo_db.PATIENCE", Patience(0.0))
    with answering(b"<html>internal-canary", status) as endpoint, pytest.raises(StoreUnreachable) as told:
        table_at(endpoint).leases()
    assert "canary" not in str(told.value)


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, b'["canary"]'),
        (200, b"\xff"),
        (200, b"[" * 9000),
        (200, b'{"Items": 5}'),
        (200, b'{"Items": [{"leaseKey": {"B": "canary1"}}]}'),
        (400, b'["canary"]'),
        (400, b'{"__type": 5}'),
    ],
)
def test_json_of_another_shape_than_an_answer_of_dynamodbs_is_told_to_be_another_servers(
    status: int, content: bytes
) -> None:
    with (
        answering(content, status, DYNAMO_DB) as endpoint,
        pytest.raises(
            StoreUnreachable, match=r"is not DynamoDB; correct spec\.source\.kinesis\.leaseTable\.endpoint"
        ) as told,
    ):
        table_at(endpoint).leases()
    assert "canary" not in str(told.value)


def test_a_description_without_the_keys_of_a_lease_table_is_of_no_table_that_fits() -> None:
    for keys in (b"[null]", b'[{"AttributeName": 5}]', b"[]"):
        told = b'"TableStatus": "ACTIVE", "AttributeDefinitions": [null], "KeySchema": ' + keys
        content = b'{"Table": {' + told + b"}}"
        needed = "a lease table needs the partition key leaseKey of type S"
        with answering(content, headers=DYNAMO_DB) as endpoint, pytest.raises(TableUnfit, match=needed):
            table_at(endpoint).require()

"""Calls of Kinesis: errors by situation in one sentence, tried again within bounds, not too often, and no login in any text."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from exactlyonce.connectors.kinesis.answers import LoginRefused, SequenceNumberRefused, ShardMissing, Throttled
from exactlyonce.connectors.kinesis.client import KinesisAddress, KinesisClient, kinesis_client
from exactlyonce.connectors.kinesis.pace import CALLS_PER_SECOND
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceRefused, SourceUnreachable
from tests.kinesis_api import SHARD, STREAM, KinesisApi, ManualTime, StoredShard, client_of, refusal

PLACE = "Kinesis in eu-west-1"


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


@pytest.fixture
def client(api: KinesisApi) -> KinesisClient:
    return client_of(api, api.time)


def test_no_text_shows_a_login() -> None:
    address = KinesisAddress("eu-west-1", "http://localhost:1", "an-access-key", "a-secret-key", "a-token")
    text = f"{address!r} {address} {address.place} {kinesis_client(address)!r}"
    assert not [secret for secret in ("an-access-key", "a-secret-key", "a-token") if secret in text]


def test_a_process_has_one_client_for_each_address() -> None:
    assert kinesis_client(KinesisAddress("eu-west-1")) is kinesis_client(KinesisAddress("eu-west-1"))
    assert kinesis_client(KinesisAddress("eu-west-1")) is not kinesis_client(KinesisAddress("eu-west-2"))


def test_a_stream_is_described_and_its_shards_are_listed_over_all_pages(api: KinesisApi, client: KinesisClient) -> None:
    api.shards = {f"shard-{n}": StoredShard() for n in range(5)}
    api.shards["child"] = StoredShard(("shard-0", "shard-1"))
    api.shards["shard-0"].is_closed = True
    api.shards_a_page = 2
    shards = client.shards(STREAM)
    assert [shard.id for shard in shards] == list(api.shards)
    assert [shard.is_open for shard in shards] == [False, True, True, True, True, True]
    assert shards[-1].parents == ("shard-0", "shard-1")
    description = client.describe(STREAM)
    assert (description.name, description.created, description.status) == (STREAM, api.created, "ACTIVE")
    assert description.retention.total_seconds() == 24 * 3600


def test_a_list_whose_token_has_expired_is_asked_for_from_its_start(api: KinesisApi, client: KinesisClient) -> None:
    api.shards = {f"shard-{n}": StoredShard() for n in range(4)}
    api.shards_a_page = 2
    list_shards, failures = api.list_shards, [1, 1]

    def once_too_old(**arguments: Any) -> dict[str, Any]:
        if "NextToken" in arguments and failures:
            failures.pop()
            raise refusal("ExpiredNextTokenException", "ListShards")
        return list_shards(**arguments)

    api.list_shards = once_too_old  # type: ignore[method-assign]
    assert [shard.id for shard in client.shards(STREAM)] == list(api.shards)
    failures += [1, 1, 1]
    with pytest.raises(SourceUnreachable):
        client.shards(STREAM)


@pytest.mark.parametrize(
    "code",
    ["ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "InternalFailure"],
)
def test_a_call_that_is_refused_for_the_moment_is_made_again_and_counted(
    code: str, api: KinesisApi, client: KinesisClient
) -> None:
    api.refusals = [refusal(code, "DescribeStreamSummary")] * 3
    assert client.describe(STREAM).name == STREAM
    assert client.retried == {code: 3}
    assert len(set(api.time.waited)) == 3, "pauses are drawn by chance"


def test_pauses_grow_and_end(api: KinesisApi, client: KinesisClient) -> None:
    api.refusals = [refusal("ProvisionedThroughputExceededException", "GetRecords")] * 1000
    with pytest.raises(Throttled) as told:
        client.describe(STREAM)
    assert 10 < api.time.seconds <= 30
    assert api.time.waited[0] < 0.3
    assert "ProvisionedThroughputExceededException" in str(told.value)
    assert f"stream {STREAM}" in str(told.value)


def refused(error: Exception, client: KinesisClient, api: KinesisApi) -> ExactlyOnceError:
    api.refusals = [error] * 1000
    with pytest.raises(ExactlyOnceError) as told:
        client.records(STREAM, SHARD, f"{SHARD}:0:0")
    return told.value


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (refusal("AccessDeniedException", "GetRecords", "User x"), SourceRefused, "may not call kinesis:GetRecords on"),
        (refusal("KMSAccessDeniedException", "GetRecords", "no"), SourceRefused, "grant the login kms:Decrypt"),
        (
            refusal("AccessDeniedException", "GetRecords", "to perform: kms:Decrypt"),
            SourceRefused,
            "grant the login kms:",
        ),
        (
            refusal("KMSDisabledException", "GetRecords", "off"),
            SourceRefused,
            "encrypted with a key that may not be used",
        ),
        (refusal("UnrecognizedClientException", "GetRecords"), LoginRefused, "does not accept the login"),
        (refusal("InvalidSignatureException", "GetRecords", "scoped to region"), LoginRefused, "source.kinesis.region"),
        (refusal("ExpiredToken", "AssumeRoleWithWebIdentity", "old"), LoginRefused, "web identity is not accepted"),
        (refusal("InvalidArgumentException", "GetRecords", "odd"), SourceRefused, "InvalidArgumentException (odd)"),
        (refusal("ResourceInUseException", "GetRecords"), SourceUnreachable, "is being created or deleted"),
        (refusal("Unheard", "GetRecords", status=503), SourceUnreachable, "answered Unheard"),
        (NoCredentialsError(), LoginRefused, "There is no login"),
        (EndpointConnectionError(endpoint_url="http://u:p@h"), SourceUnreachable, "there is no connection"),
        (ReadTimeoutError(endpoint_url="http://u:p@h"), SourceUnreachable, "there is no answer in time"),
        (ResponseParserError("<html>"), SourceUnreachable, "what answers is not Kinesis"),
        (ParamValidationError(report="x"), SourceRefused, "cannot be the name or ARN"),
    ],
)
def test_each_situation_has_its_error_which_names_stream_and_place(
    error: Exception, kind: type[ExactlyOnceError], said: str, client: KinesisClient, api: KinesisApi
) -> None:
    told = refused(error, client, api)
    assert type(told) is kind
    assert said in str(told)
    assert STREAM in str(told)
    assert "u:p@h" not in str(told)
    if kind is not LoginRefused or "web identity" not in str(told):
        assert PLACE in str(told)


def test_a_missing_stream_is_named_with_region_and_endpoint(api: KinesisApi) -> None:
    api.is_missing = True
    client = client_of(api, api.time, address=KinesisAddress("eu-west-1", "http://localhost:4567"))
    for ask in (
        client.describe,
        client.shards,
        lambda stream: client.iterator(stream, SHARD, ShardIteratorType="LATEST"),
    ):
        with pytest.raises(OriginMissing) as told:
            ask(STREAM)
        assert type(told.value) is OriginMissing
        assert f"no stream {STREAM} in {PLACE} at http://localhost:4567" in str(told.value)


def test_a_missing_shard_of_a_stream_that_exists_is_another_situation(api: KinesisApi, client: KinesisClient) -> None:
    with pytest.raises(ShardMissing, match="lists shard shard-x of stream orders no more"):
        client.iterator(STREAM, "shard-x", ShardIteratorType="TRIM_HORIZON")


def test_a_sequence_number_of_another_stream_is_another_situation(api: KinesisApi, client: KinesisClient) -> None:
    said = "StartingSequenceNumber 17 used in GetShardIterator on shard x is invalid"
    api.refusals = [refusal("InvalidArgumentException", "GetShardIterator", said)]
    with pytest.raises(SequenceNumberRefused, match=f"is not of shard {SHARD} of stream {STREAM}"):
        client.iterator(STREAM, SHARD, ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber="17")


def test_get_records_is_called_five_times_in_any_second_for_a_shard_at_most(
    api: KinesisApi, client: KinesisClient
) -> None:
    api.shards["other"] = StoredShard()
    api.refusals = [refusal("InternalFailure", "GetRecords")] * 7
    for _ in range(23):
        client.records(STREAM, SHARD, f"{SHARD}:0:{api.time.seconds}")
    at = [seconds for method, seconds in api.call_seconds if method == "get_records"]
    assert len(at) == 30
    assert all(later >= at[place] + 1.0 for place, later in enumerate(at[CALLS_PER_SECOND:]))
    waited = len(api.time.waited)
    client.records(STREAM, "other", f"other:0:{api.time.seconds}")
    assert len(api.time.waited) == waited, "another shard has a limit of its own"


@pytest.mark.parametrize(("access_key", "expected"), [(None, 2), ("given", 1)])
def test_the_login_of_the_process_is_looked_for_again_once_it_was_refused(
    access_key: str | None, expected: int
) -> None:
    api, made, time = KinesisApi(), [], ManualTime()

    def connect() -> KinesisApi:
        made.append(1)
        return api

    client = KinesisClient(KinesisAddress("eu-west-1", access_key=access_key), connect, time.clock())
    api.refusals = [refusal("ExpiredTokenException", "DescribeStreamSummary")]
    with pytest.raises(LoginRefused):
        client.describe(STREAM)
    assert client.describe(STREAM).name == STREAM
    assert len(made) == expected


def test_an_endpoint_of_which_no_client_can_be_made_is_refused_without_a_login_in_the_sentence() -> None:
    client = kinesis_client(KinesisAddress("eu-west-1", "not an address", "an-access-key", "a-secret-key"))
    with pytest.raises(SourceRefused, match=r"correct source\.kinesis\.region, endpoint") as told:
        client.describe(STREAM)
    assert "a-secret-key" not in str(told.value)

"""Calls of Kinesis: errors by situation in one sentence, tried again within bounds, not too often, and no login in any text."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    CredentialRetrievalError,
    EndpointConnectionError,
    EndpointResolutionError,
    IncompleteReadError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from exactlyonce.connectors.kinesis.answers import (
    LoginMissing,
    LoginRefused,
    NotKinesis,
    SequenceNumberRefused,
    ShardMissing,
    Throttled,
)
from exactlyonce.connectors.kinesis.client import MOST_SHARDS, KinesisAddress, KinesisClient, SeenTip
from exactlyonce.connectors.kinesis.clients import kinesis_client
from exactlyonce.connectors.kinesis.rate_limit import CALLS_PER_SECOND
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceRefused, SourceUnreachable
from exactlyonce.schema.aws_login import AwsLogin
from tests.kinesis_api import SHARD, STREAM, KinesisApi, ManualTime, StoredShard, client_of, refusal

PLACE = "Kinesis in eu-west-1"


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


@pytest.fixture
def client(api: KinesisApi) -> KinesisClient:
    return client_of(api, api.time)


def test_no_text_shows_a_login() -> None:
    address = KinesisAddress("eu-west-1", "http://localhost:1", AwsLogin("an-access-key", "a-secret-key", "a-token"))
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
def test_a_call_that_is_refused_for_the_moment_is_made_again(code: str, api: KinesisApi, client: KinesisClient) -> None:
    api.refusals = [refusal(code, "DescribeStreamSummary")] * 3
    assert client.describe(STREAM).name == STREAM
    assert api.calls["describe_stream_summary"] == 4
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
    """The error of a call that is always answered so; it names stream and place."""
    api.refusals = [error] * 1000
    with pytest.raises(ExactlyOnceError) as told:
        client.records(STREAM, SHARD, f"{SHARD}:0:0")
    assert STREAM in str(told.value)
    assert PLACE in str(told.value)
    return told.value


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (EndpointConnectionError(endpoint_url="http://u:p@h"), SourceUnreachable, "there is no connection"),
        (ReadTimeoutError(endpoint_url="http://u:p@h"), SourceUnreachable, "there is no answer in time"),
        (SSLError(endpoint_url="http://u:p@h", error="EOF occurred"), SourceUnreachable, "the call failed (SSLError)"),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), SourceUnreachable, "the call failed"),
        (CredentialRetrievalError(provider="web", error_msg="no answer"), SourceUnreachable, "the call failed"),
        (refusal("ResourceInUseException", "GetRecords"), SourceUnreachable, "is being created or deleted"),
        (refusal("Unheard", "GetRecords", status=503), SourceUnreachable, "answered Unheard"),
        (refusal("Throttling", "AssumeRoleWithWebIdentity"), SourceUnreachable, "AWS does not say now whether"),
        (refusal("IDPCommunicationError", "AssumeRoleWithWebIdentity"), SourceUnreachable, "AWS does not say now"),
    ],
)
def test_silence_has_its_error_which_names_stream_and_place(
    error: Exception, kind: type[ExactlyOnceError], said: str, client: KinesisClient, api: KinesisApi
) -> None:
    told = refused(error, client, api)
    assert type(told) is kind
    assert said in str(told)
    assert "u:p@h" not in str(told)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (refusal("AccessDeniedException", "GetRecords", "User x"), SourceRefused, "may not call kinesis:GetRecords on"),
        (refusal("AccessDeniedException", "GetRecords", status=503), SourceRefused, "may not call kinesis:GetRecords"),
        (refusal("KMSAccessDeniedException", "GetRecords", "no"), SourceRefused, "grant the login kms:Decrypt"),
        (refusal("AccessDeniedException", "GetRecords", "perform: kms:Decrypt"), SourceRefused, "grant the login kms:"),
        (refusal("KMSDisabledException", "GetRecords", "off"), SourceRefused, "a key that may not be used"),
        (refusal("UnrecognizedClientException", "GetRecords"), LoginRefused, "does not accept the login"),
        (refusal("UnrecognizedClientException", "GetRecords", status=500), LoginRefused, "not accept the login"),
        (refusal("InvalidSignatureException", "GetRecords", "scoped"), LoginRefused, "source.kinesis.region"),
        (refusal("ExpiredTokenException", "GetRecords"), LoginRefused, "has expired"),
        (refusal("ExpiredToken", "AssumeRoleWithWebIdentity", "old"), LoginRefused, "web identity is not accepted"),
        (refusal("InvalidArgumentException", "GetRecords", "odd"), SourceRefused, "InvalidArgumentException (odd)"),
        (refusal("404", "GetRecords", "<html>"), NotKinesis, "is not Kinesis: it answered 404 (<html>)"),
        (NoCredentialsError(), LoginMissing, "There is no login"),
        (PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), LoginMissing, "There is no login"),
        (EndpointResolutionError(msg="Invalid region"), SourceRefused, "correct source.kinesis.region"),
        (NoRegionError(), SourceRefused, "correct source.kinesis.region"),
        (InvalidRegionError(region_name="?"), SourceRefused, "correct source.kinesis.region"),
        (ProfileNotFound(profile="x"), SourceRefused, "correct source.kinesis.region"),
        (SSLError(endpoint_url="h", error="CERTIFICATE_VERIFY_FAILED"), SourceRefused, "certificate is not trusted"),
        (ResponseParserError("<html>"), NotKinesis, "is not Kinesis: its answer cannot be read"),
        (ParamValidationError(report="x"), SourceRefused, "cannot be the name or ARN"),
    ],
)
def test_a_wrong_setting_is_told_at_once_with_what_to_change(
    error: Exception, kind: type[ExactlyOnceError], said: str, client: KinesisClient, api: KinesisApi
) -> None:
    told = refused(error, client, api)
    assert type(told) is kind
    assert said in str(told)
    assert not [seconds for seconds in api.time.waited if seconds], "nothing was waited for"


def test_what_a_server_says_is_one_short_printable_line(client: KinesisClient, api: KinesisApi) -> None:
    said = "first\n\x1b[2Jsecond \u202ethird " + "x" * 100_000
    for code in ("Odd", "KMSDisabledException", "Y" * 100_000, "404"):
        told = str(refused(refusal(code, "GetRecords", said), client, api))
        assert len(told) < 800
        assert told.isprintable()
        assert "first [2Jsecond third xxx" in told


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
    with pytest.raises(ShardMissing, match="no longer lists shard shard-x of stream orders"):
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


class Logins:
    """Counts how often a client is made, with the login that is found then."""

    def __init__(self, *addresses: KinesisAddress) -> None:
        self.api = KinesisApi()
        self.waiting = list(addresses)
        self.made: list[KinesisAddress] = []

    def read(self) -> KinesisAddress:
        return self.waiting.pop(0) if len(self.waiting) > 1 else self.waiting[0]

    def client(self, *, is_renewable: bool | None = None) -> KinesisClient:
        def connect() -> KinesisApi:
            self.made.append(self.read())
            return self.api

        return KinesisClient(self.waiting[0], connect, ManualTime().clock(), is_renewable)


OF_PROCESS = KinesisAddress("eu-west-1")
BEFORE, AFTER = (KinesisAddress("eu-west-1", None, AwsLogin("id", *kept)) for kept in (("a", "b"), ("c", "d")))
EXPIRED = refusal("ExpiredTokenException", "DescribeStreamSummary")


def test_an_expired_login_of_the_process_is_looked_for_again_in_the_same_call() -> None:
    logins = Logins(OF_PROCESS)
    client = logins.client()
    logins.api.refusals = [EXPIRED]
    assert client.describe(STREAM).name == STREAM
    assert len(logins.made) == 2
    logins.api.refusals = [EXPIRED] * 2
    with pytest.raises(LoginRefused):
        client.describe(STREAM)
    assert client.describe(STREAM).name == STREAM


def test_a_process_without_a_login_is_told_so_at_once_and_looks_again_with_the_next_call() -> None:
    logins = Logins(OF_PROCESS)
    client = logins.client()
    logins.api.refusals = [NoCredentialsError()]
    with pytest.raises(LoginMissing):
        client.describe(STREAM)
    assert logins.api.calls["describe_stream_summary"] == 1
    assert client.describe(STREAM).name == STREAM
    assert len(logins.made) == 2


def test_a_given_login_that_is_refused_is_not_tried_again() -> None:
    logins = Logins(BEFORE)
    client = logins.client()
    logins.api.refusals = [EXPIRED]
    with pytest.raises(LoginRefused):
        client.describe(STREAM)
    assert client.describe(STREAM).name == STREAM
    assert logins.made == [BEFORE]


def test_a_rotated_login_is_read_again_once_the_former_one_is_refused_and_what_was_seen_stays_known() -> None:
    logins = Logins(BEFORE, AFTER)
    client = logins.client(is_renewable=True)
    page = client.records(STREAM, SHARD, client.iterator(STREAM, SHARD, ShardIteratorType="TRIM_HORIZON"))
    client.tips[STREAM, SHARD] = SeenTip(0, logins.api.created, 0.0, 0.0)
    logins.api.refusals = [refusal("UnrecognizedClientException", "GetRecords")]
    assert page.next_iterator is not None
    client.records(STREAM, SHARD, page.next_iterator)
    assert logins.made == [BEFORE, AFTER]
    assert (STREAM, SHARD) in client.tips


def test_a_rotated_login_has_a_client_of_its_own_and_clients_are_bounded() -> None:
    assert kinesis_client(BEFORE) is kinesis_client(BEFORE)
    assert kinesis_client(BEFORE) is not kinesis_client(AFTER)
    first = kinesis_client(BEFORE)
    for number in range(100):
        kinesis_client(KinesisAddress("eu-west-1", None, AwsLogin("id", f"secret {number}")))
    assert kinesis_client(BEFORE) is not first


class EndlessApi(KinesisApi):
    """A server that names more shards on every page, each page after some time."""

    def __init__(self, shards: int, seconds: float) -> None:
        super().__init__()
        self.shards_of_a_page, self.seconds = shards, seconds

    def list_shards(self, **arguments: Any) -> dict[str, Any]:
        self.calls["list_shards"] += 1
        self.time.seconds += self.seconds
        told = [
            self._told(f"shard-{self.calls['list_shards']}-{n}", StoredShard()) for n in range(self.shards_of_a_page)
        ]
        return {"Shards": told, "NextToken": "more"}


@pytest.mark.parametrize("shards", [0, 1])
def test_a_list_of_shards_that_does_not_end_is_given_up_in_time(shards: int) -> None:
    api = EndlessApi(shards, 1.0)
    with pytest.raises(SourceUnreachable, match=f"did not list the shards of stream {STREAM} within 60 s"):
        client_of(api, api.time).shards(STREAM)
    assert api.time.seconds <= 61


def test_a_list_whose_token_always_expires_is_given_up_in_the_time_of_one_list() -> None:
    api = EndlessApi(1, 25.0)
    api.refusals = []
    list_shards = api.list_shards

    def too_old(**arguments: Any) -> dict[str, Any]:
        answer = list_shards(**arguments)
        if "NextToken" in arguments:
            raise refusal("ExpiredNextTokenException", "ListShards")
        return answer

    api.list_shards = too_old  # type: ignore[method-assign]
    with pytest.raises(SourceUnreachable):
        client_of(api, api.time).shards(STREAM)
    assert api.time.seconds <= 85


@pytest.mark.parametrize("shards", [1000, MOST_SHARDS + 1])
def test_a_stream_with_more_shards_than_any_has_is_refused_and_not_held_in_memory(shards: int) -> None:
    api = EndlessApi(shards, 0.0)
    with pytest.raises(SourceRefused, match=f"lists more than 20,000 shards of stream {STREAM}"):
        client_of(api, api.time).shards(STREAM)
    assert api.calls["list_shards"] <= 21


def test_an_endpoint_of_which_no_client_can_be_made_is_refused_without_a_login_in_the_sentence() -> None:
    client = kinesis_client(KinesisAddress("eu-west-1", "not an address", AwsLogin("an-access-key", "a-secret-key")))
    with pytest.raises(SourceRefused, match=r"correct source\.kinesis\.region, endpoint") as told:
        client.describe(STREAM)
    assert "a-secret-key" not in str(told.value)

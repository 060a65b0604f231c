"""How a call is made, and the situations that the codes of an answer stand for."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from exactlyonce.aws import deadlines, errors
from exactlyonce.aws.answers import error_in, error_of
from exactlyonce.aws.calls import AwsClient, Call, Clock, Patience, pause_seconds

SECRET = "http://name:canary@host/?token=canary"


def answered(code: str, status: int = 400, said: str = "why", operation: str = "PutObject") -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": said}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, operation)


class Api:
    """Answers with these in turn, the last one for ever; each answer takes a while of its own clock."""

    def __init__(self, *answers: Exception | None, seconds: float = 0.0) -> None:
        self.answers, self.seconds = list(answers), seconds
        self.now, self.asked, self.limits = 0.0, 0, list[float | None]()

    def put_object(self, **arguments: Any) -> dict[str, Any]:
        self.asked += 1
        self.now += self.seconds
        self.limits.append(deadlines._of_thread.__dict__.get("most"))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        return arguments

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def client(self, patience: Patience, *, is_renewable: bool = False) -> AwsClient:
        clock = Clock(lambda: self.now, lambda: self.now, self.sleep, random.Random(7))
        return AwsClient(lambda: self, patience, clock, is_renewable=is_renewable)


PUT = Call("PutObject", {"Key": "a"})
PASSING = [
    answered("SlowDown", 503),
    answered("InternalError", 500),
    answered("Unheard", 503),
    answered("ConditionalRequestConflict", 409),
    ConnectTimeoutError(endpoint_url=SECRET),
    ReadTimeoutError(endpoint_url=SECRET),
]


@pytest.mark.parametrize("problem", PASSING, ids=str)
def test_what_may_pass_is_asked_again_until_it_is_answered_and_no_later_than_its_time(problem: Exception) -> None:
    api = Api(problem, problem, None)
    assert api.client(Patience(30.0)).call(PUT, dict) == {"Key": "a"}
    assert api.asked == 3
    api = Api(problem, seconds=4.0)
    with pytest.raises(errors.AwsError) as told:
        api.client(Patience(30.0)).call(PUT, dict)
    assert 5 <= api.asked <= 8
    assert "canary" not in f"{told.value}{told.value.how}{told.value.said}"


def test_a_later_try_has_no_more_than_what_the_call_has_left_and_the_first_one_what_an_answer_may_take() -> None:
    api = Api(answered("SlowDown"), seconds=4.0)
    with pytest.raises(errors.Throttled):
        api.client(Patience(10.0)).call(PUT, dict)
    first, *later = api.limits
    assert first is None
    assert later
    kept = [limit for limit in later if limit is not None]
    assert len(kept) == len(later)
    assert all(0 <= limit <= 6.0 for limit in kept)
    assert kept == sorted(kept, reverse=True)


def test_a_call_begins_no_try_after_a_moment_that_its_caller_gives_but_the_first() -> None:
    for until, expected in ((0.0, 1), (0.5, 3)):
        api = Api(answered("SlowDown"))
        with pytest.raises(errors.Throttled):
            api.client(Patience(30.0)).call(PUT, dict, until)
        assert api.asked <= expected
        assert api.now <= until


def test_a_call_that_may_be_sent_once_is_sent_once() -> None:
    for problem in PASSING:
        api = Api(problem, None)
        with pytest.raises(errors.AwsError):
            api.client(Patience(30.0, tries=1)).call(PUT, dict)
        assert api.asked == 1


def test_what_is_read_of_an_answer_is_a_part_of_the_try() -> None:
    bodies = iter([ReadTimeoutError(endpoint_url=SECRET), IncompleteReadError(actual_bytes=1, expected_bytes=2), None])

    def read(answer: object) -> str:
        problem = next(bodies)
        if problem is not None:
            raise problem
        return "whole"

    api = Api(None)
    assert api.client(Patience(30.0)).call(PUT, read) == "whole"
    assert api.asked == 3


def test_an_answer_of_another_shape_is_not_one_of_the_service_and_is_not_asked_for_again() -> None:
    for parse in (lambda answer: answer["Missing"], lambda answer: int(answer["Key"]), lambda answer: answer.key):
        api = Api(None)
        with pytest.raises(errors.Foreign):
            api.client(Patience(30.0)).call(PUT, parse)
        assert api.asked == 1


def test_a_refused_login_of_the_process_is_looked_for_once_more_in_a_call_and_a_given_one_never() -> None:
    for is_renewable, asked in ((True, 2), (False, 1)):
        api = Api(answered("ExpiredToken"))
        with pytest.raises(errors.LoginExpired):
            api.client(Patience(30.0), is_renewable=is_renewable).call(PUT, dict)
        assert (api.asked, api.now) == (asked, 0.0)


def test_pauses_grow_to_a_bound_and_are_drawn_by_chance() -> None:
    chance = random.Random(1)
    pauses = [[pause_seconds(tries, chance) for _ in range(100)] for tries in (1, 2, 3, 4, 5, 50)]
    assert all(fmean(shorter) < fmean(longer) for shorter, longer in pairwise(pauses[:5]))
    assert max(pauses[0]) <= 0.2
    assert max(pauses[-1]) <= 2.0
    assert all(len(set(some)) > 90 for some in pauses)


@pytest.mark.parametrize(
    ("problem", "kind", "may_pass", "may_have_effect"),
    [
        (answered("NoSuchKey", 404), errors.Missing, False, False),
        (answered("404", 404), errors.Missing, False, False),
        (answered("ResourceNotFoundException"), errors.Missing, False, False),
        (answered("PreconditionFailed", 412), errors.ConditionFailed, False, False),
        (answered("412", 412), errors.ConditionFailed, False, False),
        (answered("ConditionalCheckFailedException"), errors.ConditionFailed, False, False),
        (answered("ConditionalRequestConflict", 409), errors.Conflict, True, False),
        (answered("409", 409), errors.Conflict, True, False),
        (answered("ProvisionedThroughputExceededException"), errors.Throttled, True, False),
        (answered("Odd", 429), errors.Throttled, True, False),
        (answered("InternalServerError", 500), errors.OutcomeUnknown, True, True),
        (answered("502", 502), errors.OutcomeUnknown, True, True),
        (answered("RequestTimeout"), errors.OutcomeUnknown, True, True),
        (ReadTimeoutError(endpoint_url=SECRET), errors.OutcomeUnknown, True, True),
        (ConnectionClosedError(endpoint_url=SECRET), errors.OutcomeUnknown, True, True),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), errors.OutcomeUnknown, True, True),
        (HTTPClientError(error=OSError("broken")), errors.OutcomeUnknown, True, True),
        (SSLError(endpoint_url=SECRET, error="EOF occurred"), errors.OutcomeUnknown, True, True),
        (ConnectTimeoutError(endpoint_url=SECRET), errors.Unreachable, True, False),
        (EndpointConnectionError(endpoint_url=SECRET), errors.Unreachable, True, False),
        (answered("AccessDenied", 403), errors.NotAllowed, False, False),
        (answered("403", 403), errors.NotAllowed, False, False),
        (answered("KMSDisabledException", 500), errors.NotAllowed, False, False),
        (answered("ExpiredToken"), errors.LoginExpired, False, False),
        (answered("SignatureDoesNotMatch", 403), errors.LoginRefused, False, False),
        (NoCredentialsError(), errors.LoginMissing, False, False),
        (SSLError(endpoint_url=SECRET, error="CERTIFICATE_VERIFY_FAILED"), errors.Untrusted, False, False),
        (answered("ResourceInUseException"), errors.Busy, False, False),
        (answered("NoSuchBucket", 404), errors.Refused, False, False),
        (answered("<html>", 200), errors.Foreign, False, False),
        (KeyError("Records"), errors.Foreign, False, False),
    ],
    ids=lambda it: it.__name__ if isinstance(it, type) else str(it)[:60],
)
def test_each_answer_and_each_silence_has_its_situation(
    problem: Exception, kind: type[errors.AwsError], may_pass: bool, may_have_effect: bool
) -> None:
    error = error_of(problem, has_statuses=True)
    assert type(error) is kind
    assert (error.may_pass, error.may_have_effect) == (may_pass, may_have_effect)
    assert "canary" not in f"{error}{error.how}{error.said}{error.code}"


def test_a_status_alone_is_an_answer_of_those_services_only_that_have_such() -> None:
    for code in ("403", "404", "409", "412", "418"):
        assert type(error_of(answered(code, int(code)), has_statuses=False)) is errors.Foreign
    assert type(error_of(answered("418", 418), has_statuses=True)) is errors.Refused


def test_the_error_of_one_part_of_an_answer_has_the_same_situations() -> None:
    assert type(error_in({"Code": "AccessDenied", "Message": "no"})) is errors.NotAllowed
    assert type(error_in({"Code": "PreconditionFailed"})) is errors.ConditionFailed


def test_it_is_known_whether_the_service_or_sts_has_answered() -> None:
    assert error_of(answered("AccessDenied", operation="AssumeRoleWithWebIdentity"), has_statuses=True).is_of_identity
    assert not error_of(answered("AccessDenied"), has_statuses=True).is_of_identity

"""What DynamoDB answers, and how it does not, as errors named by situation. Performs no I/O.

A tenant names the endpoint, so what is told of an answer is bounded, and nothing is told of one that is not DynamoDB's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from exactlyonce.aws_answers import NOT_ALLOWED, THROTTLES, WRONG_LOGIN, message_of
from exactlyonce.errors import ExactlyOnceError, StoreForbidden, StoreUnreachable

_CONDITION_FAILED = "ConditionalCheckFailedException"
_NOT_NOW = THROTTLES | {"TransactionConflictException"}
"""The request had no effect, and may have one in a moment."""

_UNKNOWN = {"InternalServerError", "InternalFailure", "ServiceUnavailable", "TransactionInProgressException"}
_UNKNOWN_STATUS = {500, 502, 503, 504}
_FINAL = (NoCredentialsError, PartialCredentialsError, ParamValidationError, ResponseParserError)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9]{2,79}")
_ACTION = re.compile(r"not authorized to perform: (dynamodb:[A-Za-z]{3,40})")


class ConditionFailed(Exception):
    """The condition of a write does not hold, so it had no effect."""


class TableMissing(StoreUnreachable):
    """There is no such table in the region, or it is being made."""


class TableBusy(StoreUnreachable):
    """The table is being made, changed or deleted."""


class LoginRefused(StoreForbidden):
    """DynamoDB does not accept the login, or there is none."""


@dataclass(frozen=True, slots=True)
class NamedAt:
    """Which fields of a resource name a table and its login: what a person has to correct."""

    table: str
    login: str


LEASE_TABLE = NamedAt("spec.source.kinesis.leaseTable", "spec.source.kinesis.secretRef")


@dataclass(frozen=True, slots=True)
class Request:
    """Which request it was: `action` as IAM names it, and of which table."""

    action: str
    table: str
    place: str
    named_at: NamedAt = LEASE_TABLE

    @property
    def what(self) -> str:
        """The table in words."""
        return f"table {self.table} of {self.place}"


def had_no_effect(problem: Exception) -> bool:
    """Whether the request was turned away and may be answered in a moment."""
    return isinstance(problem, ClientError) and code_of(problem) in _NOT_NOW


def may_be_sent_again(problem: Exception) -> bool:
    """Whether the same request may be answered in a moment; whether this one took effect may be unknown."""
    if not isinstance(problem, ClientError):
        return not isinstance(problem, _FINAL)
    status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return had_no_effect(problem) or code_of(problem) in _UNKNOWN or status in _UNKNOWN_STATUS


def condition_failed(problem: Exception) -> bool:
    """Whether the condition of a write does not hold."""
    return isinstance(problem, ClientError) and code_of(problem) == _CONDITION_FAILED


def error_of(problem: Exception, request: Request) -> ExactlyOnceError:
    """Return the error by situation, in one sentence that names table and place."""
    match problem:
        case ClientError():
            return _error_of_answer(problem, request)
        case NoCredentialsError() | PartialCredentialsError():
            return LoginRefused(
                f"there is no login for {request.what}; name a secret in {request.named_at.login}, or give the service "
                "account a web identity."
            )
        case _:
            return StoreUnreachable(
                f"{request.place} did not answer for table {request.table}: {_silence_of(problem, request.named_at.table)}."
            )


def not_dynamo_db(request: Request) -> StoreUnreachable:
    """Return the error for an answer that is not DynamoDB's."""
    return StoreUnreachable(
        f"what answers for {request.what} is not DynamoDB; correct {request.named_at.table}.endpoint."
    )


def code_of(problem: ClientError) -> str:
    """Return the code of an answer; `?` for a code that DynamoDB does not give."""
    code = str(problem.response.get("Error", {}).get("Code", ""))
    return code if _CODE.fullmatch(code) else "?"


def _error_of_answer(problem: ClientError, request: Request) -> ExactlyOnceError:
    code, said = code_of(problem), message_of(problem)
    if problem.operation_name == "AssumeRoleWithWebIdentity":
        return LoginRefused(
            f"the service account's web identity is not accepted for {request.what} ({said or code}); correct the role that "
            "its annotation names, or whom that role trusts."
        )
    if code in NOT_ALLOWED:
        named = _ACTION.search(str(problem.response.get("Error", {}).get("Message", "")))
        action = named[1] if named else request.action
        return StoreForbidden(f"the login may not call {action} on {request.what}; grant it that action.")
    if code in WRONG_LOGIN:
        return LoginRefused(
            f"{request.place} does not accept the login for table {request.table} ({code}); correct the secret that "
            f"{request.named_at.login} names, or region."
        )
    if code == "ResourceNotFoundException":
        return TableMissing(
            f"there is no table {request.table} in {request.place}, or it is being made; restore it from a backup if it was "
            f"removed, or correct table, region or endpoint of {request.named_at.table}."
        )
    if code == "ResourceInUseException":
        return TableBusy(f"{request.what} is being made, changed or deleted.")
    if had_no_effect(problem):
        return StoreUnreachable(
            f"{request.place} keeps turning {request.action} on table {request.table} away ({code}); raise the "
            "table's capacity, or look for what else uses it."
        )
    if code == "?":
        return not_dynamo_db(request)
    return StoreUnreachable(
        f"{request.place} answered {code} to {request.action} on table {request.table} ({said or 'no details given'})."
    )


def _silence_of(problem: Exception, named_at: str) -> str:
    """Say how a service did not answer, without what the error quotes."""
    match problem:
        case ConnectTimeoutError() | EndpointConnectionError():
            return f"there is no connection; correct region or endpoint of {named_at} if this continues"
        case ReadTimeoutError():
            return "there is no answer in time"
        case ResponseParserError():
            return f"what answers is not DynamoDB; correct {named_at}.endpoint"
        case _:
            return f"the request failed ({type(problem).__name__})"

"""Requests to DynamoDB, where lease tables are, and its errors in one sentence each.

A tenant names the endpoint, so what is told of an answer is bounded, and nothing is told of one that is not DynamoDB's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from exactlyonce.aws import errors
from exactlyonce.aws.calls import AwsClient, Call, Clock, Patience
from exactlyonce.aws.clients import AnswerLimits, ClientsByAddress, ServiceAddress, make_client
from exactlyonce.aws.errors import AwsError
from exactlyonce.errors import ExactlyOnceError, StoreForbidden, StoreUnreachable

NAMED_AT, LOGIN_AT = "spec.source.kinesis.leaseTable", "spec.source.kinesis.secretRef"
"""The fields that name a table and its login: what a person has to correct."""

PATIENCE = Patience(15.0)
"""A pass has a limit of its own."""

_LIMITS = AnswerLimits(3.0, 5.0, 5.0, 4 * 1024 * 1024)
"""A page has 1 MB of items, a third more as base64, and their names."""

_ACTION = re.compile(r"not authorized to perform: (dynamodb:[A-Za-z]{3,40})")


class ConditionFailed(Exception):
    """The condition of a write does not hold, so it had no effect."""


class TableMissing(StoreUnreachable):
    """There is no such table in the region, or it is being made."""


class TableBusy(StoreUnreachable):
    """The table is being made, changed or deleted."""


class LoginRefused(StoreForbidden):
    """DynamoDB does not accept the login, or there is none."""


class DynamoDbAddress(ServiceAddress):
    """Where DynamoDB is."""

    service = "DynamoDB"


class DynamoDbClient:
    """DynamoDB at one address, for one process; threads may share it. `connect` makes boto3's client."""

    def __init__(self, address: DynamoDbAddress, connect: Callable[[], Any], clock: Clock | None = None) -> None:
        self.address = address
        self._aws = AwsClient(connect, PATIENCE, clock, is_renewable=address.login is None)

    @property
    def clock(self) -> Clock:
        """The time that requests are measured by."""
        return self._aws.clock

    def call(self, operation: str, table: str, **arguments: Any) -> Mapping[str, Any]:
        """Send a request, again with growing pauses while that may help and time is left.

        Raises:
            ConditionFailed: if a condition does not hold. A request that was sent twice may have failed its own condition.
            TableMissing, StoreForbidden, StoreUnreachable: by situation.
        """
        try:
            return self._aws.call(Call(operation, {"TableName": table, **arguments}), _of_dynamo_db)
        except errors.ConditionFailed as error:
            raise ConditionFailed(operation) from error
        except AwsError as error:
            raise _sentence_of(error, f"dynamodb:{operation}", table, self.address.place) from error


def dynamo_db_client(address: DynamoDbAddress) -> DynamoDbClient:
    """Return the client of this process for an address; a rotated login is another address."""
    return _CLIENTS.get(address)


def connect_to(address: DynamoDbAddress) -> Any:
    """Return a new client of boto3."""
    return make_client("dynamodb", _LIMITS, address.login, region=address.region, endpoint=address.endpoint)


_CLIENTS: ClientsByAddress[DynamoDbAddress, DynamoDbClient] = ClientsByAddress(
    lambda address: DynamoDbClient(address, lambda: connect_to(address))
)


def _of_dynamo_db(answer: Any) -> Mapping[str, Any]:
    """Require that DynamoDB has answered: what is no answer would be read as one that there is nothing."""
    if not answer.get("ResponseMetadata", {}).get("RequestId"):
        raise errors.Foreign("its answer has no request id")
    found: Mapping[str, Any] = answer
    return found


def _sentence_of(error: AwsError, action: str, table: str, place: str) -> ExactlyOnceError:
    """Return the error by situation, in one sentence that names table and place."""
    what = f"table {table} of {place}"
    match error:
        case errors.Foreign():
            return StoreUnreachable(f"what answers for {what} is not DynamoDB; correct {NAMED_AT}.endpoint.")
        case errors.LoginRefused() | errors.NotAllowed() | errors.WrongSetting():
            return _of_login(error, action, what)
        case _ if error.is_of_identity and not error.may_pass:
            return _of_login(error, action, what)
        case errors.Missing():
            return TableMissing(
                f"there is no table {table} in {place}, or it is being made; restore it from a backup if it was removed, or "
                f"correct table, region or endpoint of {NAMED_AT}."
            )
        case errors.Busy():
            return TableBusy(f"{what} is being made, changed or deleted.")
        case errors.Throttled() | errors.Conflict():
            return StoreUnreachable(
                f"{place} keeps turning {action} on table {table} away ({error.code}); raise the table's capacity, or look for "
                "what else uses it."
            )
        case _ if error.code:
            return StoreUnreachable(
                f"{place} answered {error.code} to {action} on table {table} ({error.said or 'no details given'})."
            )
        case _:
            return StoreUnreachable(
                f"{place} did not answer for table {table}: {error.how}; correct region or endpoint of {NAMED_AT} if this "
                "continues."
            )


def _of_login(error: AwsError, action: str, what: str) -> StoreForbidden:
    match error:
        case errors.LoginMissing():
            return LoginRefused(
                f"there is no login for {what}; name a secret in {LOGIN_AT}, or give the service account a web identity."
            )
        case _ if error.is_of_identity:
            return LoginRefused(
                f"the service account's web identity is not accepted for {what} ({error.said or error.code}); correct the role "
                "that its annotation names, or whom that role trusts."
            )
        case errors.NotAllowed():
            named = _ACTION.search(error.said)
            return StoreForbidden(
                f"the login may not call {named[1] if named else action} on {what}; grant it that action."
            )
        case errors.WrongSetting():
            return StoreForbidden(f"{error.how} for {what}; correct region or endpoint of {NAMED_AT}, or {LOGIN_AT}.")
        case _:
            return LoginRefused(
                f"DynamoDB does not accept the login for {what} ({error.code}); correct the secret that {LOGIN_AT} names, or "
                "region."
            )

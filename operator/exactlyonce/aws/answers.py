"""From what the AWS library raises to an error by situation: the table of codes. Performs no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError

from exactlyonce.aws.errors import (
    AwsError,
    Busy,
    ConditionFailed,
    Conflict,
    Foreign,
    LoginExpired,
    LoginMissing,
    LoginRefused,
    Missing,
    NotAllowed,
    OutcomeUnknown,
    Refused,
    Throttled,
    Unreachable,
    Untrusted,
    WrongName,
    WrongSetting,
)
from exactlyonce.bounded_json import MALFORMED
from exactlyonce.bounded_text import one_line

_BY_SITUATION: Final[Mapping[type[AwsError], tuple[str, ...]]] = {
    Throttled: (
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    Conflict: ("ConditionalRequestConflict", "TransactionConflictException"),
    OutcomeUnknown: (
        "IDPCommunicationError",
        "InternalError",
        "InternalFailure",
        "InternalFailureException",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
    ),
    ConditionFailed: ("ConditionalCheckFailedException", "PreconditionFailed"),
    Missing: ("NoSuchKey", "NotFound", "ResourceNotFoundException"),
    Busy: ("ResourceInUseException",),
    NotAllowed: (
        "AccessDenied",
        "AccessDeniedException",
        "AllAccessDisabled",
        "Forbidden",
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
        "KMSOptInRequired",
        "NotAuthorized",
        "UnauthorizedOperation",
    ),
    LoginExpired: ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"),
    LoginRefused: (
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ),
}
ERRORS: Final[Mapping[str, type[AwsError]]] = {code: kind for kind, codes in _BY_SITUATION.items() for code in codes}
"""The situation that each code of an answer stands for. A code without one is refused by its name."""

STATUSES: Final[Mapping[str, type[AwsError]]] = {
    "403": NotAllowed,
    "404": Missing,
    "409": Conflict,
    "412": ConditionFailed,
}
"""What an answer without a code says by its status alone, as those of S3 to HEAD do."""

_TRANSIENT: Final[Mapping[int, type[AwsError]]] = {
    429: Throttled,
    500: OutcomeUnknown,
    502: OutcomeUnknown,
    503: OutcomeUnknown,
    504: OutcomeUnknown,
}
"""What statuses mean beside a code that says nothing else."""

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9]{2,79}")
_MOST_OF_CODE = 80

_NOT_SENT = (ConnectTimeoutError, EndpointConnectionError, CredentialRetrievalError, MetadataRetrievalError)
_SILENT = (NoConnection, HTTPClientError, IncompleteReadError, ResponseStreamingError, OSError)
"""What the AWS library raises where nobody answered, or not to the end; all else is a matter of settings."""

_UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of a server that is not trusted, or does not speak TLS."""

BROKEN_OFF = (BotoCoreError, OSError)
"""What reading the body of an answer may raise."""

RAISED = (ClientError, BotoCoreError, ResponseParserError, OSError, RuntimeError, *MALFORMED)
"""What a call may raise that `error_of` turns into an error by situation: the library believes what a server answers."""


def error_of(problem: BaseException, *, has_statuses: bool) -> AwsError:
    """Return the error by situation.

    `has_statuses`: the service answers some requests without a code, so that the status stands for it. Such an answer of any
    other service is no answer of it.
    """
    match problem:
        case AwsError():
            return problem
        case ClientError():
            return _answered(problem, has_statuses)
        case BotoCoreError() | OSError() if isinstance(problem, (*_NOT_SENT, *_SILENT)):
            return _unanswered(problem)
        case BotoCoreError():
            return _not_asked(problem)
        case KeyError():
            return Foreign(f"its answer has no {one_line(problem.args[0], _MOST_OF_CODE)}")
        case ValueError() | TypeError():
            return Foreign(one_line(str(problem)))
        case _:  # nothing of its text, which holds the answer of any server that a tenant named
            return Foreign(f"its answer cannot be read ({type(problem).__name__})")


def _unanswered(problem: BaseException) -> AwsError:
    match problem:
        case SSLError() if any(said in str(problem) for said in _UNTRUSTED):
            return Untrusted("its certificate is not trusted, or it speaks no TLS")
        case ConnectTimeoutError() | EndpointConnectionError():
            return Unreachable("there is no connection")
        case ReadTimeoutError() | TimeoutError():
            return OutcomeUnknown("there is no answer in time")
        case _:
            kind = Unreachable if isinstance(problem, _NOT_SENT) else OutcomeUnknown
            return kind(f"the call failed ({type(problem).__name__})")


def _not_asked(problem: BotoCoreError) -> AwsError:
    match problem:
        case NoCredentialsError() | PartialCredentialsError():
            return LoginMissing("there is no login")
        case ParamValidationError():
            return WrongName("no service has anything of that name")
        case _:
            return WrongSetting(f"no call can be made ({type(problem).__name__})")


def error_in(told: Mapping[str, Any], *, has_statuses: bool = True) -> AwsError:
    """Return the error of one part of an answer, such as of one key of a deletion of many."""
    return error_of(ClientError({"Error": dict(told)}, "?"), has_statuses=has_statuses)


def _answered(problem: ClientError, has_statuses: bool) -> AwsError:
    answer = problem.response
    told, status = answer.get("Error", {}), answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = one_line(told.get("Code") or "?", _MOST_OF_CODE)
    said = one_line(told.get("Message") or "")
    how = f"it answered {code} ({said or 'no details given'})"
    kind = ERRORS.get(code) or (STATUSES.get(code) if has_statuses else None) or _TRANSIENT.get(status)
    if kind is None:
        is_its_own = _CODE.fullmatch(code) is not None or (has_statuses and code.isdigit())
        kind = Refused if is_its_own else Foreign
    return kind(how, code, said, is_of_identity=problem.operation_name == "AssumeRoleWithWebIdentity")

"""What services that speak a protocol of AWS answer alike: the codes of their errors, and their messages. Performs no I/O."""

from __future__ import annotations

from botocore.exceptions import ClientError

from exactlyonce.bounded_text import one_line

THROTTLES = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
NOT_ALLOWED = frozenset({"AccessDenied", "AccessDeniedException", "NotAuthorized", "UnauthorizedOperation"})
EXPIRED_LOGIN = frozenset({"ExpiredToken", "ExpiredTokenException"})
WRONG_LOGIN = EXPIRED_LOGIN | {
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
}
_MOST_OF_CODE = 80


def code_of(problem: ClientError) -> str:
    """Return the code of an answer, or the status of one that has none; of any server, so it may be anything."""
    return one_line(problem.response.get("Error", {}).get("Code") or "?", _MOST_OF_CODE)


def message_of(problem: ClientError) -> str:
    """Return what an answer says beside its code; empty where it says nothing."""
    return one_line(problem.response.get("Error", {}).get("Message") or "")

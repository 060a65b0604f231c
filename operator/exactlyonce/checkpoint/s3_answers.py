"""What an S3 service answers, and how it does not, in words for a person. Performs no I/O."""

from __future__ import annotations

from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.parsers import ResponseParserError

from exactlyonce.aws_answers import code_of, message_of
from exactlyonce.aws_clients import AnswerTooLarge
from exactlyonce.bounded_text import one_line

MISSING = {"NoSuchKey", "404", "NotFound"}
CONDITION_FAILED = {"PreconditionFailed", "412"}
CONFLICTING = {"ConditionalRequestConflict", "409"}
NOT_ALLOWED = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled"}
WRONG_LOGIN = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_ELSEWHERE = {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
UNKNOWN_CONDITION = {"NotImplemented", "501"}


def told_of(problem: ClientError, bucket: str) -> str:
    """Return what a service's refusal means for a person."""
    code = code_of(problem)
    said = message_of(problem)
    if problem.operation_name == "AssumeRoleWithWebIdentity":
        return (
            f"the service account's web identity is not accepted ({said or code}); correct the role that its annotation "
            "names, or whom that role trusts."
        )
    if code in NOT_ALLOWED:
        return (
            f"access is denied ({said or code}); the login needs s3:ListBucket on {bucket}, and s3:GetObject, "
            "s3:PutObject and s3:DeleteObject below it."
        )
    if code in WRONG_LOGIN:
        return f"the login is not accepted ({code}); correct the secret that secretRef names."
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket}; make it, or correct location."
    if code in _ELSEWHERE:
        return f"bucket {bucket} is in another region ({said or code}); set region."
    return f"the service answered {code} ({said or 'no details given'})."


def silence_of(problem: Exception) -> str:
    """Say how a service did not answer, without the address that was asked, which holds every parameter."""
    match problem:
        case ConnectTimeoutError() | EndpointConnectionError():
            return "there is no connection"
        case ReadTimeoutError():
            return "there is no answer"
        case ResponseParserError() | AnswerTooLarge():
            # The error holds the answer, which may be that of any server a tenant named.
            return "what answers is not an S3 service"
        case _:
            return one_line(str(problem))

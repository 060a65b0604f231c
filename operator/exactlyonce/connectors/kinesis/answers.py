"""What Kinesis answers, and how it does not, as errors named by situation. Performs no I/O."""

from __future__ import annotations

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

from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceRefused, SourceUnreachable

_THROTTLES = {
    "KMSThrottlingException",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_TRY_AGAIN = _THROTTLES | {"InternalFailure", "InternalFailureException", "InternalServerError", "ServiceUnavailable"}
_TRY_AGAIN_STATUS = {429, 500, 502, 503, 504}
_NOT_ALLOWED = {"AccessDenied", "AccessDeniedException", "NotAuthorized", "UnauthorizedOperation"}
_KMS = {
    "KMSAccessDeniedException",
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "KMSOptInRequired",
}
_WRONG_LOGIN = {
    "ExpiredToken",
    "ExpiredTokenException",
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


_FINAL = (NoCredentialsError, PartialCredentialsError, ParamValidationError, ResponseParserError)


class Throttled(SourceUnreachable):
    """Kinesis went on refusing calls because too many were made, by this stream or by other consumers."""


class LoginRefused(SourceRefused):
    """Kinesis does not accept the login, or there is none."""


class ShardMissing(OriginMissing):
    """The stream lists a shard no more: its records have expired, or the stream was deleted and created again."""


class SequenceNumberRefused(SourceRefused):
    """Kinesis says that a sequence number cannot be of this shard."""


class IteratorExpired(SourceUnreachable):
    """A shard iterator is older than five minutes; the caller seeks again."""


class ListingExpired(SourceUnreachable):
    """The token of the next page of a list of shards is too old; the list is asked for again."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which call it was: `action` as IAM names it, `place` in words."""

    action: str
    stream: str
    place: str
    shard: str | None = None

    @property
    def what(self) -> str:
        """The shard or stream in words."""
        return f"stream {self.stream}" if self.shard is None else f"shard {self.shard} of stream {self.stream}"


def may_be_tried_again(problem: Exception) -> bool:
    """Whether the same call may be answered in a moment; each call only reads."""
    if not isinstance(problem, ClientError):
        return not isinstance(problem, _FINAL)
    status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return code_of(problem) in _TRY_AGAIN or status in _TRY_AGAIN_STATUS


def error_of(problem: Exception, asked: Asked) -> ExactlyOnceError:
    """Return the error by situation, in one sentence that names stream and place."""
    match problem:
        case ClientError():
            return _error_of_answer(problem, asked)
        case NoCredentialsError() | PartialCredentialsError():
            return LoginRefused(
                f"There is no login for {asked.place} to read stream {asked.stream}; name a secret in "
                "source.kinesis.secretRef, or give the service account a web identity."
            )
        case ParamValidationError():
            return SourceRefused(
                f"{asked.stream!r} cannot be the name or ARN of a stream of {asked.place}; correct it."
            )
        case _:
            return SourceUnreachable(f"{asked.place} did not answer for {asked.what}: {_silence_of(problem)}.")


def _error_of_answer(problem: ClientError, asked: Asked) -> ExactlyOnceError:
    code, said = code_of(problem), _said(problem)
    if problem.operation_name == "AssumeRoleWithWebIdentity":
        return LoginRefused(
            f"The service account's web identity is not accepted for stream {asked.stream} ({said or code}); correct the "
            "role that its annotation names, or whom that role trusts."
        )
    error = _refused(code, said, asked) or _not_now(code, asked)
    if error is not None:
        return error
    if may_be_tried_again(problem):
        return SourceUnreachable(f"{asked.place} answered {code} for {asked.what} ({said or 'no more is said'}).")
    return SourceRefused(f"{asked.place} refuses {asked.action} of {asked.what}: {code} ({said or 'no more is said'}).")


def _refused(code: str, said: str, asked: Asked) -> ExactlyOnceError | None:
    if code in _KMS or (code in _NOT_ALLOWED and "kms:" in said):
        return SourceRefused(
            f"Stream {asked.stream} of {asked.place} is encrypted with a key that may not be used ({code}: {said}); grant the "
            "login kms:Decrypt on that key, and see that it is enabled."
        )
    if code in _NOT_ALLOWED:
        return SourceRefused(
            f"The login may not call {asked.action} on stream {asked.stream} of {asked.place}; grant it that action."
        )
    if code in _WRONG_LOGIN:
        return LoginRefused(
            f"{asked.place} does not accept the login for stream {asked.stream} ({code}); correct the secret that "
            "source.kinesis.secretRef names, or source.kinesis.region."
        )
    if code == "ResourceNotFoundException":
        return _missing(asked)
    if code == "InvalidArgumentException" and "sequencenumber" in said.lower().replace(" ", ""):
        return SequenceNumberRefused(
            f"{asked.place} says that a sequence number is not of {asked.what} ({said}); the stream may have been "
            "deleted and created again, or the position may be of another stream."
        )
    return None


def _not_now(code: str, asked: Asked) -> ExactlyOnceError | None:
    if code == "ExpiredIteratorException":
        return IteratorExpired(f"An iterator of {asked.what} is too old.")
    if code == "ExpiredNextTokenException":
        return ListingExpired(f"The list of the shards of stream {asked.stream} took too long.")
    if code == "ResourceInUseException":
        return SourceUnreachable(f"Stream {asked.stream} of {asked.place} is being created or deleted.")
    if code in _THROTTLES:
        return Throttled(
            f"{asked.place} keeps refusing {asked.action} of {asked.what} ({code}); other consumers may use up its limits."
        )
    return None


def _missing(asked: Asked) -> OriginMissing:
    if asked.shard is not None:
        return ShardMissing(
            f"{asked.place} lists shard {asked.shard} of stream {asked.stream} no more; its records have expired, or the "
            "stream was deleted and created again."
        )
    return OriginMissing(
        f"There is no stream {asked.stream} in {asked.place}; create it, or correct source.kinesis.streamName, region "
        "or endpoint."
    )


def _silence_of(problem: Exception) -> str:
    match problem:
        case ConnectTimeoutError() | EndpointConnectionError():
            return "there is no connection; check source.kinesis.region and endpoint"
        case ReadTimeoutError():
            return "there is no answer in time"
        case ResponseParserError():
            # The error holds the answer, which may be that of any server that a tenant named.
            return "what answers is not Kinesis; check source.kinesis.endpoint"
        case _:
            return f"the call failed ({type(problem).__name__})"


def _said(problem: ClientError) -> str:
    return str(problem.response.get("Error", {}).get("Message") or "").rstrip(".")


def code_of(problem: ClientError) -> str:
    """Return the code of Kinesis' answer."""
    return str(problem.response.get("Error", {}).get("Code", "?"))

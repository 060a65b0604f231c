"""What Kinesis answers, and how it does not, as errors named by situation. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass

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
    SSLError,
)
from botocore.exceptions import ConnectionError as NoConnection

from exactlyonce.aws_answers import EXPIRED_LOGIN, NOT_ALLOWED, THROTTLES, WRONG_LOGIN, code_of, message_of
from exactlyonce.bounded_text import one_line
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceRefused, SourceUnreachable

_THROTTLES = THROTTLES | {"KMSThrottlingException"}
_TRY_AGAIN = _THROTTLES | {
    "IDPCommunicationError",
    "InternalFailure",
    "InternalFailureException",
    "InternalServerError",
    "ServiceUnavailable",
}
_TRY_AGAIN_STATUS = {429, 500, 502, 503, 504}
_KMS = {
    "KMSAccessDeniedException",
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "KMSOptInRequired",
}
_SETTINGS = NOT_ALLOWED | _KMS | WRONG_LOGIN
"""Codes that a person has to act upon, whatever the status of the answer is."""

_SILENT = (NoConnection, HTTPClientError, IncompleteReadError, CredentialRetrievalError, MetadataRetrievalError)
"""What the AWS library raises where nobody answered, or not to the end; all else is a matter of settings."""

_UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of a server that is not trusted, or does not speak TLS."""

_MOST_OF_CODE = 80


class Throttled(SourceUnreachable):
    """Kinesis continued refusing calls because too many were made, by this stream or by other consumers."""


class LoginRefused(SourceRefused):
    """Kinesis does not accept the login, or there is none."""


class LoginMissing(LoginRefused):
    """There is no login, or one half of it."""


class NotKinesis(SourceRefused):
    """What answers at the endpoint is another kind of server."""


class ShardMissing(OriginMissing):
    """The stream lists a shard no more: its records have expired, or the stream was deleted and created again."""


class SequenceNumberRefused(SourceRefused):
    """Kinesis says that a sequence number cannot be of this shard."""


class IteratorExpired(SourceUnreachable):
    """A shard iterator is older than five minutes; the caller seeks again."""


class ListingExpired(SourceUnreachable):
    """The token of the next page of a list of shards is too old; the list is asked for again."""


@dataclass(frozen=True, slots=True)
class Request:
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
        return isinstance(problem, _SILENT) and not _is_untrusted(problem)
    code = code_of(problem)
    if code in _SETTINGS:
        return False
    return code in _TRY_AGAIN or problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in _TRY_AGAIN_STATUS


def error_of(problem: Exception, request: Request) -> ExactlyOnceError:
    """Return the error by situation, in one sentence that names stream and place."""
    match problem:
        case ClientError():
            return _error_of_answer(problem, request)
        case NoCredentialsError() | PartialCredentialsError():
            return LoginMissing(
                f"There is no login with which to read stream {request.stream} of {request.place}; name a secret in "
                "source.kinesis.secretRef, or give the service account a web identity."
            )
        case ParamValidationError():
            return SourceRefused(
                f"{request.stream!r} cannot be the name or ARN of a stream of {request.place}; correct "
                "source.kinesis.streamName or streamArn."
            )
        case SSLError() if _is_untrusted(problem):
            return SourceRefused(
                f"{request.place} cannot be asked for stream {request.stream}: its certificate is not trusted, or it speaks no "
                "TLS; correct source.kinesis.endpoint."
            )
        case BotoCoreError() if not isinstance(problem, _SILENT):
            return SourceRefused(
                f"No call of {request.place} can be made for stream {request.stream} ({type(problem).__name__}); correct "
                "source.kinesis.region, endpoint, or the secret that secretRef names."
            )
        case BotoCoreError():
            return SourceUnreachable(f"{request.place} did not answer for {request.what}: {_silence_of(problem)}.")
        case _:
            return not_kinesis(problem, request)


def not_kinesis(problem: Exception, request: Request) -> NotKinesis:
    """Return the error for an answer that Kinesis does not give."""
    match problem:
        case KeyError():
            what = f"its answer has no {one_line(problem.args[0], _MOST_OF_CODE)}"
        case ValueError() | TypeError():
            what = one_line(str(problem))
        case _:
            what = f"its answer cannot be read ({type(problem).__name__})"
    return NotKinesis(
        f"What answers {request.action} of {request.what} at {request.place} is not Kinesis: {what}; correct "
        "source.kinesis.endpoint."
    )


def _is_untrusted(problem: Exception) -> bool:
    return isinstance(problem, SSLError) and any(said in str(problem) for said in _UNTRUSTED)


def _error_of_answer(problem: ClientError, request: Request) -> ExactlyOnceError:
    code, said = code_of(problem), message_of(problem)
    if problem.operation_name == "AssumeRoleWithWebIdentity":
        return _error_of_identity(problem, request)
    error = _refused(code, said, request) or _not_now(code, request)
    if error is not None:
        return error
    if may_be_tried_again(problem):
        return SourceUnreachable(f"{request.place} answered {code} for {request.what} ({said or 'no details given'}).")
    if code.isdigit():  # the status of an answer that names no error, as all of Kinesis' do
        return not_kinesis(ValueError(f"it answered {code} ({said or 'no details given'})"), request)
    return SourceRefused(
        f"{request.place} refuses {request.action} of {request.what}: {code} ({said or 'no details given'})."
    )


def _error_of_identity(problem: ClientError, request: Request) -> ExactlyOnceError:
    code, said = code_of(problem), message_of(problem)
    if may_be_tried_again(problem):
        return SourceUnreachable(
            f"AWS does not say now whether the service account's web identity is accepted for stream {request.stream} of "
            f"{request.place}: it answered {code} ({said or 'no details given'})."
        )
    return LoginRefused(
        f"The service account's web identity is not accepted for stream {request.stream} of {request.place} ({said or code}); "
        "correct the role that its annotation names, or whom that role trusts."
    )


def _refused(code: str, said: str, request: Request) -> ExactlyOnceError | None:
    if code in _KMS or (code in NOT_ALLOWED and "kms:" in said):
        return SourceRefused(
            f"Stream {request.stream} of {request.place} is encrypted with a key that may not be used ({code}: {said}); grant "
            "the login kms:Decrypt on that key, and make sure that the key is enabled."
        )
    if code in NOT_ALLOWED:
        return SourceRefused(
            f"The login may not call {request.action} on stream {request.stream} of {request.place}; allow that in "
            "its IAM policy."
        )
    if code in EXPIRED_LOGIN:
        return LoginRefused(
            f"The login for stream {request.stream} of {request.place} has expired ({code}); put a new one into the secret "
            "that source.kinesis.secretRef names."
        )
    if code in WRONG_LOGIN:
        return LoginRefused(
            f"{request.place} does not accept the login for stream {request.stream} ({code}); correct the secret that "
            "source.kinesis.secretRef names, or source.kinesis.region."
        )
    if code == "ResourceNotFoundException":
        return _missing(request)
    if code == "InvalidArgumentException" and "sequencenumber" in said.lower().replace(" ", ""):
        return SequenceNumberRefused(
            f"{request.place} says that a sequence number is not of {request.what} ({said}); the stream may have been "
            "deleted and created again, or the position may be of another stream."
        )
    return None


def _not_now(code: str, request: Request) -> ExactlyOnceError | None:
    if code == "ExpiredIteratorException":
        return IteratorExpired(f"An iterator of {request.what} is too old.")
    if code == "ExpiredNextTokenException":
        return ListingExpired(f"The list of the shards of stream {request.stream} took too long.")
    if code == "ResourceInUseException":
        return SourceUnreachable(f"Stream {request.stream} of {request.place} is being created or deleted.")
    if code in _THROTTLES:
        return Throttled(
            f"{request.place} keeps refusing {request.action} of {request.what} ({code}); other consumers may use up its "
            "limits."
        )
    return None


def _missing(request: Request) -> OriginMissing:
    if request.shard is not None:
        return ShardMissing(
            f"{request.place} no longer lists shard {request.shard} of stream {request.stream}; its records have expired, or "
            "the stream was deleted and created again."
        )
    return OriginMissing(
        f"There is no stream {request.stream} in {request.place}; create it, or correct source.kinesis.streamName, region "
        "or endpoint."
    )


def _silence_of(problem: Exception) -> str:
    match problem:
        case ConnectTimeoutError() | EndpointConnectionError():
            return "there is no connection; check source.kinesis.region and endpoint"
        case ReadTimeoutError():
            return "there is no answer in time"
        case _:
            return f"the call failed ({type(problem).__name__})"

"""What Kinesis answers, and how it does not, as errors in one sentence each. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.aws import errors
from exactlyonce.aws.errors import AwsError
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceRefused, SourceUnreachable


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


def sentence_of(error: AwsError, request: Request) -> ExactlyOnceError:
    """Return the error by situation, in one sentence that names stream and place."""
    match error:
        case errors.LoginMissing():
            return LoginMissing(
                f"There is no login with which to read stream {request.stream} of {request.place}; name a secret in "
                "source.kinesis.secretRef, or give the service account a web identity."
            )
        case errors.Foreign():
            return NotKinesis(
                f"What answers {request.action} of {request.what} at {request.place} is not Kinesis: {error.how}; correct "
                "source.kinesis.endpoint."
            )
        case _ if error.is_of_identity:
            return _of_identity(error, request)
        case errors.WrongSetting():
            return _of_settings(error, request)
        case errors.NotAllowed() | errors.LoginRefused():
            return _of_login(error, request)
        case errors.Missing():
            return _missing(request)
        case errors.Refused():
            return _of_kinesis_alone(error, request)
        case _:
            return _not_now(error, request)


def _not_now(error: AwsError, request: Request) -> SourceUnreachable:
    match error:
        case errors.Busy():
            return SourceUnreachable(f"Stream {request.stream} of {request.place} is being created or deleted.")
        case errors.Throttled():
            return Throttled(
                f"{request.place} keeps refusing {request.action} of {request.what} ({error.code}); other consumers may use up "
                "its limits."
            )
        case _ if error.code:
            said = error.said or "no details given"
            return SourceUnreachable(f"{request.place} answered {error.code} for {request.what} ({said}).")
        case errors.Unreachable():
            return SourceUnreachable(
                f"{request.place} did not answer for {request.what}: {error.how}; check source.kinesis.region and endpoint."
            )
        case _:
            return SourceUnreachable(f"{request.place} did not answer for {request.what}: {error.how}.")


def _of_identity(error: AwsError, request: Request) -> ExactlyOnceError:
    if error.may_pass:
        return SourceUnreachable(
            f"AWS does not say now whether the service account's web identity is accepted for stream {request.stream} of "
            f"{request.place}: it answered {error.code} ({error.said or 'no details given'})."
        )
    return LoginRefused(
        f"The service account's web identity is not accepted for stream {request.stream} of {request.place} "
        f"({error.said or error.code}); correct the role that its annotation names, or whom that role trusts."
    )


def _of_settings(error: AwsError, request: Request) -> SourceRefused:
    match error:
        case errors.WrongName():
            return SourceRefused(
                f"{request.stream!r} cannot be the name or ARN of a stream of {request.place}; correct "
                "source.kinesis.streamName or streamArn."
            )
        case errors.Untrusted():
            return SourceRefused(
                f"{request.place} cannot be asked for stream {request.stream}: {error.how}; correct source.kinesis.endpoint."
            )
        case _:
            return SourceRefused(
                f"Stream {request.stream} of {request.place} cannot be asked for: {error.how}; correct source.kinesis.region, "
                "endpoint, or the secret that secretRef names."
            )


def _of_login(error: AwsError, request: Request) -> SourceRefused:
    match error:
        case errors.NotAllowed() if error.code.startswith("KMS") or "kms:" in error.said:
            return SourceRefused(
                f"Stream {request.stream} of {request.place} is encrypted with a key that may not be used ({error.code}: "
                f"{error.said}); grant the login kms:Decrypt on that key, and make sure that the key is enabled."
            )
        case errors.NotAllowed():
            return SourceRefused(
                f"The login may not call {request.action} on stream {request.stream} of {request.place}; allow that in "
                "its IAM policy."
            )
        case errors.LoginExpired():
            return LoginRefused(
                f"The login for stream {request.stream} of {request.place} has expired ({error.code}); put a new one into the "
                "secret that source.kinesis.secretRef names."
            )
        case _:
            return LoginRefused(
                f"{request.place} does not accept the login for stream {request.stream} ({error.code}); correct the secret "
                "that source.kinesis.secretRef names, or source.kinesis.region."
            )


def _of_kinesis_alone(error: AwsError, request: Request) -> ExactlyOnceError:
    """Return the error for a code that other services do not have, or that nothing is known of."""
    if error.code == "ExpiredIteratorException":
        return IteratorExpired(f"An iterator of {request.what} is too old.")
    if error.code == "ExpiredNextTokenException":
        return ListingExpired(f"The list of the shards of stream {request.stream} took too long.")
    if error.code == "InvalidArgumentException" and "sequencenumber" in error.said.lower().replace(" ", ""):
        return SequenceNumberRefused(
            f"{request.place} says that a sequence number is not of {request.what} ({error.said}); the stream may have been "
            "deleted and created again, or the position may be of another stream."
        )
    said = error.said or "no details given"
    return SourceRefused(f"{request.place} refuses {request.action} of {request.what}: {error.code} ({said}).")


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

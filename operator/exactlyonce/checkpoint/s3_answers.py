"""What an S3 service answers, and how it does not, in words for a person. Performs no I/O."""

from __future__ import annotations

from exactlyonce.aws import errors
from exactlyonce.aws.errors import AwsError
from exactlyonce.errors import StoreForbidden, StoreUnreachable

UNKNOWN_CONDITION = {"NotImplemented", "501"}
"""The codes of a service that does not know the condition of a request."""

_ELSEWHERE = {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


def sentence_of(error: AwsError, act: str, where: str, bucket: str, service: str) -> StoreUnreachable:
    """Return the error by situation: that a place could not be read, written or whatever the `act` is, and why."""
    kind = StoreForbidden if isinstance(error, errors.NotAllowed) and not error.is_of_identity else StoreUnreachable
    return kind(f"{where} could not be {act}: {_told_of(error, bucket, service)}")


def _told_of(error: AwsError, bucket: str, service: str) -> str:
    said = error.said or error.code
    match error:
        case errors.LoginMissing():
            return "there is no login; name a secret in secretRef, or give the service account a web identity."
        case _ if error.is_of_identity:
            return (
                f"the service account's web identity is not accepted ({said}); correct the role that its annotation "
                "names, or whom that role trusts."
            )
        case errors.NotAllowed():
            return (
                f"access is denied ({said}); the login needs s3:ListBucket on {bucket}, and s3:GetObject, "
                "s3:PutObject and s3:DeleteObject below it."
            )
        case errors.LoginRefused():
            return f"the login is not accepted ({error.code}); correct the secret that secretRef names."
        case errors.Foreign():  # nothing of the answer: it may be that of any server that a tenant named
            return f"what answers is not an S3 service; check that {service} is reachable."
        case errors.Refused() if error.code == "NoSuchBucket":
            return f"there is no bucket {bucket}; make it, or correct location."
        case errors.Refused() if error.code in _ELSEWHERE:
            return f"bucket {bucket} is in another region ({said}); set region."
        case _ if error.code:
            return f"the service answered {error.code} ({error.said or 'no details given'})."
        case _:
            return f"{error.how}; check that {service} is reachable."

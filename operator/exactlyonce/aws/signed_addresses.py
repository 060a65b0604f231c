"""Addresses of requests that are signed and never sent: whoever is given one is shown who signed it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from exactlyonce.schema.aws_login import AwsLogin

if TYPE_CHECKING:
    from botocore.credentials import Credentials


@dataclass(frozen=True, slots=True)
class SignedAddress:
    """An address, and the moment (time.time) at which its signature ends."""

    url: str
    ends_at: float


class Signer:
    """Signs addresses with a login; without one, with that of the process, such as a web identity, which renews itself."""

    def __init__(self, login: AwsLogin | None) -> None:
        from botocore.credentials import Credentials
        from botocore.session import Session

        self._own: Credentials | None
        if login is None:
            self._own = Session().get_credentials()
        else:
            self._own = Credentials(login.access_key, login.secret_key, login.session_token)

    def signed(self, url: str, action: str, service: str, region: str, seconds: int) -> SignedAddress | None:
        """Return the address of a request for an action; None if the process has no login."""
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        if self._own is None:
            return None
        asked = AWSRequest("GET", url, params={"Action": action})
        SigV4QueryAuth(self._own.get_frozen_credentials(), service, region, expires=seconds).add_auth(asked)
        signed_at = datetime.strptime(parse_qs(urlsplit(asked.url).query)["X-Amz-Date"][0], "%Y%m%dT%H%M%S%z")
        asked.params = {"User-Agent": "exactlyonce"}
        return SignedAddress(asked.prepare().url, signed_at.timestamp() + seconds)

"""Roles that service accounts take with their tokens, and what each role may reach, around moto, which checks neither.

Nothing is checked before the first role is there; then who has no login of the testbed's own needs one of a role. A token's
subject and audience are looked at; whether the cluster has signed it, is not. `asked` tells which role has done what.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from testbed.kinesis import ACCESS_KEY, AUDIENCE, ROLES_PATH
from testbed.moto_server import Application

_FORBIDDEN = "400 Bad Request"
_NAMES = ("StreamARN", "TableName")


@dataclass
class Roles:
    """Roles by ARN, each with the subject that may take it and the names that it may reach."""

    subjects: dict[str, str] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    def trust(self, role: str, subject: str, names: list[str]) -> None:
        """Let the bearer of a token of this subject take a role, which may reach these names."""
        self.subjects[role], self.names[role] = subject, names

    def may_be_taken(self, role: str, token: str) -> bool:
        """Whether a token is of who may take the role."""
        claims = _claims_of(token)
        of_aws = AUDIENCE in claims.get("aud", ())
        return of_aws and self.subjects.get(role) == claims.get("sub", "")

    def refusal(self, key: str, action: str, name: str) -> str | None:
        """Return why the login with this key may not do something, or None; what may be done is written down."""
        role = _role_of(key)
        if role is None:
            return "The security token included in the request is invalid."
        if name not in self.names[role]:
            return f"User: {role} is not authorized to perform: {action} on resource: {name or '*'}"
        self.asked.append((role, action, name))
        return None


def with_roles(application: Application) -> Application:
    """Put the roles in front of moto."""
    roles = Roles()

    def serve(environment: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        environment["wsgi.input"] = io.BytesIO(body)
        if environment["PATH_INFO"] == ROLES_PATH:
            respond("200 OK", [("Content-Type", "application/json")])
            if body:
                roles.trust(**json.loads(body))
            return [json.dumps(roles.asked).encode()]
        told = _refusal(roles, environment, body) if roles.subjects else None
        if told is None:
            return application(environment, respond)
        code, message, kind = told
        respond(_FORBIDDEN, [("Content-Type", kind)])
        if kind == "text/xml":
            return [
                f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>".encode()
            ]
        return [json.dumps({"__type": code, "message": message}).encode()]

    return serve


def _refusal(roles: Roles, environment: Mapping[str, Any], body: bytes) -> tuple[str, str, str] | None:
    """Return code, message and form of what is refused."""
    target = environment.get("HTTP_X_AMZ_TARGET")
    if target is None:
        asked = {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}
        if asked.get("Action") != "AssumeRoleWithWebIdentity" or roles.may_be_taken(
            asked["RoleArn"], asked["WebIdentityToken"]
        ):
            return None
        return "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity", "text/xml"
    found = re.search(r"Credential=([^/]+)/\d+/[^/]+/([^/]+)/", environment.get("HTTP_AUTHORIZATION", ""))
    key, service = found.groups() if found else ("", "")
    if key == ACCESS_KEY:
        return None
    asked = json.loads(body or b"{}")
    name = next((str(asked[field]) for field in _NAMES if field in asked), "")
    told = roles.refusal(key, f"{service}:{target.rpartition('.')[2]}", name)
    return None if told is None else ("AccessDeniedException", told, "application/x-amz-json-1.1")


def _role_of(key: str) -> str | None:
    from moto.sts.models import sts_backends

    for backends in sts_backends.values():
        for backend in backends.values():
            for taken in backend.assumed_roles:
                if taken.access_key_id == key:
                    return str(taken.role_arn)
    return None


def _claims_of(token: str) -> dict[str, Any]:
    parts = token.split(".")
    try:
        return dict(json.loads(base64.urlsafe_b64decode(f"{parts[1]}==")))
    except (IndexError, ValueError, binascii.Error):
        return {}

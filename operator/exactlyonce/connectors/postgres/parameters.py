"""The libpq parameters that a stream's secret may set: an allowlist, and one sentence for everything else. Performs no I/O.

A secret is written by a tenant, and the operator connects with it from its own pod. A parameter that redirects the connection,
reads a file, or changes a time limit is therefore refused; the operator's and the driver's own parameters are added last (see
`postgres_connecting`). Source: https://www.postgresql.org/docs/17/libpq-connect.html#LIBPQ-PARAMKEYWORDS
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg2
import psycopg2.extensions

from exactlyonce.connectors.postgres.ledger_spec import SECRET_KEYS
from exactlyonce.errors import SecretMissing, SecretRefused

CERTIFICATE = "ca.crt"
"""Among the parameters, as in the secret: the certificates themselves. libpq takes the name of a file instead."""

DEFAULT_PORT = "5432"
MOST_HOSTS = 8

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_VERIFYING = ("require", "verify-ca", "verify-full")  # libpq treats require as verify-ca where it has a certificate
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SYSTEM = "system"

ALLOWED: Mapping[str, tuple[str, ...] | None] = {
    "host": None,
    "port": None,
    "dbname": None,
    "user": None,
    "password": None,
    "sslmode": _SSL_MODES,
    "sslrootcert": (_SYSTEM,),
    "sslnegotiation": ("postgres", "direct"),
    "ssl_min_protocol_version": ("TLSv1.2", "TLSv1.3"),
    "channel_binding": ("disable", "prefer", "require"),
    "gssencmode": ("disable",),
    "target_session_attrs": ("read-write",),
}
"""What a connection string may set, and to which values; None stands for any."""


@dataclass(frozen=True)
class _Reason:
    """Why a parameter is refused, and what its owner does instead."""

    message: str
    instead: str = "remove it"


_FILE = "it reads a file of the pod that connects"
_LIMIT = "the time limits of a connection are not the secret's to set"
_KERBEROS = "Kerberos would log in as the pod that connects"

_REASONS = {
    "hostaddr": _Reason("it connects to another server than the one that host names", "write the address as host"),
    "service": _Reason(_FILE, "write host, port, dbname, user and password out"),
    "servicefile": _Reason(_FILE, "write host, port, dbname, user and password out"),
    "passfile": _Reason(_FILE, "give the password in the key password"),
    "sslcert": _Reason(_FILE, "log in with a password"),
    "sslkey": _Reason(_FILE, "log in with a password"),
    "sslpassword": _Reason("it belongs to a key in a file of the pod that connects", "log in with a password"),
    "sslcrl": _Reason(_FILE),
    "sslcrldir": _Reason(_FILE),
    "sslkeylogfile": _Reason("it writes a file of the pod that connects"),
    "connect_timeout": _Reason(_LIMIT),
    "tcp_user_timeout": _Reason(_LIMIT),
    "keepalives": _Reason(_LIMIT),
    "keepalives_idle": _Reason(_LIMIT),
    "keepalives_interval": _Reason(_LIMIT),
    "keepalives_count": _Reason(_LIMIT),
    "options": _Reason(
        "it changes settings of the session that the ledger relies on", "set them with ALTER ROLE … SET for the role"
    ),
    "load_balance_hosts": _Reason("hosts are tried in the order in which they are written", "write them in that order"),
    "application_name": _Reason("sessions are named after their stream"),
    "fallback_application_name": _Reason("sessions are named after their stream"),
    "client_encoding": _Reason("every session uses UTF8"),
    "replication": _Reason("the ledger needs an ordinary session"),
    "krbsrvname": _Reason(_KERBEROS, "log in with a password"),
    "gsslib": _Reason(_KERBEROS, "log in with a password"),
    "gssdelegation": _Reason(_KERBEROS, "log in with a password"),
}

_VALUES = {
    "sslrootcert": _Reason(
        "it names a file of the pod that connects", f"put the certificate itself, as PEM, into the key {CERTIFICATE}"
    ),
    "gssencmode": _Reason(_KERBEROS, "remove it or write disable"),
    "target_session_attrs": _Reason("only a server that takes writes is ever used", "remove it or write read-write"),
}


def parameters_of(name: str, secret: Mapping[str, str]) -> dict[str, str]:
    """Return libpq's parameters from the keys (SECRET_KEYS) of the secret `name`, with the certificate as text.

    `uri` goes before the keys that it also gives, except those about TLS. Hosts and ports come out as libpq reads them: one
    port for each host, in lowercase.

    Raises:
        SecretMissing: if a key that is needed is not there.
        SecretRefused: if a key has a value that no stream may set; the sentence never shows it.
    """
    values = {key: value.strip() for key, value in secret.items() if key in SECRET_KEYS and value.strip()}
    where = dict.fromkeys(values, f"secret {name}")
    uri = values.pop("uri", None)
    if uri is not None:
        parsed = _parsed(name, uri)
        where |= dict.fromkeys(parsed, f"the uri of secret {name}")
        about_tls = {key: value for key, value in values.items() if "ssl" in key or key == CERTIFICATE}
        where |= dict.fromkeys(about_tls, f"secret {name}")
        values = {**parsed, **about_tls}
    missing = [key for key in ("host", "dbname", "user") if not values.get(key)]
    for key, value in values.items():
        _require_allowed(key, value, where[key])
    if missing:
        raise SecretMissing(
            f"Secret {name} lacks {', '.join(missing)}: a Postgres sink needs uri, or host, dbname, user and password."
        )
    values["host"], values["port"] = _servers(name, values["host"], values.get("port", DEFAULT_PORT))
    return {**values, **_trust(name, values)}


def _parsed(name: str, uri: str) -> dict[str, str]:
    try:
        # Neither the environment nor a file is read: PQconninfoParse adds no defaults.
        parsed: dict[str, str] = psycopg2.extensions.parse_dsn(uri)
    except psycopg2.ProgrammingError:
        # Its own words may quote a part of the string, such as the password.
        raise SecretRefused(
            f"The key uri of secret {name} is not a Postgres connection string; whoever may write the secret has to correct it."
        ) from None
    return {key: value for key, value in parsed.items() if value}


def _require_allowed(key: str, value: str, where: str) -> None:
    if key == CERTIFICATE:
        return
    if key not in ALLOWED:
        reason = _REASONS.get(key, _Reason(f"it is not one of {', '.join(ALLOWED)}"))
        raise SecretRefused(_sentence(key, where, reason))
    values = ALLOWED[key]
    if values is not None and value not in values:
        reason = _VALUES.get(key, _Reason("libpq has no such value for it", f"write {' or '.join(values)}"))
        raise SecretRefused(_sentence(key, where, reason, "so"))


def _sentence(key: str, where: str, reason: _Reason, so: str = "") -> str:
    sets = f"{where[0].upper()}{where[1:]} may not set {key}{' to this value' if so else ''}"
    return f"{sets}, because {reason.message}; whoever may write the secret has to {reason.instead}."


def _refused(name: str, what: str, instead: str) -> SecretRefused:
    return SecretRefused(f"Secret {name} {what}; whoever may write the secret has to {instead}.")


def _servers(name: str, hosts: str, ports: str) -> tuple[str, str]:
    """Return the hosts and a port for each, or refuse what libpq would read as a socket or a default."""
    refused = functools.partial(_refused, name)

    each_host = [host.strip().lower().rstrip(".") for host in hosts.split(",")]
    if any(not host for host in each_host):
        raise refused("names an empty host, which libpq takes for a socket of the pod", "name every host")
    if any(host.startswith(("/", "@")) or "\0" in host for host in each_host):
        raise refused(
            "names a Unix-domain socket as host, which is a file of the pod that connects",
            "write the server's name or address",
        )
    if len(each_host) > MOST_HOSTS:
        raise refused(f"names {len(each_host)} hosts, and {MOST_HOSTS} are allowed", "leave some out")
    each_port = [port.strip() or DEFAULT_PORT for port in ports.split(",")]
    each_port = each_port * len(each_host) if len(each_port) == 1 else each_port
    if len(each_port) != len(each_host):
        raise refused(f"names {len(each_host)} hosts and {len(each_port)} ports", "give one port, or one for each host")
    if any(not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536 for port in each_port):
        raise refused("names a port that is not a number from 1 to 65535", "correct it")
    return ",".join(each_host), ",".join(str(int(port)) for port in each_port)


def _trust(name: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return what the server's certificate is checked against; a check that libpq would skip in silence is refused."""
    refused = functools.partial(_refused, name)

    mode, text = values.get("sslmode"), values.get(CERTIFICATE)
    if text is not None:
        certificates = _CERTIFICATE.findall(text)
        if not certificates:
            raise refused(f"holds no certificate in the key {CERTIFICATE}", "give it as PEM")
        if mode is not None and mode not in _VERIFYING:
            raise refused(
                f"has the key {CERTIFICATE} with sslmode {mode}, which continues without checking the server",
                "set sslmode to verify-full or verify-ca",
            )
        if "sslrootcert" in values:
            raise refused(f"has sslrootcert beside the key {CERTIFICATE}", "keep one of the two")
        return {"sslmode": mode or "verify-full", CERTIFICATE: "\n".join(certificates) + "\n"}
    if "sslrootcert" in values:
        if mode not in (None, "verify-full"):
            raise refused("has sslrootcert system, which needs sslmode verify-full", "set that")
        return {"sslmode": "verify-full"}
    if mode in ("verify-ca", "verify-full"):
        raise refused(
            f"has sslmode {mode} and nothing to check the server's certificate against",
            f"add the key {CERTIFICATE} with the authority's certificate as PEM, or sslrootcert system for a public one",
        )
    return {}


def servers_of(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the servers that a connection may be made to, each as host:port, in an order that does not matter."""
    hosts = parameters["host"].split(",")
    ports = parameters.get("port", DEFAULT_PORT).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return tuple(sorted({f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)}))

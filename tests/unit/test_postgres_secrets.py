"""What a stream's Postgres secret may ask for: named keys, and never a redirection, a file of the pod or another limit."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest

from exactlyonce.connectors.postgres import connecting, connection
from exactlyonce.connectors.postgres.connecting import open_within
from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress, connect
from exactlyonce.errors import ExactlyOnceError, SecretMissing, SecretRefused

URI = "postgresql://lands:pass-canary@db.example:5433/shop"
KEYS = {"host": "db.example", "port": "5433", "dbname": "shop", "user": "lands", "password": "pass-canary"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

REFUSED = {
    "hostaddr": ("10.0.0.9", "write the address as host"),
    "service": ("other", "write host, port, dbname, user and password out"),
    "passfile": ("/var/run/secrets/other", "give the password in the key password"),
    "sslkey": ("/var/run/secrets/key", "log in with a password"),
    "sslcert": ("/var/run/secrets/crt", "log in with a password"),
    "sslpassword": ("canary", "log in with a password"),
    "sslcrl": ("/var/run/secrets/crl", "remove it"),
    "sslrootcert": ("/var/run/secrets/ca", "put the certificate itself, as PEM, into the key ca.crt"),
    "connect_timeout": ("0", "remove it"),
    "tcp_user_timeout": ("0", "remove it"),
    "keepalives": ("0", "remove it"),
    "keepalives_idle": ("0", "remove it"),
    "keepalives_interval": ("0", "remove it"),
    "keepalives_count": ("0", "remove it"),
    "options": ("-c statement_timeout=0", "set them with ALTER ROLE … SET for the role"),
    "load_balance_hosts": ("random", "write them in that order"),
    "target_session_attrs": ("any", "remove it or write read-write"),
    "application_name": ("mine", "remove it"),
    "client_encoding": ("LATIN1", "remove it"),
    "gssencmode": ("prefer", "remove it or write disable"),
    "krbsrvname": ("other", "log in with a password"),
    "replication": ("database", "remove it"),
    "require_auth": ("none", "remove it"),
    "sslmode": ("sometimes", "write disable or allow or prefer or require or verify-ca or verify-full"),
}
"""Parameters of libpq that no uri may set, or not to this value, and what is told to do instead."""


def address_of(**secret: str) -> PostgresAddress:
    return PostgresAddress.from_secret("warehouse", secret)


def sent(monkeypatch: pytest.MonkeyPatch, address: PostgresAddress, limits: Limits | None = None) -> dict[str, str]:
    """Return the parameters with which libpq would be asked to connect."""
    asked: list[dict[str, str]] = []

    class Connection:
        autocommit = False

    def note(seconds: float, parameters: dict[str, str]) -> Connection:
        asked.append(connecting.complete(parameters))
        return Connection()

    monkeypatch.setattr(connection, "open_within", note)
    connect(address, limits or Limits())
    return asked[0]


@pytest.mark.parametrize("key", REFUSED)
def test_a_uri_that_sets_anything_else_is_refused_in_one_sentence_that_says_who_does_what(key: str) -> None:
    value, instead = REFUSED[key]
    uri = psycopg2.extensions.make_dsn(URI, **{key: value})
    with pytest.raises(SecretRefused) as caught:
        address_of(uri=uri)
    sentence = str(caught.value)
    assert sentence.startswith(f"The uri of secret warehouse may not set {key}")
    assert sentence.endswith(f"whoever may write the secret has to {instead}.")
    assert "canary" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://lands:pass-canary@[db/shop",
        "host=db.example password='pass-canary",
        "postgresql://lands:pass-canary@db.example/shop?pass-canary=1",
    ],
)
def test_a_uri_that_does_not_parse_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(
        SecretRefused, match="The key uri of secret warehouse is not a Postgres connection string"
    ) as told:
        address_of(uri=text)
    assert "canary" not in str(told.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"host": "/var/run/postgresql"}, "names a Unix-domain socket as host, which is a file of the pod"),
        ({"host": "@abstract"}, "names a Unix-domain socket as host"),
        ({"host": "a,/tmp"}, "names a Unix-domain socket as host"),
        ({"host": "a,"}, "names an empty host, which libpq takes for a socket of the pod"),
        ({"host": ",".join("abcdefghi")}, "names 9 hosts, and 8 are allowed"),
        ({"host": "a,b,c", "port": "1,2"}, "names 3 hosts and 2 ports"),
        ({"port": "0"}, "names a port that is not a number from 1 to 65535"),
        ({"port": "5432 options=x"}, "names a port that is not a number from 1 to 65535"),
        ({"uri": "postgresql://lands:p@%2Fvar%2Frun/shop"}, "names a Unix-domain socket as host"),
    ],
)
def test_a_host_that_is_a_file_or_a_default_of_the_pod_is_refused(changes: dict[str, str], said: str) -> None:
    with pytest.raises(SecretRefused, match=f"^Secret warehouse {said}"):
        address_of(**{**KEYS, **changes})


def test_a_secret_without_what_is_needed_says_what_is_missing() -> None:
    with pytest.raises(SecretMissing, match="Secret warehouse lacks dbname, user: a Postgres sink needs uri, or host"):
        address_of(host="db.example")
    with pytest.raises(SecretMissing, match="lacks host"):
        address_of(uri="postgresql:///shop?user=lands")


def test_what_a_secret_may_ask_for_is_what_libpq_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"{URI}?sslmode=require&channel_binding=require&sslnegotiation=direct&ssl_min_protocol_version=TLSv1.3"
    asked = sent(monkeypatch, address_of(uri=f"{uri}&target_session_attrs=read-write&gssencmode=disable"))
    assert asked.items() >= {**KEYS, "sslmode": "require", "channel_binding": "require"}.items()
    assert (asked["sslnegotiation"], asked["ssl_min_protocol_version"]) == ("direct", "TLSv1.3")
    assert sent(monkeypatch, address_of(uri=URI)) == sent(monkeypatch, address_of(**KEYS))


def test_several_hosts_are_asked_for_the_one_that_takes_writes_and_share_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = address_of(uri="postgresql://lands@DB-1.example.,db-2.example:5433/shop")
    asked = sent(monkeypatch, address)
    assert (asked["host"], asked["port"]) == ("db-1.example,db-2.example", "5432,5433")
    assert asked["target_session_attrs"] == "read-write"
    assert str(address) == "lands@db-1.example,db-2.example:5432,5433/shop"
    many = sent(monkeypatch, address_of(**{**KEYS, "host": ",".join("abcdefgh")}))
    assert int(many["connect_timeout"]) * 8 <= Limits().reach_seconds


@pytest.mark.parametrize("limits", [Limits(), Limits(connect_seconds=3, network_seconds=9)])
def test_no_parameter_of_an_address_changes_a_limit(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    """The second line: an address that was made without the check has the limits all the same."""
    widened = dict.fromkeys(("connect_timeout", "tcp_user_timeout", "keepalives", "keepalives_idle"), "0")
    unchecked = PostgresAddress({**KEYS, **widened, "target_session_attrs": "any", "client_encoding": "LATIN1"})
    asked = sent(monkeypatch, unchecked, limits)
    assert asked["connect_timeout"] == str(limits.connect_seconds)
    assert asked["tcp_user_timeout"] == str(limits.network_seconds * 1000)
    assert (asked["keepalives"], asked["target_session_attrs"], asked["client_encoding"]) == ("1", "read-write", "UTF8")
    assert int(asked["keepalives_idle"]) > 0


def test_a_certificate_is_checked_from_a_file_of_this_process_that_is_made_again_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = sent(monkeypatch, address_of(**KEYS, **{"ca.crt": f"a comment\n{CERTIFICATE}"}))
    assert asked["sslmode"] == "verify-full", "who gives an authority wants it checked"
    file = Path(asked["sslrootcert"])
    assert file.read_text() == CERTIFICATE
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "ca.crt" not in asked
    file.unlink()
    again = sent(monkeypatch, address_of(**KEYS, **{"ca.crt": CERTIFICATE}))["sslrootcert"]
    assert (again, file.exists()) == (str(file), True)
    both = sent(monkeypatch, address_of(**KEYS, **{"ca.crt": CERTIFICATE + CERTIFICATE.replace("AAAA", "BBBB")}))
    assert Path(both["sslrootcert"]).read_text().count("BEGIN CERTIFICATE") == 2


def test_the_authorities_of_the_system_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = sent(monkeypatch, address_of(**KEYS, sslrootcert="system"))
    assert (asked["sslrootcert"], asked["sslmode"]) == ("system", "verify-full")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ca.crt": "no certificate"}, "holds no certificate in the key ca.crt"),
        ({"ca.crt": CERTIFICATE, "sslmode": "prefer"}, "sslmode prefer, which continues without checking the server"),
        ({"ca.crt": CERTIFICATE, "sslrootcert": "system"}, "has sslrootcert beside the key ca.crt"),
        ({"sslmode": "verify-full"}, "nothing to check the server's certificate against"),
        ({"sslmode": "verify-ca"}, "nothing to check the server's certificate against"),
        ({"sslrootcert": "system", "sslmode": "require"}, "sslrootcert system, which needs sslmode verify-full"),
    ],
)
def test_a_check_of_the_server_that_would_not_take_place_is_refused(changes: dict[str, str], said: str) -> None:
    with pytest.raises(SecretRefused, match=said):
        address_of(**{**KEYS, **changes})


def test_a_path_in_the_secrets_own_key_is_refused_as_it_is_in_a_uri() -> None:
    with pytest.raises(SecretRefused, match=r"^Secret warehouse may not set sslrootcert to this value.*ca\.crt"):
        address_of(**KEYS, sslrootcert="/var/run/secrets/ca")


def test_everything_that_libpq_would_look_up_elsewhere_has_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is libpq: a parameter with a variable of its own is one that a connection is made with otherwise."""
    asked = sent(monkeypatch, address_of(**KEYS))
    for variable, parameter in VARIABLES.items():
        assert parameter in asked, f"{variable} would be used"


VARIABLES = {
    "PGHOST": "host", "PGHOSTADDR": "hostaddr", "PGPORT": "port", "PGDATABASE": "dbname", "PGUSER": "user",
    "PGPASSWORD": "password", "PGPASSFILE": "passfile", "PGREQUIREAUTH": "require_auth",
    "PGCHANNELBINDING": "channel_binding", "PGOPTIONS": "options", "PGAPPNAME": "application_name",
    "PGSSLMODE": "sslmode", "PGSSLNEGOTIATION": "sslnegotiation", "PGSSLCOMPRESSION": "sslcompression",
    "PGSSLCERT": "sslcert", "PGSSLKEY": "sslkey", "PGSSLCERTMODE": "sslcertmode", "PGSSLROOTCERT": "sslrootcert",
    "PGSSLCRL": "sslcrl", "PGSSLCRLDIR": "sslcrldir", "PGSSLSNI": "sslsni", "PGREQUIREPEER": "requirepeer",
    "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version", "PGSSLMAXPROTOCOLVERSION": "ssl_max_protocol_version",
    "PGGSSENCMODE": "gssencmode", "PGKRBSRVNAME": "krbsrvname", "PGGSSDELEGATION": "gssdelegation",
    "PGCONNECT_TIMEOUT": "connect_timeout", "PGCLIENTENCODING": "client_encoding",
    "PGTARGETSESSIONATTRS": "target_session_attrs", "PGLOADBALANCEHOSTS": "load_balance_hosts",
}  # fmt: skip
"""Source: https://www.postgresql.org/docs/17/libpq-envars.html, but for those that no parameter stands for."""


class Hanging:
    """Stands for libpq: an attempt ends when it is let go, with a session where one is wanted."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.begun: list[str] = []
        self.closed = threading.Semaphore(0)
        self.answers: set[str] = set()

    def connect(self, **parameters: str) -> Any:
        """Be psycopg2.connect."""
        self.begun.append(parameters["host"])
        if parameters["host"] not in self.answers:
            self.let_go.wait(60)
        return self

    def close(self) -> None:
        """Be a connection that is closed."""
        self.closed.release()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    made = Hanging()
    monkeypatch.setattr(psycopg2, "connect", made.connect)
    yield made
    made.let_go.set()


def test_attempts_that_are_given_up_do_not_pile_up_and_what_comes_of_them_is_closed(hanging: Hanging) -> None:
    """libpq cannot be interrupted: what it is still at is bounded, however often a stream's pass comes again."""
    for _ in range(2):
        with pytest.raises(psycopg2.OperationalError, match="no session within"):
            open_within(0.01, {**KEYS, "host": "one"})
    with pytest.raises(psycopg2.OperationalError, match="earlier attempts to connect have not come to an end"):
        open_within(0.01, {**KEYS, "host": "one"})
    assert hanging.begun == ["one", "one"]
    hanging.let_go.set()
    assert all(hanging.closed.acquire(timeout=30) for _ in range(2))
    given: object = open_within(30, {**KEYS, "host": "one"})
    assert given is hanging, "and its place is free again"


def test_one_tenants_many_servers_that_hang_keep_nobody_from_a_server_that_answered_before(hanging: Hanging) -> None:
    hanging.answers = {"good"}
    open_within(30, {**KEYS, "host": "good"})
    for number in range(40):
        with pytest.raises(psycopg2.OperationalError):
            open_within(0.01, {**KEYS, "host": f"bad-{number}"})
    assert len(hanging.begun) < 20
    given: object = open_within(30, {**KEYS, "host": "good"})
    assert given is hanging


def test_the_variables_without_a_parameter_are_gone_when_libpq_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PGSERVICE", "PGSERVICEFILE", "PGDATESTYLE", "PGTZ", "PGGEQO")
    for name in names:
        monkeypatch.setenv(name, "of-the-operator")
    with pytest.raises(ExactlyOnceError, match="does not answer"):
        connect(PostgresAddress({**KEYS, "host": "127.0.0.1", "port": "1"}), Limits(connect_seconds=2))
    assert not [name for name in names if name in os.environ]

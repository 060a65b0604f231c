"""TLS to the servers of Doris: what is loaded by it, whose certificates are trusted, and what is never sent without it."""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.connectors.doris.answers import LabelUsed, Settled, Taken
from exactlyonce.connectors.doris.spec import DorisSink, Tls
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.connectors.doris import exchange as exchanges
from exactlyonce_spark.connectors.doris.client import DorisClient, DorisRefused, DorisUnreachable, Operation
from exactlyonce_spark.connectors.doris.connector import prepared_doris
from exactlyonce_spark.connectors.doris.exchange import Node
from exactlyonce_spark.connectors.doris.query_client import QueryClient
from exactlyonce_spark.connectors.doris.tls import SecureSocket, Trust, trust_of
from exactlyonce_spark.load_labels import LoadLabels
from testbed.doris.servers import StandIn
from tests.certificates import certificate
from tests.doris import DATABASE, ORDERS, PASSWORD, client, ids, lines
from tests.doris_broker import Folder

COLUMNS = ("id", "note")
EVERY, FRONTENDS = frozenset({"frontend", "backend"}), frozenset({"frontend"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Path:
    return certificate(folder, "doris")


@pytest.fixture(scope="module")
def another(folder: Path) -> Path:
    return certificate(folder, "another")


def started(certificate: Path | None, secure: frozenset[str], **changed: Any) -> StandIn:
    stand_in = StandIn(certificate=certificate, secure=secure, **changed)
    stand_in.cluster.create(DATABASE, ORDERS)
    return stand_in


@pytest.fixture
def server(ours: Path) -> Iterator[StandIn]:
    """All of whose servers speak TLS."""
    with started(ours, EVERY) as stand_in:
        yield stand_in


def trusting(server: StandIn, certificate: Path, tls: Tls = Tls.ALL) -> DorisClient:
    return replace(client(server.frontend), trust=trust_of(tls, certificate.read_text()))


@pytest.mark.parametrize(
    ("tls", "secure", "backend_scheme"),
    [(Tls.ALL, EVERY, None), (Tls.FRONTENDS, FRONTENDS, None), (Tls.FRONTENDS, FRONTENDS, "http")],
    ids=["all", "frontends alone, in releases that name backends by https", "frontends alone"],
)
def test_rows_are_loaded_and_committed_by_tls(
    ours: Path, tls: Tls, secure: frozenset[str], backend_scheme: str | None
) -> None:
    rows = [{"id": number, "note": "x" * 20} for number in range(20_000)]
    with started(ours, secure, backend_scheme=backend_scheme) as server:
        one = trusting(server, ours, tls)
        assert one.schema().columns[0].name == "id"
        taken = one.load("a", COLUMNS, lambda: (memoryview(lines(row)) for row in rows))
        assert isinstance(taken, Taken)
        assert one.settle(Operation.COMMIT, taken.transaction_id) is Settled.DONE_NOW
        assert ids(server) == list(range(len(rows)))
        (body,) = (one.body for one in server.seen if one.server == "backend" and one.body)
        assert [json.loads(line) for line in body.splitlines()] == rows


def test_a_backend_that_refuses_the_header_is_sent_no_rows_by_tls_either(server: StandIn, ours: Path) -> None:
    one = trusting(server, ours)
    assert isinstance(one.load("a", COLUMNS, lambda: [lines({"id": 1})]), Taken)
    sent: list[int] = []

    def body() -> Iterator[bytes]:
        sent.append(1)
        yield lines({"id": 2})

    assert isinstance(one.load("a", COLUMNS, body), LabelUsed)
    assert sent == []


def assert_not_trusted(one: DorisClient, server: StandIn, name: str, why: str = "self-signed certificate") -> None:
    with pytest.raises(DorisRefused, match=f"The certificate of {name} is not trusted") as told:
        one.load("a", COLUMNS, lambda: [lines({"id": 1})])
    words = str(told.value)
    assert why in words
    assert words.endswith("into the key ca.crt of the secret that sink.doris.secretRef names.")
    assert "\n" not in words
    assert not [one for one in server.seen if one.server == "backend"]


def test_a_frontend_of_another_ca_is_sent_nothing(server: StandIn, another: Path) -> None:
    assert_not_trusted(trusting(server, another), server, server.frontend)
    assert server.seen == []


def test_a_frontend_of_another_name_is_sent_nothing(folder: Path) -> None:
    elsewhere = certificate(folder, "elsewhere", "10.0.0.1")
    with started(elsewhere, EVERY) as server:
        assert_not_trusted(trusting(server, elsewhere), server, server.frontend, "IP address mismatch")
        assert server.seen == []


def test_a_backend_of_another_ca_is_sent_neither_login_nor_rows(server: StandIn, ours: Path, another: Path) -> None:
    server.stop("backend")
    server.certificate = another
    server.start("backend")
    assert_not_trusted(trusting(server, ours), server, server.backend)


def test_with_tls_everywhere_a_redirect_away_from_it_is_not_followed(ours: Path) -> None:
    with started(ours, FRONTENDS, backend_scheme="http") as server:
        with pytest.raises(DorisRefused, match=r"away from https, .+ All needs enable_tls at every server of Doris;"):
            trusting(server, ours).load("a", COLUMNS, lambda: [lines({"id": 1})])
        assert [one.server for one in server.seen] == ["frontend"]


def test_without_tls_a_frontend_that_insists_on_it_is_told_with_the_field(server: StandIn, ours: Path) -> None:
    """RestBaseController.java, redirectToHttps: with enable_https, a question by http is sent to https_port."""
    with started(None, frozenset()) as plain:
        plain.redirects_to = f"https://{server.frontend}/api/{DATABASE}/orders/_stream_load?"
        with pytest.raises(
            DorisRefused, match=r"away from http, .+ It speaks TLS: set sink\.doris\.tls, and name its port"
        ):
            client(plain.frontend).load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert server.seen == []


@pytest.mark.parametrize("tls", [Tls.FRONTENDS, Tls.ALL])
def test_servers_that_speak_no_tls_are_told_as_such_and_sent_nothing(ours: Path, tls: Tls) -> None:
    with started(None, frozenset()) as server:
        with pytest.raises(DorisUnreachable, match="it does not speak TLS"):
            trusting(server, ours, tls).schema()
        assert server.seen == []


def test_a_backend_that_speaks_no_tls_is_told_as_such_and_sent_nothing(ours: Path) -> None:
    with started(ours, FRONTENDS) as server:
        with pytest.raises(DorisUnreachable, match=f"its backend {server.backend}, .*it does not speak TLS"):
            trusting(server, ours).load("a", COLUMNS, lambda: [lines({"id": 1})])
        assert [one.server for one in server.seen] == ["frontend"]


def sink_of(server: StandIn, tls: str) -> DorisSink:
    where = {"frontends": [server.frontend], "database": DATABASE, "table": "orders"}
    return DorisSink.model_validate({**where, "tls": tls, "retries": 0, "secretRef": {"name": "doris"}})


def test_the_secret_has_the_ca(server: StandIn, ours: Path) -> None:
    secret = {"user": "loader", "password": PASSWORD, "ca.crt": ours.read_text()}
    labels = LoadLabels("shop/orders", "token-1")
    assert prepared_doris(sink_of(server, "All"), lambda _: secret, labels, Epoch(1)).table.columns[0].name == "id"
    assert {one.server for one in server.seen} == {"frontend", "backend"}


@pytest.mark.parametrize("text", ["canary", "-----BEGIN CERTIFICATE-----\ncanary\n-----END CERTIFICATE-----", "ä"])
def test_what_is_no_certificate_is_told_by_one_sentence_without_it(server: StandIn, text: str) -> None:
    secret = {"user": "loader", "password": PASSWORD, "ca.crt": text}
    with pytest.raises(ExactlyOnceError, match=r"The key ca\.crt of .* holds no certificate; put") as told:
        prepared_doris(sink_of(server, "All"), lambda _: secret, LoadLabels("shop/orders", "token-1"), Epoch(1))
    assert ("canary" in str(told.value), server.seen) == (False, [])


def test_without_a_ca_those_of_the_machine_are_trusted_and_no_other(server: StandIn) -> None:
    trust = trust_of(Tls.ALL, None)
    assert trust.frontends is not None
    assert (trust.frontends.verify_mode, trust.frontends.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert_not_trusted(replace(client(server.frontend), trust=trust), server, server.frontend)


def test_nothing_that_is_shown_has_a_context(ours: Path) -> None:
    assert repr(trust_of(Tls.ALL, ours.read_text())) == "Trust()"


@pytest.fixture
def connected(ours: Path) -> Iterator[tuple[SecureSocket, ssl.SSLSocket]]:
    """Both ends of a connection."""
    theirs_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs_context.load_cert_chain(ours, ours.with_suffix(".key"))
    context = trust_of(Tls.ALL, ours.read_text()).frontends
    assert context is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[ssl.SSLSocket] = []

        def accept() -> None:
            accepted.append(theirs_context.wrap_socket(server.accept()[0], server_side=True))

        other = threading.Thread(target=accept)
        other.start()
        sock = SecureSocket(socket.create_connection(server.getsockname()), context, "127.0.0.1")
        sock.shake_hands()
        other.join()
    with accepted[0] as theirs:
        yield sock, theirs
    sock.close()


def test_a_status_line_that_comes_in_pieces_is_read_as_a_whole_and_left_to_be_read(
    connected: tuple[SecureSocket, ssl.SSLSocket],
) -> None:
    sock, theirs = connected
    theirs.sendall(b"HTTP/1.1 1")
    rest = threading.Timer(0.05, theirs.sendall, (b"00 Continue\r\n\r\n",))
    rest.start()
    assert exchanges._is_asked_for_body(sock)
    rest.join()
    assert sock.makefile("rb").readline() == b"HTTP/1.1 100 Continue\r\n"


def test_a_server_that_never_asks_is_sent_the_body_after_a_while(
    connected: tuple[SecureSocket, ssl.SSLSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "CONTINUE_SECONDS", 0.05)
    assert exchanges._is_asked_for_body(connected[0])


def test_a_server_that_never_answers_by_tls_ends_with_the_time_of_a_request(ours: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours, ours.with_suffix(".key"))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError), context.wrap_socket(server.accept()[0], server_side=True) as connection:
                while connection.recv(65536):
                    """Take the request, and wait for the other side to end."""

        threading.Thread(target=accept, daemon=True).start()
        one = replace(client(f"127.0.0.1:{server.getsockname()[1]}"), request_seconds=0.4)
        with pytest.raises(DorisUnreachable, match=r"no whole answer within 0\.4 seconds"):
            replace(one, trust=trust_of(Tls.ALL, ours.read_text())).state_of("a")


def test_a_server_that_never_shakes_hands_ends_with_the_time_of_a_connection(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends a record of a handshake, byte by byte, so no single step takes long."""
    monkeypatch.setattr(exchanges, "CONNECT_SECONDS", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"\x16\x03\x03\x40\x00")
                while not select.select([connection], [], [], 0.05)[0]:  # until the other side has ended it
                    connection.sendall(b"\x02")

        dripping = threading.Thread(target=drip)
        dripping.start()
        one = client(f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(DorisUnreachable, match="No frontend of Doris answers"):
            replace(one, trust=trust_of(Tls.ALL, ours.read_text())).schema()
        dripping.join()


def query_client(port: int, trust: Trust) -> QueryClient:
    return QueryClient((Node("127.0.0.1", port),), client().login, DATABASE, 5.0, (), trust.backends)


def test_a_query_port_without_tls_is_told_nothing(ours: Path) -> None:
    with started(None, frozenset(), files=Folder()) as plain, pytest.raises(DorisUnreachable, match="SSL is required"):
        query_client(plain.query_port, trust_of(Tls.ALL, ours.read_text())).now_milliseconds()


GREETING = (
    *(b"\x0a", b"5.7.99\0", b"\1\0\0\0", b"saltsalt\0", (0x8A00).to_bytes(2, "little"), b"\x2d", b"\2\0"),
    *((0x8).to_bytes(2, "little"), b"\x15", b"\0" * 10, b"saltsaltsalt\0", b"mysql_native_password\0"),
)
"""Of MySQL's protocol, HandshakeV10: PROTOCOL_41, SSL, SECURE_CONNECTION and PLUGIN_AUTH."""
DENIED = b"\xff" + (1045).to_bytes(2, "little") + b"#28000Access denied"


@contextmanager
def query_port(certificate: Path, heard: list[bytes]) -> Iterator[int]:
    """Greet, go over to TLS, note the login and refuse it.

    The stand-in's query port is not asked, since mysql-mimic loses what PyMySQL sends before it is ready.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            plain, greeting = server.accept()[0], b"".join(GREETING)
            with plain, suppress(OSError):
                plain.sendall(len(greeting).to_bytes(3, "little") + b"\0" + greeting)
                plain.recv(36, socket.MSG_WAITALL)
                with context.wrap_socket(plain, server_side=True) as secure:
                    heard.append(secure.recv(65536))
                    secure.sendall(len(DENIED).to_bytes(3, "little") + b"\3" + DENIED)

        serving = threading.Thread(target=serve)
        serving.start()
        yield server.getsockname()[1]
        serving.join()


def test_the_query_port_gets_the_login_by_tls(ours: Path) -> None:
    heard: list[bytes] = []
    trust = trust_of(Tls.ALL, ours.read_text())
    with query_port(ours, heard) as port, pytest.raises(DorisRefused, match="Access denied"):
        query_client(port, trust).now_milliseconds()
    assert b"loader" in heard[0]


def test_a_query_port_of_another_ca_gets_no_login(ours: Path, another: Path) -> None:
    heard: list[bytes] = []
    trust = trust_of(Tls.ALL, ours.read_text())
    asks: tuple[Callable[[QueryClient], object], ...] = (
        lambda one: one.now_milliseconds(),
        lambda one: one.submit("LOAD", ()),
    )
    for ask in asks:
        with query_port(another, heard) as port, pytest.raises(DorisRefused) as told:
            ask(query_client(port, trust))
        assert f"The certificate of 127.0.0.1:{port} is not trusted (self-signed certificate)" in str(told.value)
        assert str(told.value).endswith("into the key ca.crt of the secret that sink.doris.secretRef names.")
    assert heard == []

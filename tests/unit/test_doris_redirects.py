"""Where a frontend of Doris may send our login and our rows, and where it may not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactlyonce_spark.connectors.doris.client import DorisRefused, DorisUnreachable, LoadUnanswered, Operation
from exactlyonce_spark.connectors.doris.redirects import RedirectRefused, address_of_redirected, redirected
from testbed.doris.servers import StandIn
from tests.doris import DATABASE, client, doris, lines, listener

COLUMNS = ("id", "note")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


LOCATIONS = {
    "https://127.0.0.1:9/api/shop/orders/_stream_load": "away from http, which is what sink.doris.tls asks for",
    "ftp://127.0.0.1:9/api/shop/orders/_stream_load": "away from http, which is what sink.doris.tls asks for",
    "http://127.0.0.1:9/latest/meta-data": "to another path",
    "http://127.0.0.1:9/api/shop/others/_stream_load": "to another path",
    "http://127.0.0.1/api/shop/orders/_stream_load": "to what is not an address",
    "http://127.0.0.1:99999/api/shop/orders/_stream_load": "to what is not an address",
    "/api/shop/orders/_stream_load": "to what is not an address",
    "": "to what is not an address",
    "http://169.254.169.254:80/api/shop/orders/_stream_load": "to an address of the machine that asks",
}


@pytest.mark.parametrize("location", LOCATIONS)
def test_a_frontend_cannot_send_us_anywhere(server: StandIn, location: str) -> None:
    server.redirects_to = location
    with pytest.raises(DorisRefused, match=f"sends us {LOCATIONS[location]}; nothing was sent there"):
        client(server.frontend).load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert [one.server for one in server.seen] == ["frontend"]


@pytest.mark.parametrize(
    ("location", "advice"),
    [("https://be:8050/x", "It speaks TLS: set sink.doris.tls"), ("http://be:8040/y", "Let Doris name its servers by")],
)
def test_each_refusal_has_the_advice_that_ends_it(location: str, advice: str) -> None:
    with pytest.raises(RedirectRefused) as told:
        redirected(location, "/x")
    assert told.value.advice.startswith(advice)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "[::1]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fd00:ec2::23]",
        "[fd20:ce::254]",
        "[fd00:c1::a9fe:a9fe]",
        "100.100.100.200",
        "168.63.129.16",
        "[::ffff:100.100.100.200]",
    ],
)
def test_a_frontend_elsewhere_cannot_send_us_to_our_own_machine(host: str) -> None:
    there = redirected(f"http://{host}:8040/x", "/x")
    with pytest.raises(RedirectRefused):
        address_of_redirected(there, "10.0.0.1")


@pytest.mark.parametrize("host", ["10.1.2.3", "192.168.0.7", "203.0.113.5", "[fd00::7]"])
def test_a_frontend_sends_us_to_backends_of_its_network(host: str) -> None:
    assert address_of_redirected(redirected(f"http://u:p@{host}:8040/x?", "/x"), "10.0.0.1") == host.strip("[]")


def test_a_backend_whose_name_has_no_address_here_is_named_and_not_the_frontend(server: StandIn) -> None:
    server.redirects_to = f"http://be-1.invalid:8040/api/{DATABASE}/_stream_load_2pc"
    told = "its backend be-1.invalid:8040, which cannot be reached from here \\(its name has no address\\)"
    with pytest.raises(DorisUnreachable, match=told):
        client(server.frontend).settle(Operation.COMMIT, 7)


def test_a_second_redirect_is_not_followed(server: StandIn) -> None:
    location = f"http://{server.backend}/api/{DATABASE}/orders/_stream_load"
    answer = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    with listener(answer) as (there, heard):
        server.redirects_to = f"http://{there}/api/{DATABASE}/orders/_stream_load"
        with pytest.raises(LoadUnanswered):
            client(server.frontend).load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert len(heard) == 1
    assert [one.server for one in server.seen] == ["frontend"]

"""Where a frontend of Doris may send our login and our rows. No pyspark here.

A frontend answers each load with the address of a backend, and whoever listens there gets the login and the rows, so it is
trusted with both already. What it must not get is a request that it could not make itself: from the network of an executor,
to a service that takes requests of whoever reaches it. So: one redirect, by HTTP or HTTPS as the stream says, to the very path
that was asked for, and to no address that is the executor's own or that of its machine. What stands in the Location beside host
and port, such as the password that Doris puts there, is neither used nor told.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from exactlyonce_spark.connectors.doris.exchange import Node, NotConnected

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_GIVES_RIGHTS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "fd00:ec2::/32",  # Amazon's services of a machine and of a pod
        "fd20:ce::254",  # Google's
        "fd00:c1::a9fe:a9fe",  # Oracle's
        "100.100.100.200",  # Alibaba's
        "168.63.129.16",  # Azure's
    )
)
"""Services that give a machine its rights, at addresses that are not of the machine; the usual one, 169.254.169.254, is."""


_ADDRESSES = "Let Doris name its servers by addresses that this network reaches (SHOW BACKENDS lists them)."
_SPEAKS_TLS = (
    "It speaks TLS: set sink.doris.tls, and name its port for TLS in sink.doris.frontends (https_port of fe.conf, 8050 by "
    "default); where a batch is decided, keep a former address beside it until that batch has landed."
)
_SPEAKS_NO_TLS = (
    "sink.doris.tls: All needs enable_tls at every server of Doris; with enable_https, which covers frontends alone, set "
    "Frontends; login and rows then go to backends unencrypted."
)


class RedirectRefused(Exception):
    """A server sends us where we do not go; `str()` says why, and `advice` what a person can do."""

    def __init__(self, why: str, advice: str = _ADDRESSES) -> None:
        super().__init__(why)
        self.advice = advice


def redirected(location: str | None, path: str, schemes: Collection[str] = ("http",)) -> Node:
    """Return the node that a Location of one of these schemes names, for a request of this path.

    Raises:
        RedirectRefused: if it is no such Location.
    """
    try:
        found = urlsplit(location or "")
        host, port = found.hostname, found.port
    except ValueError:
        raise RedirectRefused("to what is not an address") from None
    if not host or not port or len(host) > 253 or not host.isprintable():
        raise RedirectRefused("to what is not an address")
    if found.scheme not in schemes:
        wanted = " or ".join(schemes)
        advice = {"https": _SPEAKS_TLS, "http": _SPEAKS_NO_TLS}.get(found.scheme, _ADDRESSES)
        raise RedirectRefused(f"away from {wanted}, which is what sink.doris.tls asks for", advice)
    if unquote(found.path) != unquote(urlsplit(path).path):
        raise RedirectRefused("to another path")
    return Node(host, port)


def address_of(node: Node) -> str:
    """Return the address of a node that the stream names.

    Raises:
        NotConnected: if it has none.
    """
    return str(_addresses(node)[0])


def address_of_redirected(node: Node, frontend: str) -> str:
    """Return the address of a node to which the frontend at this address sends us; it is the one that is connected to.

    Raises:
        NotConnected: if it has none.
        RedirectRefused: if it is the executor itself or its machine, and the frontend is not.
    """
    own = ipaddress.ip_address(frontend)
    for address in _addresses(node):
        if not _is_near(address) or (address.is_loopback and own.is_loopback):
            return str(address)
    raise RedirectRefused("to an address of the machine that asks")


def _is_near(address: _Address) -> bool:
    """Whether an address is one of the machine, such as the service of a cloud that gives it its rights, or of no machine."""
    plain = getattr(address, "ipv4_mapped", None) or address
    if any(plain in network for network in _GIVES_RIGHTS):
        return True
    return plain.is_loopback or plain.is_link_local or plain.is_multicast or plain.is_unspecified or plain.is_reserved


def _addresses(node: Node) -> list[_Address]:
    try:
        found = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NotConnected("its name has no address") from None
    return [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found]

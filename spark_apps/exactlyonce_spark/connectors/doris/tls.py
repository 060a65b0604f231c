"""TLS to the servers of Doris: which of them are spoken to with it, and how their answer is looked at before it is read.

No pyspark here.
"""

from __future__ import annotations

import io
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

from exactlyonce.connectors.doris.spec import Tls
from exactlyonce.errors import RefusedOutside

_READ_BYTES = 1 << 16


class CertificateUnfit(RefusedOutside):
    """What the secret has for a CA is not a certificate."""


@dataclass(frozen=True)
class Trust:
    """How servers are spoken to: with TLS where there is a context, which holds whose certificates are trusted.

    `backends` may be without one where frontends have one: Doris' `enable_https` is of frontends alone.
    """

    frontends: ssl.SSLContext | None = field(default=None, repr=False)
    backends: ssl.SSLContext | None = field(default=None, repr=False)

    def schemes(self, method: str) -> tuple[str, ...]:
        """Return the schemes of a Location that are followed: a question goes to another frontend, all else to a backend.

        A frontend with `enable_https` names its backends by https in releases before it was noticed that they do not speak it
        (apache/doris#64697), and by http since; they are spoken to without TLS then, whatever it says.
        """
        if self.frontends is None:
            return ("http",)
        return ("https",) if method == "GET" or self.backends is not None else ("http", "https")


PLAIN = Trust()


def trust_of(tls: Tls, certificates: str | None) -> Trust:
    """Return how servers are spoken to; without `certificates`, as PEM, those CAs are trusted that the machine trusts.

    Raises:
        CertificateUnfit: if they are no certificates.
    """
    if tls is Tls.OFF:
        return PLAIN
    try:
        context = ssl.create_default_context(cadata=certificates or None)
    except (ssl.SSLError, ValueError, TypeError):
        raise CertificateUnfit(
            "The key ca.crt of the secret that sink.doris.secretRef names holds no certificate; put the certificate of the CA "
            "of Doris' servers into it, as PEM."
        ) from None
    return Trust(context, context if tls is Tls.ALL else None)


class SecureSocket:
    """A connection with TLS whose first bytes may be looked at before they are read, as a plain one allows by MSG_PEEK."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._sock = context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
        self._seen = bytearray()
        self._files = 0
        self._is_closed = False

    def shake_hands(self) -> None:
        """Agree on keys, and look at the certificate of the other side.

        Raises:
            ssl.SSLCertVerificationError, ssl.SSLError, OSError: if it is not trusted, speaks no TLS, or is gone.
        """
        self._sock.do_handshake()

    def first(self, size: int, seconds: float) -> bytes | None:
        """Return the next bytes, and leave them to be read; fewer at the end; None if nothing comes within so many seconds."""
        self._sock.settimeout(seconds)
        try:
            while len(self._seen) < size and (more := self._sock.recv(_READ_BYTES)):
                self._seen += more
        except TimeoutError:
            return None
        finally:
            self._sock.settimeout(None)
        return bytes(self._seen[:size])

    def read_into(self, into: Any) -> int:
        """Read into a buffer; return how many bytes, 0 at the end."""
        if not self._seen:
            return self._sock.recv_into(into)
        count = min(len(into), len(self._seen))
        into[:count] = self._seen[:count]
        del self._seen[:count]
        return count

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of it."""
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file of what comes, as http.client asks for one."""
        assert mode == "rb", "nothing is written by it"
        self._files += 1
        return io.BufferedReader(_Reader(self))

    def settimeout(self, seconds: float | None) -> None:
        """Limit each step from now on."""
        self._sock.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """End the connection as it is, from any thread: TLS is not asked, which may be in the middle of something."""
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        """Give the connection up, once the files of it are closed as well: http.client closes it before it reads the answer."""
        self._is_closed = True
        if not self._files:
            self._sock.close()

    def file_closed(self) -> None:
        """Note that a file of it is closed."""
        self._files -= 1
        if self._is_closed:
            self.close()


class _Reader(io.RawIOBase):
    def __init__(self, sock: SecureSocket) -> None:
        super().__init__()
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        return self._sock.read_into(into)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._sock.file_closed()

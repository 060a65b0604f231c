"""The frontend and the backend of the stand-in, each an HTTP server in threads of this process.

The frontend's query port, by which broker loads are submitted, is there if the stand-in is given files that they read.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Protocol, Self

from testbed.doris.broker_loads import BrokerLoads, Files
from testbed.doris.cluster import Cluster, Login
from testbed.doris.handlers import Backend, Frontend, Seen

Happens = Callable[[str, str], bool]
"""Is told the name of a server and "before" or "behind"; whether the connection ends now."""


class _Server(Protocol):
    """What `ThreadingHTTPServer` and `QueryPort` have."""

    @property
    def server_port(self) -> int:
        """Where it listens."""
        ...

    def serve_forever(self, poll_interval: float) -> None:
        """Serve until `shutdown`."""
        ...

    def shutdown(self) -> None:
        """Stop serving."""
        ...

    def server_close(self) -> None:
        """Give the port back."""
        ...


@dataclass
class StandIn:
    """The stand-in: `frontend` and `backend` are host:port.

    `seen` are the requests; `redirects_to`, if set, is where the frontend sends every load instead, as the text of a Location.
    Of several frontends over one state, `master` is the one that knows labels; those of `unready` have just begun to run.
    The servers of `secure` ("frontend", "backend") speak TLS with `certificate`, whose key is beside it. A frontend
    names backends by the scheme of the request (RestBaseController.java, getRedirectUrL), or by `backend_scheme`: it has been
    http since apache/doris#64697. `happens` is told of each request before and behind its answer, by the name of the server:
    it may stop servers, and where it says so the connection ends.
    """

    cluster: Cluster = field(default_factory=lambda: Cluster({"loader": Login("secret")}))
    redirects_to: str | None = None
    seen: list[Seen] = field(default_factory=list)
    files: Files | None = None
    frontend_count: int = 1
    master: str = "frontend"
    unready: set[str] = field(default_factory=set)
    certificate: Path | None = None
    secure: frozenset[str] = frozenset()
    backend_scheme: str | None = None
    happens: Happens = lambda server, when: False
    _servers: dict[str, _Server] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)
    _broker: BrokerLoads | None = None

    def __post_init__(self) -> None:
        if self.files is not None:
            self._broker = BrokerLoads(self.cluster, self.files)
            self._broker.happens = lambda server, when: self.happens(server, when)

    @property
    def broker(self) -> BrokerLoads:
        """The broker loads, of a stand-in that has files."""
        assert self._broker is not None, "it was given no files"
        return self._broker

    @property
    def frontend(self) -> str:
        """Where the first frontend is."""
        return self._addresses["frontend"]

    @property
    def frontends(self) -> list[str]:
        """Where each frontend is."""
        return [self._addresses[name] for name in self._names("frontend")]

    def fail_over(self, master: str) -> None:
        """Another frontend becomes the master."""
        self.master = master
        self.cluster.fail_over()
        if self._broker is not None:
            self._broker.fail_over()

    def address_of(self, name: str) -> str:
        """Return where a server is, or was before it was stopped."""
        return self._addresses[name]

    @property
    def backend(self) -> str:
        """Where the backend is."""
        return self._addresses["backend"]

    @property
    def query_port(self) -> int:
        """The port of MySQL's protocol, on the first frontend's host."""
        return self.query_ports[0]

    @property
    def query_ports(self) -> list[int]:
        """The port of MySQL's protocol of each frontend."""
        return [int(self._addresses[name].rpartition(":")[2]) for name in self._names("query")]

    def __enter__(self) -> Self:
        for name in (*self._names("frontend"), "backend", *(self._names("query") if self._broker is not None else ())):
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._servers):
            self.stop(name)

    def start(self, name: str) -> None:
        """Start a server, where it was before if it has been stopped."""
        port = int(self._addresses.get(name, ":0").rpartition(":")[2])
        self._servers[name] = self._new_server(name, port)
        self._addresses[name] = f"127.0.0.1:{self._servers[name].server_port}"
        threading.Thread(target=self._servers[name].serve_forever, args=(0.02,), daemon=True).start()

    def stop(self, name: str) -> None:
        """Stop a server: connections to it are refused."""
        server = self._servers.pop(name)
        server.shutdown()
        server.server_close()

    def _names(self, kind: str) -> list[str]:
        return [kind, *(f"{kind}-{number}" for number in range(2, self.frontend_count + 1))]

    def _new_server(self, name: str, port: int) -> _Server:
        if name.startswith("query"):
            from testbed.doris.query_port import QueryPort  # what it is made of takes a while to import

            return QueryPort(self.broker, port, name)
        kind = Backend if name == "backend" else Frontend
        handler = type(name, (kind,), {"stand_in": self, "server_name": name})
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        if name.partition("-")[0] in self.secure:
            server.socket = self._context().wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        return server

    def _context(self) -> ssl.SSLContext:
        assert self.certificate is not None, "who speaks TLS has one"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.certificate.with_suffix(".key"))
        return context

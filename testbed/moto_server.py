"""moto's server in a process of its own, one request at a time; each service of the testbed is a class of it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from testbed.processes import free_port, port_answers, start, stop, wait_until_ready

_START_SECONDS = 60.0

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass
class MotoServer:
    """A service at `endpoint`; everything it holds is in its memory."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    access_key: str = "testing-access-key"
    secret_key: str = "testing-secret-key"
    _process: subprocess.Popen[bytes] | None = None

    module: ClassVar[str]
    """What is run as `python -m`, with the port and the host."""

    service: ClassVar[str]
    """The service of Amazon that a client is for if nothing else is said."""

    region: ClassVar[str] = "us-east-1"

    @property
    def options(self) -> list[str]:
        """Further arguments of the process."""
        return []

    @property
    def endpoint(self) -> str:
        """The address of the service."""
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The service's process id."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{self.module.rpartition('.')[2]}.log"
        command = [sys.executable, "-m", self.module, str(self.port), "--host", self.host, *self.options]
        self._process = start(command, log, directory=Path(__file__).parents[1])
        wait_until_ready(
            self._process, lambda: port_answers(self.port, self.host), f"The server {self.module}", log, _START_SECONDS
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the service; what it held is gone."""
        if self._process is not None:
            stop(self._process, signal.SIGKILL)

    def freeze(self) -> None:
        """Let the service accept connections and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the service continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self, service: str | None = None, *, config: Any = None, **login: str) -> Any:
        """Return a client of the test's own; `config` is botocore's."""
        import boto3

        login = login or {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        return boto3.client(
            service or self.service, endpoint_url=self.endpoint, region_name=self.region, config=config, **login
        )

    def guard(self) -> None:
        """From now on check every login and its rights; until then any login is good."""
        self.post("/moto-api/reset-auth", b"0", "text/plain")

    def secret(self) -> dict[str, str]:
        """The keys of the secret of a stream that uses this service."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def post(self, path: str, body: bytes, kind: str = "application/json") -> None:
        """Send a request of the testbed's own, such as an order to what is put around moto."""
        request = urllib.request.Request(f"{self.endpoint}{path}", body, {"Content-Type": kind}, method="POST")
        urllib.request.urlopen(request).close()


def run(module: str, description: str | None, mended: Callable[[], Callable[[Application], Application]]) -> None:
    """Serve what the command line asks for until the process is ended; `mended` puts moto right, and something around it."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    serve(options.host, options.port, mended())


def serve(host: str, port: int, changed: Callable[[Application], Application] | None = None) -> None:
    """Serve one request at a time until the process is ended; `changed` puts something around moto."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class Continues(WSGIRequestHandler):  # type: ignore[misc] # werkzeug is not typed here
        """Answers 100 (Continue) once: http.server says it, and werkzeug again, which Amazon's client takes for the end."""

        def handle_expect_100(self) -> bool:
            return True

    moto = DomainDispatcherApplication(create_backend_app)
    served = _one_at_a_time(moto if changed is None else changed(moto))
    run_simple(host, port, served, threaded=True, request_handler=Continues)


def _one_at_a_time(application: Application) -> Application:
    lock = threading.Lock()

    def answer(environment: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(application(environment, respond))

    return answer

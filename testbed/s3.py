"""An S3 service for tests: moto's server in a process of its own, one request at a time, so that conditions are atomic.

`python -m testbed.s3 PORT` runs one by hand. With `ignores_conditions` it is a service of an older kind, which does not
know `If-None-Match` and `If-Match` on writes.
"""

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
from typing import Any, Self

from testbed.processes import free_port, port_answers, start, stop, wait_until_ready

_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")
_START_SECONDS = 60.0


@dataclass
class S3:
    """A service at `endpoint`; everything it holds is in its memory. Any login is good until `guard` is called."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    ignores_conditions: bool = False
    access_key: str = "testing-access-key"
    secret_key: str = "testing-secret-key"
    _process: subprocess.Popen[bytes] | None = None

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
        log = self.folder / "s3.log"
        command = [sys.executable, "-m", "testbed.s3", str(self.port), "--host", self.host]
        command += ["--ignore-conditions"] if self.ignores_conditions else []
        self._process = start(command, log, directory=Path(__file__).parents[1])
        wait_until_ready(
            self._process, lambda: port_answers(self.port, self.host), "The S3 service", log, _START_SECONDS
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
        """Let the service go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self, service: str = "s3", **login: str) -> Any:
        """Return a client of the test's own."""
        import boto3

        login = login or {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        return boto3.client(service, endpoint_url=self.endpoint, region_name="us-east-1", **login)

    def create_bucket(self, name: str) -> None:
        """Make a bucket."""
        self.client().create_bucket(Bucket=name)

    def guard(self) -> None:
        """From now on check every login and its rights."""
        address = f"{self.endpoint}/moto-api/reset-auth"
        request = urllib.request.Request(address, data=b"0", headers={"Content-Type": "text/plain"}, method="POST")
        urllib.request.urlopen(request).close()

    def secret(self) -> dict[str, str]:
        """The keys of the secret of a checkpoint on this service."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _one_at_a_time(application: Application, *, ignore_conditions: bool) -> Application:
    lock = threading.Lock()

    def serve(environment: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if ignore_conditions and environment["REQUEST_METHOD"] == "PUT":
            for name in _CONDITIONS:
                environment.pop(name, None)
        with lock:
            return list(application(environment, respond))

    return serve


def main() -> None:
    """Serve until the process is ended."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    parser = argparse.ArgumentParser(prog="python -m testbed.s3", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--ignore-conditions", action="store_true")
    options = parser.parse_args()
    application = _one_at_a_time(
        DomainDispatcherApplication(create_backend_app), ignore_conditions=options.ignore_conditions
    )
    run_simple(options.host, options.port, application, threaded=True)


if __name__ == "__main__":
    main()

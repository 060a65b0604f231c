"""An S3 service for tests: moto's server in a process of its own, one request at a time, so that conditions are atomic.

`python -m testbed.s3 PORT` runs one by hand. With `ignores_conditions` it is a service of an older kind, which does not
know `If-None-Match` and `If-Match` on writes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from testbed.moto_server import Application, MotoServer, serve

_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")


@dataclass
class S3(MotoServer):
    """A service at `endpoint`; everything it holds is in its memory. Any login is good until `guard` is called."""

    ignores_conditions: bool = False

    module = "testbed.s3"
    service = "s3"

    @property
    def options(self) -> list[str]:
        """What the process is told of conditions."""
        return ["--ignore-conditions"] if self.ignores_conditions else []

    def create_bucket(self, name: str) -> None:
        """Make a bucket."""
        self.client().create_bucket(Bucket=name)


def _without_conditions(application: Application) -> Application:
    def serve(environment: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if environment["REQUEST_METHOD"] == "PUT":
            for name in _CONDITIONS:
                environment.pop(name, None)
        return application(environment, respond)

    return serve


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m testbed.s3", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--ignore-conditions", action="store_true")
    options = parser.parse_args()
    serve(options.host, options.port, _without_conditions if options.ignore_conditions else None)


if __name__ == "__main__":
    main()

"""A real Prometheus on loopback: Debian's package, as installed or unpacked into the cache."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from testbed import debian, processes

PrometheusUnavailable = debian.PackageUnavailable
"""There is no Prometheus on this machine and none could be fetched."""

_READY_SECONDS = 60


class QueryRefused(RuntimeError):
    """Prometheus does not take a query; the message is its own."""


@dataclass(frozen=True)
class Result:
    """One series that a query found: its labels and its values, oldest first."""

    labels: Mapping[str, str]
    values: Sequence[float]


@dataclass
class Prometheus:
    """A Prometheus that asks every two seconds; a context manager that leaves nothing running.

    `scrapes` is the list scrape_configs, `rules` a document as a file of rules has it.
    """

    folder: Path
    scrapes: Sequence[Mapping[str, Any]]
    rules: Mapping[str, Any]
    port: int = field(default_factory=processes.free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = ensure_program()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rules.yaml").write_text(json.dumps(self.rules))  # JSON is YAML
        configuration = {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": list(self.scrapes),
        }
        file = self.folder / "prometheus.yaml"
        file.write_text(json.dumps(configuration))
        command = [
            str(program),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        log = self.folder / "prometheus.log"
        self._process = processes.start(command, log)
        processes.wait_until_ready(self._process, self._is_ready, "Prometheus", log, _READY_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            processes.stop(self._process, signal.SIGTERM)

    def now(self, query: str) -> list[Result]:
        """Return what a query finds now.

        Raises:
            QueryRefused: if it is no query.
        """
        found = self._asked("query", query=query)["result"]
        return [Result(it["metric"], [float(it["value"][1])]) for it in found]

    def between(self, query: str, start: float, end: float, step_seconds: float = 1) -> list[Result]:
        """Return what a query finds at each step of a time, as a panel of a dashboard asks it.

        Raises:
            QueryRefused: if it is no query.
        """
        found = self._asked("query_range", query=query, start=start, end=end, step=step_seconds)["result"]
        return [Result(it["metric"], [float(value) for _, value in it["values"]]) for it in found]

    def label_values(self, label: str, selector: str) -> list[str]:
        """Return the values of a label over the series that a selector finds, as a variable of a dashboard does."""
        return list(self._asked(f"label/{label}/values", **{"match[]": selector}))

    def alerts(self) -> list[Mapping[str, Any]]:
        """Return the alerts that are pending or firing, with their labels, annotations and state."""
        return list(self._asked("alerts")["alerts"])

    def _asked(self, what: str, **parameters: object) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as problem:
            raise QueryRefused(f"{parameters}: {json.load(problem)['error']}") from problem

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def ensure_program() -> Path:
    """Return Prometheus, fetching it once.

    Raises:
        PrometheusUnavailable: with one sentence that says what is missing and what to do.
    """
    return debian.ensure("prometheus", "usr/bin/prometheus") / "usr/bin/prometheus"

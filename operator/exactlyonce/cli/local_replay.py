"""A replay as a process of this machine: its folder with document, log and report, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from exactlyonce.bounded_text import one_line
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.connectors.specs import ShowsReplaysLater
from exactlyonce.launch.port import LaunchFailed
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.secrets import SECRETS_FOLDER
from exactlyonce.ledger.letters import LetterKey
from exactlyonce.ledger.replay_rules import RangeKey


def run_replay(
    opened: LocalStream,
    secrets: Path,
    ranges: Sequence[RangeKey],
    letters: Sequence[LetterKey] = (),
    *,
    most_records: int,
    records_per_second: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> ReplayReport:
    """Start a replay, wait for its end and return its report; Ctrl-C ends it after the chunk that it is landing.

    Raises:
        LaunchFailed: if it cannot be started.
    """
    document = document_of(opened, ranges, letters, most_records=most_records, records_per_second=records_per_second)
    return run_document(opened, secrets, document, environment)


def document_of(
    opened: LocalStream,
    ranges: Sequence[RangeKey],
    letters: Sequence[LetterKey] = (),
    *,
    most_records: int,
    records_per_second: float | None = None,
) -> ReplayDocument:
    """Return what a replay of this machine is started with."""
    launcher = opened.launcher
    return ReplayDocument(
        opened.stream.stream_id,
        opened.stream.spec.differences(),
        launcher.document.master,
        tuple(ranges),
        launcher.document.spark_conf,
        most_records,
        records_per_second,
        tuple(letters),
    )


def run_document(
    opened: LocalStream, secrets: Path, document: ReplayDocument, environment: Mapping[str, str] | None = None
) -> ReplayReport:
    """Start the replay of a document, wait for its end and return its report.

    Raises:
        LaunchFailed: if it cannot be started.
    """
    home = opened.launcher.folder.parent / "replays" / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    try:
        home.mkdir(parents=True)
        (home / "replay.json").write_text(document.render())
    except OSError as problem:
        raise LaunchFailed(f"The replay's folder {home} cannot be written ({problem}); make room there.") from problem
    command = [sys.executable, "-m", "exactlyonce_spark.replay_driver", "--document", str(home / "replay.json")]
    command += ["--report", str(home / "report.json"), "--parent", str(os.getpid())]
    told = {**os.environ, **(environment or {}), SECRETS_FOLDER: str(secrets.absolute())}
    try:
        with (home / "log").open("wb") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=told,
                start_new_session=True,
            )
    except OSError as problem:
        raise LaunchFailed(f"The replay cannot be started ({problem}); its folder is {home}.") from problem
    click.echo(f"The replay runs; its log is {home / 'log'}. Ctrl-C ends it after the current chunk.", err=True)
    return _ended(child, home)


def _ended(child: subprocess.Popen[bytes], home: Path) -> ReplayReport:
    while True:
        try:
            status = child.wait()
            break
        except KeyboardInterrupt:
            child.terminate()  # which it takes as an ask to end after the current chunk
    try:
        return ReplayReport.parse((home / "report.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return ReplayReport(
            problem=f"The replay ended without a report (status {status}); what it has landed is marked as Replayed, and the "
            f"next replay takes the rest. Its log is {home / 'log'}."
        )


def tell(report: ReplayReport, sink: object = None) -> None:
    """Print what a replay has done, and what it has not; `sink` is the spec of what it landed into."""
    click.echo(f"Landed {report.landed} records ({report.rows} rows); {report.failed} failed, {report.lost} are lost.")
    if report.uncounted:
        parts = "1 part" if report.uncounted == 1 else f"{report.uncounted} parts"
        click.echo(f"Of {parts} beside these that failed or are lost, nobody can tell how many records they have.")
    if report.rows and isinstance(sink, ShowsReplaysLater) and sink.replays_shown is not None:
        click.echo(sink.replays_shown)
    for sentence in report.told:
        click.echo(one_line(sentence, 1000), err=True)
    if report.problem is not None:
        click.echo(one_line(report.problem, 2000), err=True)

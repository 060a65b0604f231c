"""`python -m exactlyonce_spark.replay_driver`: run one replay of one stream. Started by `exactlyonce replay`, never by hand."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.api.replay import require_replayable
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import ledger_address, source_address
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce.ledger.connector import Use
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce_spark.assembly import sink_connector, source_connector
from exactlyonce_spark.connectors.ports import ReplayConnector
from exactlyonce_spark.crash_points import DRIVER_PID
from exactlyonce_spark.drain import Drain, drain_with_parent
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.replay import Replay, ReplayOutcome, ReplayPace
from exactlyonce_spark.settings import DocumentUnreadable, DriverSpec

log = logging.getLogger("exactlyonce.replay")


class SinkTakesNoReplay(Refused):
    """The sink's half inside Spark has no way to land a replay."""


@dataclass
class Throttle:
    """Keeps the average of records per second below a limit: waits after each transaction, or until the replay is to end."""

    records_per_second: float | None
    wait: Callable[[float], bool]
    now: Callable[[], float] = time.monotonic
    _free_at: float | None = None

    def landed(self, records: int) -> None:
        """Wait as long as these records are worth, less the time that they took."""
        if self.records_per_second is None:
            return
        began = self.now() if self._free_at is None else self._free_at
        self._free_at = began + records / self.records_per_second
        left = self._free_at - self.now()
        if left > 0:
            self.wait(left)
        else:
            self._free_at = self.now()  # time that was lost is not made up for by a burst


def run_replay(document: ReplayDocument, secrets_folder: Path, drain: Drain) -> ReplayReport:
    """Run one replay to its end and return its report; never raises."""
    outcome = ReplayOutcome()
    try:
        outcome = _run(document, secrets_folder, drain, outcome)
    except Exception as problem:  # whatever ends a replay, its starter is told
        words = str(problem) if isinstance(problem, ExactlyOnceError) else ending_of(problem, in_batch=False)[1]
        return _report(outcome, words)
    asked = "It was asked to end; what it has not landed is in quarantine." if drain.asked else None
    return _report(outcome, asked)


def _report(outcome: ReplayOutcome, problem: str | None) -> ReplayReport:
    return ReplayReport(outcome.landed, outcome.rows, outcome.lost, outcome.failed, tuple(outcome.told), problem)


def _run(document: ReplayDocument, secrets_folder: Path, drain: Drain, outcome: ReplayOutcome) -> ReplayOutcome:
    from exactlyonce_spark.jars import ensure_jars
    from exactlyonce_spark.query import columns_of, streaming_rows
    from exactlyonce_spark.session import start_session
    from exactlyonce_spark.spark_records import SparkRecords, require_rows_of_each_record

    spec, stream_id = StreamSpec.model_validate(document.spec), document.stream_id
    require_replayable(spec, stream_id)
    secrets = functools.partial(read_secret, secrets_folder)
    sink = sink_connector(spec)
    if not isinstance(sink, ReplayConnector):
        raise SinkTakesNoReplay(f"Nothing can be replayed into spec.sink.{spec.sink.connector}.")
    with contextlib.closing(
        ledger_address(spec, secrets).open(f"exactlyonce {stream_id} replay", Use.BATCHES)
    ) as ledger:
        prepared = sink.prepare_replay(spec, ledger, stream_id)
        source = source_address(spec.source, secrets).open()
        session = start_session(
            DriverSpec(stream_id, spec, document.master, document.spark_conf), ensure_jars(report=log.info)
        )
        reader = source_connector(spec).reader(spec, secrets)
        streamed = streaming_rows(session, reader, spec, len(source.view().selected))
        require_rows_of_each_record(streamed)
        columns = prepared.fit(columns_of(streamed), reader.position_columns, deletes=False)
        replay = Replay(
            ledger,
            ReplayClaim(stream_id, str(uuid.uuid4())),
            prepared.target(columns),
            source,
            SparkRecords(session, reader, spec, columns),
            ReplayPace(
                document.most_at_once, Throttle(document.records_per_second, drain.wait).landed, lambda: drain.asked
            ),
        )
        replay.outcome = outcome
        return replay.run(document.ranges)


def main() -> int:
    """Run the replay, leave its report and return the exit status: 0 where all of it has landed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m exactlyonce_spark.replay_driver", description=__doc__)
    parser.add_argument("--document", type=Path, required=True, help="what is to be replayed (JSON)")
    parser.add_argument("--report", type=Path, required=True, help="the file that takes the replay's report")
    parser.add_argument("--parent", type=int, help="end when this process, the parent, ends")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    os.environ[DRIVER_PID] = str(os.getpid())
    drain = Drain()
    drain.listen()
    if options.parent is not None:
        drain_with_parent(options.parent)
    report = run_replay(_read(options.document), Path(os.environ[SECRETS_FOLDER]), drain)
    options.report.write_text(report.render())
    return 0 if report.problem is None and not report.told else 1


def _read(path: Path) -> ReplayDocument:
    try:
        return ReplayDocument.parse(path.read_text())
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DocumentUnreadable(f"The replay does not understand {path.name} ({problem}).") from problem


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # The JVM ends when its standard input closes; leaving through the interpreter's exit would wait for its callbacks.
    os._exit(status)

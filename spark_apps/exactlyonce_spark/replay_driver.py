"""`python -m exactlyonce_spark.replay_driver`: run one replay. Started by `exactlyonce replay` and the operator."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from exactlyonce.api.replay import Replayed, require_replayable
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import ledger_address, source_address
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.launch.backfill import Span, into_table, landing_place_of, planned
from exactlyonce.launch.chosen_ranges import moments_of, named_in
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce.ledger.connector import Use
from exactlyonce.ledger.other_tables import OtherTable, require_other_table
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce_spark.assembly import sink_connector, source_connector
from exactlyonce_spark.backfill_plan import RangesOfSession, chosen_spans
from exactlyonce_spark.connectors.ports import ChoosesRanges, DividesRanges, ReplayConnector
from exactlyonce_spark.crash_points import DRIVER_PID, reached, watch
from exactlyonce_spark.drain import Drain, drain_with_parent
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.progress import ProgressFile
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_asked import letters_to_land, ranges_to_land
from exactlyonce_spark.replay_letters import LetterReplay
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_progress import touching, waiting, with_looks
from exactlyonce_spark.settings import DocumentUnreadable, DriverSpec
from exactlyonce_spark.target import WritesAhead

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
        ending, told = ending_of(problem, in_batch=False, asks_again=True)
        return _report(outcome, str(problem) if isinstance(problem, ExactlyOnceError) else told, ending)
    if drain.asked:
        return _report(outcome, "It was asked to end; the next replay takes what it has not landed.", Ending.DRAINED)
    return _report(outcome)


def _report(outcome: ReplayOutcome, problem: str | None = None, ending: Ending | None = None) -> ReplayReport:
    return ReplayReport(
        outcome.landed,
        outcome.rows,
        outcome.lost,
        outcome.failed,
        tuple(outcome.told),
        problem,
        None if ending is None else str(ending),
        max(0, outcome.asked - outcome.landed),
        outcome.uncounted,
    )


def _run(document: ReplayDocument, secrets_folder: Path, drain: Drain, outcome: ReplayOutcome) -> ReplayOutcome:
    from exactlyonce_spark.jars import ensure_jars
    from exactlyonce_spark.query import columns_of, streaming_rows
    from exactlyonce_spark.session import start_session
    from exactlyonce_spark.signs import work_of
    from exactlyonce_spark.spark_letters import SparkLetters, require_letter_source
    from exactlyonce_spark.spark_records import SparkRecords, SparkRows, require_rows_of_each_record

    spec, stream_id = StreamSpec.model_validate(document.spec), document.stream_id
    require_replayable(spec, stream_id, _asked_of(document))
    own = landing_place_of(spec)
    if document.backfill is not None:
        spec = into_table(spec, document.backfill.table)
    table = OtherTable(landing_place_of(spec), own)
    secrets = functools.partial(read_secret, secrets_folder)
    sink = sink_connector(spec)
    if not isinstance(sink, ReplayConnector):
        raise SinkTakesNoReplay(f"Nothing can be replayed into spec.sink.{spec.sink.connector}.")
    with contextlib.ExitStack() as stack:
        opened = ledger_address(spec, secrets).open(f"exactlyonce {stream_id} replay", Use.BATCHES)
        ledger = stack.enter_context(contextlib.closing(opened))
        prepared = sink.prepare_replay(spec, ledger, stream_id, secrets)
        if document.backfill is not None:  # it may call the stream's own table by another name
            with ledger.transaction() as transaction:
                require_other_table(transaction, stream_id, table)
        reader = source_connector(spec).reader(spec, secrets, life="")
        takes_letters = bool(document.letters) or document.find is not None
        letters = require_letter_source(reader, spec.source.connector) if takes_letters else None
        session = start_session(
            DriverSpec(stream_id, spec, document.master, document.spark_conf), ensure_jars(report=log.info)
        )
        of_backfill = document.backfill is not None
        divider = reader.divider(session, of_backfill=of_backfill) if isinstance(reader, DividesRanges) else None
        progress = ProgressFile.of(os.environ)
        stack.enter_context(touching(progress, lambda: with_looks(work_of(session), divider)))
        streamed = streaming_rows(session, reader, spec, 1)  # it is planned, and never run
        require_rows_of_each_record(streamed)
        columns = prepared.fit(columns_of(streamed), reader.position_columns, deletes=False)
        name = "" if document.backfill is None else document.backfill.name
        claim = ReplayClaim(stream_id, f"{document.by}{uuid.uuid4()}", table.into, name, own)
        target = prepared.target(columns, claim.token)
        rest = functools.partial(waiting, progress, drain.wait)
        pace = ReplayPace(
            document.most_at_once, Throttle(document.records_per_second, rest).landed, lambda: drain.asked
        )
        if letters is not None:
            made = SparkLetters(session, reader, letters, spec, columns)
            made.read(())  # so that a transform that asks for more than is kept is refused before anything is claimed
            letter_replay = LetterReplay(ledger, claim, target, made, pace)
            letter_replay.outcome = outcome
            return letter_replay.run(letters_to_land(document, ledger, outcome))
        source = source_address(spec.source, secrets).open()
        if document.backfill is not None:
            given: Mapping[Span, str] = {it.span: it.origin_id for it in document.take_up}
            if isinstance(reader, ChoosesRanges):
                ranges = RangesOfSession(partial(reader.ranges_between, session), partial(reader.ranges_given, session))
                given = chosen_spans(ledger, stream_id, document.backfill, ranges)
            planned(ledger, source, stream_id, document.backfill, table, given)
            reached("backfill.planned")
        kind = SparkRows if isinstance(target, WritesAhead) else SparkRecords
        records = kind(session, reader, spec, columns)
        replay = Replay(ledger, claim, target, source, records, pace, divider)
        replay.outcome = outcome
        return replay.run(() if document.backfill is not None else ranges_to_land(document, spec, ledger, outcome))


def _asked_of(document: ReplayDocument) -> Replayed:
    if document.letters or document.find is not None:
        return Replayed.DEAD_LETTERS
    if document.backfill is not None:
        between, named = moments_of(document.backfill) is not None, bool(named_in(document.backfill))
        return Replayed.of_ranges(between=between, into_other=True, named=named)
    return Replayed.RANGES if document.take_up else Replayed.FAILURES


def main() -> int:
    """Run the replay, leave its report and return the exit status: 0 where all of it has landed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m exactlyonce_spark.replay_driver", description=__doc__)
    parser.add_argument("--document", type=Path, required=True, help="what is to be replayed (JSON)")
    parser.add_argument("--report", type=Path, required=True, help="the file that takes the replay's report")
    parser.add_argument("--report-bytes", type=int, help="the report is at most so long")
    parser.add_argument("--parent", type=int, help="end when this process, the parent, ends")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    os.environ[DRIVER_PID] = str(os.getpid())
    progress = ProgressFile.of(os.environ)
    progress.touch()
    watch(progress.passed)
    drain = Drain()
    drain.listen()
    if options.parent is not None:
        drain_with_parent(options.parent)
    report = run_replay(_read(options.document), Path(os.environ[SECRETS_FOLDER]), drain)
    options.report.write_text(report.render(options.report_bytes))
    log.info("%s", report.render())
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

"""Named points at which a test may end, freeze or cut off this process.

Nothing happens unless the environment variable EXACTLYONCE_CRASH is set, which only tests do, to one or more of
`POINT[@BATCH]=ACTION,FILE` separated by spaces. FILE is created when the point fires, and a point fires once, so that the
process's successor passes it. Actions: `kill` this process, `kill-driver` (the driver, its JVM and this process), `freeze`
the driver and this process, `hold` this process until FILE.let-go is there, `raise` an error. EXACTLYONCE_TRACE_POINTS
names a file that takes the latest point, for tests that kill at random and count where.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.crash_points import first_time

VARIABLE = "EXACTLYONCE_CRASH"
TRACE = "EXACTLYONCE_TRACE_POINTS"
DRIVER_PID = "EXACTLYONCE_DRIVER_PID"
LET_GO = ".let-go"

POINTS = (
    "driver.claimed",
    "driver.session-started",
    "driver.limit-grown",
    "batch.planned",
    "batch.begun",
    "batch.rows-written",
    "batch.source-checked",
    "land.fenced",
    "land.rows-moved",
    "land.positions-advanced",
    "land.before-commit",
    "batch.landed",
    "task.started",
    "task.fenced",
    "task.advanced",
    "task.copying",
    "task.before-commit",
    "task.committed",
)
"""Every point, in the order in which a batch passes them; the fault tests go through all of them.

`driver.limit-grown` is passed where a driver that was told a smaller limit has stopped its query to continue with the full one.
"""


POINTS_OF_MANIFESTS = ("publish.prepared", "publish.created", "publish.cleaned-up", "batch.published")
"""Points that only a batch passes whose sink is a manifest.

`publish.prepared` and `publish.created` before and after each entry for readers, `publish.cleaned-up` once entries that no
reader needs any more are removed, `batch.published` after all of it.
"""

POINTS_OF_FILES = (
    "folder.taken",
    "folder.columns-kept",
    "files.written",
    "files.checksum-moved",
    "files.moved",
    "files.folder-removed",
)
"""Points that only a files sink passes: a driver before its first batch, then each batch before `batch.rows-written`.

`folder.taken` once the marker says whose the folder is, `folder.columns-kept` once its columns are kept. `files.written` when
Spark's own job has ended, `files.checksum-moved` and `files.moved` for each file, `files.folder-removed` when the attempt's own
folder is gone and what it wrote is not yet flushed to the disk.
"""

POINTS_OF_TABLES = (
    "table.created",
    "table.registered",
    "table.columns-added",
    "table.before-commit",
    "table.committed",
)
"""Points that only a sink passes whose rows are committed to a table's own log.

A driver before its first batch: `table.created`, `table.registered` once the table knows the stream, `table.columns-added`.
`table.before-commit` and `table.committed` before and after each batch's commit, behind `batch.landed`.
"""

POINTS_OF_TWO_PHASES = (
    "task.prepared",
    "batch.decided",
    "commit.answered",
    "batch.committed",
    "finish.read",
    "finish.written-again",
    "finish.recorded",
    "finish.landed",
    "finish.aborted",
)
"""Points that only a sink of two phases passes: its batches, and a driver that finishes what its predecessor decided.

`task.prepared` in each task; `batch.decided` behind the ledger's transaction; `commit.answered` after each load and
`batch.committed` after the last. `finish.read` once the decided batch is known, `finish.written-again` when rows that the sink
had aborted are prepared again, `finish.recorded` when the ledger has them or knows what is committed, `finish.landed` when the
batch has landed, and `finish.aborted` after each load that nobody decided.
"""

POINTS_OF_STAGED_LOADS = ("submit.recorded", "submit.sent", "submit.left-out", "submit.file-removed")
"""Points that only a batch passes whose sink commits a load once it is submitted, and a driver that finishes such a batch.

`submit.recorded` once the ledger says that a load is submitted, `submit.sent` behind its statement, `submit.left-out` when the
record no longer names loads that are committed, and `submit.file-removed` after each file.
"""

POINTS_OF_TRANSACTIONS = ("transaction.taken", "transaction.marked", "transaction.piece-sent")
"""Points that only a sink passes whose driver holds a transaction open.

`transaction.taken` before the first batch, once what an earlier driver had open has ended; `transaction.marked` when a marker
was committed without rows, and `transaction.piece-sent` behind each piece of a batch's rows.
"""

POINTS_OF_PLANNERS = ("source.end-planned",)
"""Points that only a source in Python passes, in the process that Spark keeps for it: an end is known, and in no log yet."""

POINTS_OF_QUARANTINES = ("quarantine.source-checked",)
"""Points that only a batch passes that failed too often: the source is asked once more, and then it lands without its rows."""

POINTS_OF_BISECTIONS = ("bisect.begun", "bisect.tried", "bisect.found", "land.left-out-kept")
"""Points that only a driver passes that is to find the records which fail by themselves, and that lands a batch without them.

`bisect.begun` once the batch is known to wait, `bisect.tried` after each part that was tried, `bisect.found` before the query
starts without them; `land.left-out-kept` inside the transaction of the driver or of a task that lands, once it records them.
"""

POINTS_OF_REPLAYS = (
    "replay.taken-up",
    "backfill.planned",
    "replay.claimed",
    "replay.begun",
    "replay.files-written",
    "replay.read",
    "replay.source-checked",
    "replay.rows-written",
    "replay.landed",
    "replay.decided",
    "replay.commit-answered",
    "replay.settled",
    "replay.given-up",
    "replay.put-back",
    "letters.claimed",
    "letters.read",
    "letters.rows-written",
    "letters.landed",
    "letters.kept",
)
"""Points that only a replay passes: its ranges are claimed, and then each chunk is begun, read, compared and landed.

`backfill.planned` once what a backfill is to land is recorded; `replay.taken-up` once ranges that were given by hand are in
quarantine, in a process that finds them by itself. Those of dead letters are the same of a chunk of letters; each chunk is
claimed by itself. `letters.kept` once a letter that failed again is kept with its new error.

`replay.files-written` once the files of a chunk are written, where it lands as files, and before the source is asked again.
`replay.decided` once the ledger says that the load of a chunk is committed, in a sink of two phases, `replay.commit-answered`
behind the sink's answer, and `replay.settled` once the ledger has it; a driver that finishes what a replay has decided passes
the latter two as well. `replay.rows-written` is inside the transaction that lands a chunk, before its ranges are marked.
`replay.given-up` once records that retention took are recorded as lost, `replay.put-back` once a part that failed is in
quarantine again.
"""

ALL_POINTS = (
    *POINTS,
    *POINTS_OF_MANIFESTS,
    *POINTS_OF_FILES,
    *POINTS_OF_TABLES,
    *POINTS_OF_TWO_PHASES,
    *POINTS_OF_STAGED_LOADS,
    *POINTS_OF_TRANSACTIONS,
    *POINTS_OF_PLANNERS,
    *POINTS_OF_QUARANTINES,
    *POINTS_OF_BISECTIONS,
    *POINTS_OF_REPLAYS,
)


class CrashRequested(RuntimeError):
    """A test asked for an error at this point."""


@dataclass(frozen=True)
class Crash:
    """One crash that a test asked for."""

    point: str
    batch: int | None
    action: str
    fired_file: str

    @classmethod
    def parse(cls, text: str) -> Crash:
        """Read `POINT[@BATCH]=ACTION,FILE`."""
        where, _, how = text.partition("=")
        point, _, batch = where.partition("@")
        action, _, fired_file = how.partition(",")
        assert point in ALL_POINTS, f"{point} is not a crash point"
        return cls(point, int(batch) if batch else None, action, fired_file)


_asked = [Crash.parse(word) for word in os.environ.get(VARIABLE, "").split()]
_trace = os.open(os.environ[TRACE], os.O_CREAT | os.O_WRONLY) if os.environ.get(TRACE) else None
_TRACE_WIDTH = 64
_watcher: Callable[[str], None] | None = None


def watch(watcher: Callable[[str], None]) -> None:
    """Tell `watcher` of every point from now on: the driver's metrics are cut there."""
    global _watcher
    _watcher = watcher


def reached(point: str, batch: int | None = None) -> None:
    """Tell that the process is at `point` of `batch`; returns at once unless a test asked for a crash here."""
    if _watcher is not None:
        _watcher(point)
    if _trace is not None:
        os.pwrite(_trace, f"{point} {batch}".ljust(_TRACE_WIDTH).encode(), 0)
    for crash in _asked:
        if crash.point == point and crash.batch in (None, batch) and first_time(crash.fired_file):
            _carry_out(crash)


def _carry_out(crash: Crash) -> None:
    driver = int(os.environ.get(DRIVER_PID, os.getpid()))
    match crash.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill-driver":
            _signal_driver(driver, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "freeze":
            _signal_driver(driver, signal.SIGSTOP)
            if os.getpgid(0) != driver:  # else a second stop would come after the one that woke it
                os.kill(os.getpid(), signal.SIGSTOP)
        case "hold":
            _hold(Path(f"{crash.fired_file}{LET_GO}"))
        case "raise":
            raise CrashRequested(f"a test asked for an error at {crash.point}")
        case other:
            raise AssertionError(f"{other} is not a crash action")


def _hold(let_go: Path) -> None:
    """Wait for the test's file; a worker whose driver dies meanwhile lives on, as on another node."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    pause = threading.Event()
    while not let_go.exists():
        pause.wait(0.05)


def _signal_driver(driver: int, how: signal.Signals) -> None:
    """Signal the driver's process group, which its JVM is in too; the group's number is the driver's id."""
    with suppress(ProcessLookupError):
        os.killpg(driver, how)

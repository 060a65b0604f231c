"""Broker loads of the stand-in: jobs that read a file of S3 and commit by themselves, known by their label.

fe/fe-core/…/load/loadv2: LoadManager, LoadJob, BrokerLoadJob, BrokerLoadPendingTask. Doris runs a job when it likes. Here it
comes a step further each time it is asked about, and whenever time passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from testbed.doris.cluster import Cluster, Load
from testbed.doris.statements import LoadStatement
from testbed.doris.tables import Table
from testbed.doris.transactions import LABEL_RULE, Refused, Transaction

TITLES = (
    "JobId", "Label", "State", "Progress", "Type", "EtlInfo", "TaskInfo", "ErrorMsg", "CreateTime", "EtlStartTime",
    "EtlFinishTime", "LoadStartTime", "LoadFinishTime", "URL", "JobDetails", "TransactionId", "ErrorTablets", "User",
    "Comment",
)  # fmt: skip
"""fe/fe-core/…/common/proc/LoadProcDir.java, TITLE_NAMES."""

NOTHING = "\\N"
"""fe/fe-core/…/common/FeConstants.java, null_string."""


class State(Enum):
    """fe/fe-core/…/load/loadv2/JobState.java, as far as a broker load comes there by itself."""

    PENDING = "PENDING"
    LOADING = "LOADING"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"


KNOWN_PROPERTIES = frozenset(
    {
        *("timeout", "max_filter_ratio", "exec_mem_limit", "strict_mode", "timezone", "load_parallelism"),
        *("load_to_single_tablet", "send_batch_parallelism", "priority", "partial_columns"),
    }
)
"""fe/fe-core/…/analysis/LoadStmt.java, PROPERTIES_MAP, as far as it is of a load from files."""

FINAL = (State.FINISHED, State.CANCELLED)
"""JobState.java, isFinalState."""


class BrokerFault(Enum):
    """What goes wrong once, with the next statement or job that it is about."""

    STATEMENT_LOST = "a LOAD has no effect, and the connection ends without an answer"
    STATEMENT_LATE = "a LOAD has no effect before `deliver` is called, and the connection ends without an answer"
    ANSWER_LOST = "a LOAD is taken, and the connection ends without an answer"
    TOO_MANY_JOBS = "LoadManager.java, createLoadJobFromStmt: desired_max_waiting_jobs are unfinished"
    JOB_CANCELLED = "a job ends as cancelled, as by a backend that is gone"


class FileDenied(Exception):
    """The storage refuses the login of a statement."""


Files = Callable[[str, Mapping[str, str]], "bytes | None"]
"""Reads a file by its address with the properties after WITH S3; None where it is not there. May raise FileDenied."""


@dataclass
class Limits:
    """What broker loads have of docs/admin-manual/config/fe-config.md.

    `label_keep_max_second`, `label_num_threshold` and `desired_max_waiting_jobs`.
    """

    label_keep_seconds: int = 3 * 24 * 3600
    label_number: int = 2000
    waiting_jobs: int = 100


@dataclass
class Job:
    """A broker load."""

    number: int
    statement: LoadStatement
    user: str
    created: int
    state: State = State.PENDING
    transaction: Transaction | None = None
    etl_info: str = NOTHING
    error: str = NOTHING
    ended: int = 0


@dataclass
class BrokerLoads:
    """The jobs of a cluster.

    `seen` are the statements that arrived. `shows` are states that the next answers of SHOW LOAD tell of jobs that have not
    ended, and meanwhile none does. `skips_missing`: a file that goes between listing and reading is skipped, as a backend does
    by default (be/src/common/config.cpp, ignore_not_found_file_in_external_table).
    """

    cluster: Cluster
    files: Files
    limits: Limits = field(default_factory=Limits)
    faults: list[BrokerFault] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    skips_missing: bool = False
    holds: bool = False
    """Whether jobs make no progress."""
    fraction_of_clock: str = ""
    """What follows the seconds of UNIX_TIMESTAMP(), which is a decimal in some releases."""
    happens: Callable[[str, str], bool] = lambda server, when: False
    """As of `StandIn`, for the statements that a query port is sent."""
    seen: list[LoadStatement] = field(default_factory=list)
    late: list[tuple[str, LoadStatement]] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(41001))

    def takes(self, fault: BrokerFault) -> bool:
        """Whether this goes wrong now; it does so once."""
        with self.cluster.lock:
            if fault in self.faults:
                self.faults.remove(fault)
                return True
            return False

    def submit(self, user: str, statement: LoadStatement) -> None:
        """Take a LOAD. LoadManager.java, createLoadJobFromStmt and checkLabelUsed: CANCELLED makes a label free again."""
        with self.cluster.lock:
            self.seen.append(statement)
            if not LABEL_RULE.fullmatch(statement.label):
                raise Refused(f"errCode = 2, detailMessage = Label format error. now: {statement.label}")
            self._require_fitting(statement, self.cluster.table(statement.database, statement.table))
            self._require_right(user)
            if any(job.state is not State.CANCELLED for job in self._of(statement.database, statement.label)):
                # fe/fe-core/…/common/LabelAlreadyUsedException.java
                raise Refused(f"errCode = 2, detailMessage = Label [{statement.label}] has already been used.")
            unfinished = sum(job.state not in FINAL for job in self.jobs.values())
            if unfinished >= self.limits.waiting_jobs or self.takes(BrokerFault.TOO_MANY_JOBS):
                raise Refused(
                    "errCode = 2, detailMessage = There are more than "
                    f"{self.limits.waiting_jobs} unfinished load jobs, please retry later. "
                    "You can use `SHOW LOAD` to view submitted jobs"
                )
            number = next(self._numbers)
            self.jobs[number] = Job(number, statement, user, self.cluster.milliseconds)

    def _require_fitting(self, statement: LoadStatement, table: Table) -> None:
        """fe/fe-core/…/analysis: LoadStmt.java, checkProperties, and DataDescription.java, analyzeSequenceCol."""
        unknown = sorted(set(statement.properties) - KNOWN_PROPERTIES)
        if unknown:
            raise Refused(f"errCode = 2, detailMessage = {unknown[0]} is invalid property")
        if table.has_sequence and not statement.sequence:
            raise Refused(
                f"errCode = 2, detailMessage = Table {table.name} has sequence column, need to specify the sequence column"
            )
        if statement.sequence and not table.has_sequence:
            raise Refused(f"errCode = 2, detailMessage = There is no sequence column in the table {table.name}")
        if statement.sequence and statement.sequence not in statement.columns:
            raise Refused(
                f"errCode = 2, detailMessage = There is no sequence column {statement.sequence} in the COLUMNS or SET clause"
            )

    def deliver(self) -> None:
        """Let statements arrive that are late; what Doris answers, nobody hears."""
        for user, statement in self.late:
            try:
                self.submit(user, statement)
            except Refused:
                continue
        self.late.clear()

    def show(self, user: str, database: str, label: str) -> list[tuple[Any, ...]]:
        """Return the jobs of a label, the earliest first.

        LoadManager.java, getLoadJobInfosByDb: a job that the user has no LOAD right on is left out in silence.
        """
        with self.cluster.lock:
            if not self.shows:
                self.progress()
            if "LOAD" not in self.cluster.logins[user].rights:
                return []
            return [self._row(job) for job in self._of(database, label)]

    def progress(self) -> None:
        """Each job comes a step further; what ended long ago is forgotten. LoadManager.java, removeOldLoadJob."""
        with self.cluster.lock:
            for job in [] if self.holds else list(self.jobs.values()):
                if job.state is State.PENDING:
                    self._begin(job)
                elif job.state is State.LOADING:
                    self._load(job)
            over = sorted((job for job in self.jobs.values() if job.state in FINAL), key=lambda job: job.ended)
            too_many = len(over) - self.limits.label_number
            for place, job in enumerate(over):
                age = self.cluster.milliseconds - job.ended
                if place < too_many or age > self.limits.label_keep_seconds * 1000:
                    del self.jobs[job.number]

    def fail_over(self) -> None:
        """Another frontend becomes the master: a job that had begun to load begins again.

        LoadManager.java, prepareJobs, and LoadJob.java: that a job is LOADING is not persisted, nor is a load that only began.
        """
        with self.cluster.lock:
            for job in self.jobs.values():
                if job.state is State.LOADING:
                    job.state, job.transaction = State.PENDING, None

    def run_all(self) -> None:
        """Let every job come to its end."""
        while any(job.state not in FINAL for job in self.jobs.values()):
            self.progress()

    def _begin(self, job: Job) -> None:
        """BrokerLoadPendingTask.java, executeTask: list the file, then begin the transaction."""
        one = job.statement
        try:
            if self.files(one.file, one.storage) is None:
                missing = f"errCode = 2, detailMessage = No source files found in the specified paths: [{one.file}]"
                self._cancel(job, "ETL_RUN_FAIL", missing)
                return
            transactions = self.cluster.transactions_of(one.database)
            job.transaction = transactions.begin(one.label, one.table, int(one.properties.get("timeout", "14400")))
        except FileDenied as problem:
            self._cancel(job, "ETL_RUN_FAIL", f"S3 list path exception. path={one.file}, err: {problem}")
        except Refused as problem:
            self._cancel(job, "ETL_RUN_FAIL", str(problem))
        else:
            job.state = State.LOADING

    def _load(self, job: Job) -> None:
        """BrokerLoadJob.java, onLoadingTaskFinished: check the quality, then commit."""
        one, transaction = job.statement, job.transaction
        assert transaction is not None, "it has begun"
        if self.takes(BrokerFault.JOB_CANCELLED):
            self._cancel(job, "LOAD_RUN_FAIL", "errCode = 2, detailMessage = (127.0.0.1)[CANCELLED]backend is down")
            return
        body = self.files(one.file, one.storage)
        if body is None and not self.skips_missing:
            self._cancel(job, "LOAD_RUN_FAIL", f"errCode = 2, detailMessage = [NOT_FOUND]can not open {one.file}")
            return
        headers = {
            "format": one.format,
            "columns": ",".join(f"`{name}`" for name in one.columns),
            "num_as_string": one.format_properties.get("num_as_string", "false"),
            "strict_mode": one.properties.get("strict_mode", "false"),
        }
        load = Load(one.database, self.cluster.table(one.database, one.table), transaction, headers)
        total, good, bad = self.cluster.sorted_rows(load, body or b"")
        job.etl_info = f"unselected.rows=0; dpp.abnorm.ALL={bad}; dpp.norm.ALL={len(good)}"
        if bad > total * float(one.properties.get("max_filter_ratio", "0")):
            # LoadJob.java, checkDataQuality; fe/fe-core/…/common/DataQualityException.java
            self._cancel(job, "ETL_QUALITY_UNSATISFIED", "quality not good enough to cancel")
            return
        self.cluster.load_at_once(load, good)
        job.state, job.ended = State.FINISHED, self.cluster.milliseconds

    def _cancel(self, job: Job, kind: str, message: str) -> None:
        """LoadJob.java, unprotectedExecuteCancel and getShowInfo; the kinds are those of fe/fe-core/…/load/FailMsg.java."""
        if job.transaction is not None:
            self.cluster.transactions_of(job.statement.database).abort(job.transaction.number, message)
        job.state, job.error, job.ended = State.CANCELLED, f"type:{kind}; msg:{message}", self.cluster.milliseconds

    def _of(self, database: str, label: str) -> list[Job]:
        return [job for job in self.jobs.values() if (job.statement.database, job.statement.label) == (database, label)]

    def _require_right(self, user: str) -> None:
        if "LOAD" not in self.cluster.logins[user].rights:
            raise Refused(
                "errCode = 2, detailMessage = Access denied; you need (at least one of) the (LOAD) privilege(s) for this "
                "operation"
            )

    def _row(self, job: Job) -> tuple[Any, ...]:
        """LoadJob.java, getShowInfo: everything is told as a text."""
        state = job.state.value
        if self.shows and job.state not in FINAL:
            state = self.shows.pop(0)
        told = {
            "JobId": job.number,
            "Label": job.statement.label,
            "State": state,
            "Progress": "100.00% (1/1)" if job.state is State.FINISHED else "0.00% (0/1)",
            "Type": "BROKER",
            "EtlInfo": job.etl_info,
            "TaskInfo": "cluster:N/A; timeout(s):600; max_filter_ratio:0.0; priority:NORMAL",
            "ErrorMsg": job.error,
            "TransactionId": -1 if job.transaction is None else job.transaction.number,
            "User": job.user,
        }
        return tuple(str(told.get(title, NOTHING)) for title in TITLES)

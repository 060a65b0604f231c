"""Labels and transactions of one database, on a clock of their own.

Nothing happens by itself: `look_at_the_clock` does what Doris' cleaner threads do, and every request calls it first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum

LABEL_RULE = re.compile(r"[-_A-Za-z0-9:]{1,128}")
"""fe/fe-core/…/common/FeNameFormat.java, LABEL_REGEX: what a label consists of."""


class Status(Enum):
    """fe/fe-core/…/transaction/TransactionStatus.java: the states of a transaction."""

    PREPARE = "PREPARE"
    PRECOMMITTED = "PRECOMMITTED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


_FINAL = (Status.VISIBLE, Status.ABORTED)
_JOB_STATUS = {
    Status.PREPARE: "RUNNING",
    Status.PRECOMMITTED: "PRECOMMITTED",
    Status.COMMITTED: "FINISHED",
    Status.VISIBLE: "FINISHED",
}
"""fe/fe-core/…/common/LabelAlreadyUsedException.java: what `ExistingJobStatus` says of a transaction."""


class Refused(Exception):
    """The FE refuses; `str()` is its message."""


class LabelUsed(Refused):
    """A label has a transaction that is not aborted."""

    def __init__(self, of: Transaction) -> None:
        super().__init__(f"Label [{of.label}] has already been used, relate to txn [{of.number}]")
        self.job_status = _JOB_STATUS[of.status]


@dataclass
class Transaction:
    """A load; times are milliseconds of the stand-in's clock."""

    number: int
    label: str
    table: str
    began: int
    timeout_seconds: int
    status: Status = Status.PREPARE
    changed: int = 0
    reason: str = ""


@dataclass
class Limits:
    """The settings of the FE that bound transactions, with Doris' own defaults.

    docs/admin-manual/config/fe-config.md: `stream_load_default_precommit_timeout_second`, `streaming_label_keep_max_second`,
    `label_num_threshold`, `max_running_txn_num_per_db`.
    """

    precommit_timeout_seconds: int = 3600
    label_keep_seconds: int = 43200
    label_number: int = 2000
    running: int = 1000


@dataclass
class Transactions:
    """The transactions of a database. `numbers` gives ids, which are unique in the whole cluster."""

    numbers: Callable[[], int]
    now: Callable[[], int]
    limits: Limits = field(default_factory=Limits)
    known: dict[int, Transaction] = field(default_factory=dict)

    def begin(self, label: str, table: str, timeout_seconds: int) -> Transaction:
        """Begin a load under a label that no transaction has, or only aborted ones.

        fe/fe-core/…/transaction/DatabaseTransactionMgr.java, beginTransaction: the label's rule, its uniqueness in the
        database, and `checkRunningTxnExceedLimit`.
        """
        if not LABEL_RULE.fullmatch(label):
            raise Refused(
                f"errCode = 2, detailMessage = Label format error. regex: ^{LABEL_RULE.pattern}$, now: {label}"
            )
        for one in self._of(label):
            if one.status is not Status.ABORTED:
                raise LabelUsed(one)
        running = sum(one.status not in _FINAL for one in self.known.values())
        if running >= self.limits.running:
            raise Refused(
                f"errCode = 2, detailMessage = current running txns on db 10006 is {running}, "
                f"larger than limit {self.limits.running}"
            )
        begun = Transaction(self.numbers(), label, table, self.now(), timeout_seconds)
        self.known[begun.number] = begun
        return begun

    def prepare(self, number: int) -> None:
        """Note that all rows of a load are written: it waits to be committed or aborted.

        DatabaseTransactionMgr.java, preCommitTransaction2PC.
        """
        one = self.known.get(number)
        if one is None or one.status is Status.ABORTED:
            raise Refused("transaction not found" if one is None else one.reason)
        if one.status is Status.PREPARE:
            self._to(one, Status.PRECOMMITTED)

    def commit(self, number: int, *, two_phases: bool, publish: bool = True) -> Transaction:
        """Commit a load, and make it visible where `publish`.

        DatabaseTransactionMgr.java, commitTransaction: committing again is an error whose message says that it is committed; so
        say regression-test/suites/flink_connector_p0/flink_connector_response.groovy and its COMMITTED_PATTERN.
        """
        one = self.known.get(number)
        if one is None:
            raise Refused(f"transaction [{number}] not found.")
        if one.status is Status.ABORTED:
            raise Refused(f"transaction [{number}] is already aborted. abort reason: {one.reason}")
        if one.status in (Status.COMMITTED, Status.VISIBLE) and two_phases:
            raise Refused(f"transaction [{number}] is already {one.status.value}, not pre-committed.")
        if one.status is Status.PREPARE and two_phases:
            raise Refused(f"transaction [{number}] is prepare, not pre-committed.")
        self._to(one, Status.VISIBLE if publish else Status.COMMITTED)
        return one

    def abort(self, number: int, reason: str) -> Transaction:
        """Abort a load. DatabaseTransactionMgr.java, abortTransaction2PC and unprotectAbortTransaction."""
        one = self.known.get(number)
        if one is None:
            raise Refused(f"transaction [{number}] not found")
        if one.status is Status.ABORTED:
            raise Refused(f"transaction [{number}] is already aborted, abort reason: {one.reason}")
        if one.status in (Status.COMMITTED, Status.VISIBLE):
            raise Refused(f"transaction [{number}] is already {one.status.value}, could not abort.")
        one.reason = reason
        self._to(one, Status.ABORTED)
        return one

    def number_of(self, label: str, statuses: Collection[Status]) -> int:
        """Return the id of a label's transaction in one of these states. DatabaseTransactionMgr.java, getTransactionIdByLabel.

        FrontendServiceImpl.java, loadTxn2PCImpl: PRECOMMITTED, and PREPARE as well for an abort.
        """
        found = self._of(label)
        if not found:
            raise Refused(f"transaction not found, label={label}")
        for one in found:
            if one.status in statuses:
                return one.number
        raise Refused(f"running transaction not found, label={label}")

    def state_of(self, label: str) -> str:
        """Return the state of the latest transaction of a label, or UNKNOWN. DatabaseTransactionMgr.java, getLabelState."""
        found = self._of(label)
        return found[-1].status.value if found else "UNKNOWN"

    def look_at_the_clock(self) -> list[int]:
        """Abort what took too long, then forget what is over for too long; return the ids of what was aborted.

        fe/fe-core/…/transaction/TransactionState.java, isTimeout: PREPARE for longer than the load's timeout, PRECOMMITTED for
        longer than `stream_load_default_precommit_timeout_second`. isExpired: a short transaction, such as a stream load, is
        forgotten `streaming_label_keep_max_second` after its end. docs/data-operate/transaction.md: labels are cleaned up by
        number, too, 2,000 by default. What is not over is never forgotten.
        """
        ended = [one for one in self.known.values() if self._is_too_late(one)]
        for one in ended:
            self.abort(one.number, "timeout by txn manager")
        self._forget()
        return [one.number for one in ended]

    def fail_over(self) -> None:
        """Another FE becomes the master: what was in PREPARE is lost.

        DatabaseTransactionMgr.java, unprotectUpsertTransactionState: a load that only began is not persisted.
        """
        self.known = {number: one for number, one in self.known.items() if one.status is not Status.PREPARE}

    def _of(self, label: str) -> list[Transaction]:
        return [one for _, one in sorted(self.known.items()) if one.label == label]

    def _to(self, one: Transaction, status: Status) -> None:
        one.status, one.changed = status, self.now()
        self._forget()

    def _is_too_late(self, one: Transaction) -> bool:
        if one.status is Status.PREPARE:
            return self.now() - one.began > one.timeout_seconds * 1000
        return (
            one.status is Status.PRECOMMITTED
            and self.now() - one.changed > self.limits.precommit_timeout_seconds * 1000
        )

    def _forget(self) -> None:
        over = sorted(
            (one for one in self.known.values() if one.status in _FINAL), key=lambda one: (one.changed, one.number)
        )
        too_many = len(over) - self.limits.label_number
        for place, one in enumerate(over):
            if place < too_many or self.now() - one.changed > self.limits.label_keep_seconds * 1000:
                del self.known[one.number]

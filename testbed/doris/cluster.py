"""What the servers of the stand-in share: databases, logins, the clock, and what a test wants to go wrong."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from testbed.doris.bodies import COMPRESSIONS, FORMATS, parsed_rows
from testbed.doris.tables import BadValue, Rows, Table
from testbed.doris.transactions import Limits, Refused, Status, Transaction, Transactions

CLEANED_EVERY_SECONDS = 30
"""docs/admin-manual/config/fe-config.md, `transaction_clean_interval_second`."""


class Fault(Enum):
    """What goes wrong once, with the next request that it is about."""

    PREPARE_ANSWER_LOST = "the rows of a load are taken, and the connection ends without an answer"
    BACKEND_DIES = "the backend takes half of a body and is gone; its load stays as it is"
    COMMIT_ANSWER_LOST = "a commit takes effect, and the connection ends without an answer"
    COMMIT_LOST = "a commit has no effect, and the connection ends without an answer"
    PUBLISH_TIMEOUT = "a load is committed, and not visible before `publish` is called"
    TOO_MANY_VERSIONS = "the tablet has too many versions (-235)"


class TwoPhases(Enum):
    """What the servers make of loads in two phases."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    """docs/admin-manual/config/be-config.md, `disable_stream_load_2pc`."""
    UNKNOWN = "unknown"
    """A server of an older release: it ignores the header, commits at once, and has no `_stream_load_2pc`."""


@dataclass(frozen=True)
class Login:
    """A user's password, and the rights on every table: LOAD, SELECT."""

    password: str
    rights: frozenset[str] = frozenset({"LOAD", "SELECT"})


@dataclass
class Load:
    """A load whose header has been taken."""

    database: str
    table: Table
    transaction: Transaction
    headers: Mapping[str, str]


@dataclass
class Cluster:
    """The whole of the stand-in but its servers. Whoever calls a method holds no lock; each takes `lock` itself."""

    logins: dict[str, Login] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    two_phases: TwoPhases = TwoPhases.ENABLED
    faults: list[Fault] = field(default_factory=list)
    fails_with: list[str] = field(default_factory=list)
    """Messages: each next load fails with one, and no row of it is called filtered."""
    rows: Rows = field(default_factory=Rows)
    milliseconds: int = 1_700_000_000_000
    tables: dict[str, dict[str, Table]] = field(default_factory=dict)
    transactions: dict[str, Transactions] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1001))

    def create(self, database: str, table: Table) -> None:
        """Create a table, and its database where that is not there."""
        with self.lock:
            self.tables.setdefault(database, {})[table.name] = table
            self.transactions.setdefault(
                database, Transactions(lambda: next(self._numbers), lambda: self.milliseconds, self.limits)
            )
            self.rows.create(database, table)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, step by step: what took too long is aborted, and what has been over for too long is forgotten.

        Each step is one of Doris' cleaner (fe-config.md, `transaction_clean_interval_second`), so a load that is aborted on the
        way is forgotten on the way as well.
        """
        with self.lock:
            end = self.milliseconds + int(seconds * 1000)
            while self.milliseconds < end:
                self.milliseconds = min(end, self.milliseconds + CLEANED_EVERY_SECONDS * 1000)
                for transactions in self.transactions.values():
                    for number in transactions.look_at_the_clock():
                        self.rows.drop(number)

    def takes(self, fault: Fault) -> bool:
        """Whether this goes wrong now; it does so once."""
        with self.lock:
            if fault in self.faults:
                self.faults.remove(fault)
                return True
            return False

    def begin(self, database: str, table: str, headers: Mapping[str, str]) -> Load:
        """Take the header of a load. be/src/http/action/stream_load.cpp, _on_header."""
        with self.lock:
            if headers.get("two_phase_commit") == "true" and self.two_phases is TwoPhases.DISABLED:
                raise Refused("Two phase commit (2PC) for stream load was disabled")
            compression = headers.get("compress_type", "").lower()
            if compression and headers.get("format", "csv").lower() == "json":
                raise Refused("compress data of JSON format is not supported.")
            if headers.get("format", "csv").lower() not in FORMATS or compression not in COMPRESSIONS:
                raise Refused(f"unknown data format, format={headers.get('format', 'csv')}")
            found = self.table(database, table)
            label = headers.get("label") or f"generated-{next(self._numbers)}"
            timeout = int(headers.get("timeout", "600"))
            begun = self.transactions[database].begin(label, table, timeout)
            return Load(database, found, begun, headers)

    def finish(self, load: Load, body: bytes) -> dict[str, Any]:
        """Write the rows of a load, and prepare or commit it; return its answer. stream_load.cpp, _handle."""
        with self.lock:
            try:
                total, good, filtered = self.sorted_rows(load, body)
            except ValueError as problem:
                self._roll_back(load, str(problem))
                return self.answer(load, "Fail", f"[DATA_QUALITY_ERROR]{problem}", _counts(0, 0, 0, len(body)))
            counts = _counts(total, len(good), filtered, len(body))
            try:
                status = self._written(load, good, filtered, total)
            except Refused as problem:
                self._roll_back(load, str(problem))
                return self.answer(load, "Fail", str(problem), {**counts, **_error_url(filtered)})
            return self.answer(load, *status, counts)

    def sender_is_gone(self, load: Load) -> None:
        """Take back a load whose body does not end.

        be/src/http/action/stream_load.cpp, free_handler_ctx, and the destructor in be/src/runtime/stream_load/
        stream_load_context.h, which rolls back what is neither prepared nor committed.
        """
        with self.lock:
            self._roll_back(load, "sender is gone")

    def answer(self, load: Load, status: str, message: str, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a backend answers. be/src/runtime/stream_load/stream_load_context.cpp, to_json."""
        named = {} if self.two_phases is TwoPhases.UNKNOWN else {"TwoPhaseCommit": str(self._in_two(load)).lower()}
        one = load.transaction
        return {
            "TxnId": one.number,
            "Label": one.label,
            "Comment": "",
            **named,
            "Status": status,
            "Message": message,
            **counts,
        }

    def operate(self, database: str, headers: Mapping[str, str]) -> str:
        """Commit or abort a load, and return the message. fe/fe-core/…/service/FrontendServiceImpl.java, loadTxn2PCImpl."""
        with self.lock:
            operation = headers.get("txn_operation", "")
            transactions = self.transactions_of(database)
            number = self._number(transactions, headers)
            if operation == "commit":
                publish = not self.takes(Fault.PUBLISH_TIMEOUT)
                one = transactions.commit(number, two_phases=True, publish=publish)
                if publish:
                    self._show(database, one)
            else:
                transactions.abort(number, "User Abort")
                self.rows.drop(number)
            return f"transaction [{number}] {operation} successfully."

    def publish(self) -> None:
        """Make visible what is committed and not visible yet."""
        with self.lock:
            for database, transactions in self.transactions.items():
                for one in list(transactions.known.values()):
                    if one.status is Status.COMMITTED:
                        self._show(database, one)
                        transactions.commit(one.number, two_phases=False)

    def fail_over(self) -> None:
        """Another FE becomes the master."""
        with self.lock:
            for transactions in self.transactions.values():
                transactions.fail_over()

    def state_of(self, database: str, label: str) -> str:
        """Return the state of a label."""
        with self.lock:
            return self.transactions_of(database).state_of(label)

    def table(self, database: str, table: str) -> Table:
        """Return a table."""
        self.transactions_of(database)
        if table not in self.tables[database]:
            raise Refused(f"errCode = 7, detailMessage = unknown table, tableName={table}")
        return self.tables[database][table]

    def transactions_of(self, database: str) -> Transactions:
        """Return the transactions of a database."""
        if database not in self.transactions:
            raise Refused(f"errCode = 7, detailMessage = unknown database, database={database}")
        return self.transactions[database]

    def select(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Answer a query of SQLite over `"database.table"`: what readers of the tables see."""
        with self.lock:
            return self.rows.select(statement, parameters)

    @contextmanager
    def settings(self, **changed: Any) -> Iterator[None]:
        """Change attributes for a while."""
        before = {name: getattr(self, name) for name in changed}
        for name, value in changed.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def sorted_rows(self, load: Load, body: bytes) -> tuple[int, list[dict[str, Any]], int]:
        """Return how many rows there are, the good ones, and how many are bad."""
        found = parsed_rows(body, load.headers, load.table)
        good: list[dict[str, Any]] = []
        for row in found:
            kept = None if row is None else _kept(row, load.table, strict=load.headers.get("strict_mode") == "true")
            good += [] if kept is None else [kept]
        return len(found), good, len(found) - len(good)

    def load_at_once(self, load: Load, rows: Sequence[dict[str, Any]]) -> None:
        """Commit a load that has no second phase, and make it visible."""
        self.rows.keep(load.transaction.number, load.table.name, rows)
        self.transactions[load.database].commit(load.transaction.number, two_phases=False)
        self._show(load.database, load.transaction)

    def _in_two(self, load: Load) -> bool:
        return load.headers.get("two_phase_commit") == "true" and self.two_phases is TwoPhases.ENABLED

    def _written(self, load: Load, good: list[dict[str, Any]], filtered: int, total: int) -> tuple[str, str]:
        if total and filtered / total > float(load.headers.get("max_filter_ratio", "0")):
            # be/src/runtime/stream_load/stream_load_executor.cpp, execute_plan_fragment
            raise Refused("[DATA_QUALITY_ERROR]too many filtered rows")
        if self.fails_with:
            raise Refused(self.fails_with.pop(0))
        if self.takes(Fault.TOO_MANY_VERSIONS):
            # docs/faq/data-faq.md, "-235": more loads than compaction can merge
            raise Refused(
                "[E-235]failed to init rowset builder. version count: 2001, exceed limit: 2000, tablet: 10111. Please reduce "
                "the frequency of loading data or adjust the max_tablet_version_num in be.conf to a larger value."
            )
        number, transactions = load.transaction.number, self.transactions[load.database]
        self.rows.keep(number, load.table.name, good)
        if self._in_two(load):
            transactions.prepare(number)
            return "Success", "OK"
        publish = not self.takes(Fault.PUBLISH_TIMEOUT)
        transactions.commit(number, two_phases=False, publish=publish)
        if publish:
            self._show(load.database, load.transaction)
            return "Success", "OK"
        return "Publish Timeout", "transaction commit successfully, BUT data will be visible later"

    def _number(self, transactions: Transactions, headers: Mapping[str, str]) -> int:
        if headers.get("txn_id"):
            return int(headers["txn_id"])
        statuses = [Status.PRECOMMITTED, *([Status.PREPARE] if headers.get("txn_operation") == "abort" else [])]
        return transactions.number_of(headers["label"], statuses)

    def _show(self, database: str, one: Transaction) -> None:
        self.rows.show(database, self.tables[database][one.table], one.number)

    def _roll_back(self, load: Load, reason: str) -> None:
        self.transactions[load.database].abort(load.transaction.number, reason)
        self.rows.drop(load.transaction.number)


def _kept(row: Mapping[str, Any], table: Table, *, strict: bool) -> dict[str, Any] | None:
    """Return a row as it is kept; None where it is filtered."""
    kept: dict[str, Any] = {}
    for column in table.columns:
        value = row.get(column.name)
        try:
            kept[column.name] = column.converted(value)
        except BadValue:
            if strict:
                return None
            kept[column.name] = None
        if kept[column.name] is None and not column.nullable:
            return None
    return kept


def _counts(total: int, loaded: int, filtered: int, size_bytes: int) -> dict[str, Any]:
    """docs/…/stream-load-manual.md, "Load return value"."""
    return {
        "NumberTotalRows": total,
        "NumberLoadedRows": loaded,
        "NumberFilteredRows": filtered,
        "NumberUnselectedRows": 0,
        "LoadBytes": size_bytes,
        "LoadTimeMs": 4,
        "BeginTxnTimeMs": 1,
        "StreamLoadPutTimeMs": 1,
        "ReadDataTimeMs": 1,
        "WriteDataTimeMs": 1,
        "CommitAndPublishTimeMs": 0,
    }


def _error_url(filtered: int) -> dict[str, str]:
    return {"ErrorURL": "http://127.0.0.1:8040/api/_load_error_log?file=error_log_1"} if filtered else {}

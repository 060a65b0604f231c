"""A table of Doris as a sink of two phases (docs/adr/0036). No pyspark here: rows are Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from exactlyonce.connectors.doris.answers import NotSettled, Settled
from exactlyonce.ledger.decided import Committable
from exactlyonce.ledger.known_loads import Span
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.doris.broker_loads import DorisStagedLoads, StagingWriter
from exactlyonce_spark.connectors.doris.client import Body, DorisUnreachable, Operation
from exactlyonce_spark.connectors.doris.exchange import Piece
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.published_labels import published_label
from exactlyonce_spark.connectors.doris.rows import lines_of_batches
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.sql_text import quoted
from exactlyonce_spark.staged_loads import StagedLoads
from exactlyonce_spark.target import LoadState, OpenLoad, PreparedLoad, TwoPhaseTarget
from exactlyonce_spark.tasks import AGAIN

_AT = " at "


@dataclass(frozen=True)
class DorisTarget(TwoPhaseTarget):
    """The table as a driver of an epoch, or one of its tasks, writes to it.

    `published_for` is the checkpoint's location whose labels follow the published rule (`labelFormat: Compatible`). Rows with
    so many bytes in memory as `stages_from_bytes` go into a file, by `staging`; the driver alone has `broker_loads`.
    """

    loads: Loads
    columns: tuple[DorisFit, ...]
    labels: LoadLabels
    epoch: Epoch
    published_for: str | None = None
    staging: StagingWriter | None = None
    stages_from_bytes: int | None = None
    broker_loads: DorisStagedLoads | None = None

    def prepare(self, batch: BatchNumber, part: str, rows: Any, spans: Sequence[Span] = ()) -> PreparedLoad | None:
        """Have Doris take the rows of Arrow batches. They are kept until it has, since a lost answer sends them again."""
        pieces = list(rows)
        count = sum(piece.num_rows for piece in pieces)
        if not count:
            return None
        names = [column.name for column in self.columns]
        documents = frozenset(column.name for column in self.columns if column.is_document)
        plain = frozenset(column.name for column in self.columns if column.is_plain)

        def body() -> Iterator[Piece]:
            return lines_of_batches(pieces, names, documents, plain)

        if self.staging is None or self.stages_from_bytes is None:
            return self.load(batch, part, names, body, count)
        if sum(piece.nbytes for piece in pieces) < self.stages_from_bytes:
            return self.load(batch, part, names, body, count)
        return self.staging.prepare(self.epoch, batch, part, names, body, count)

    @property
    def staged_loads(self) -> StagedLoads | None:
        """The broker loads, where the stream has a place for their files."""
        return self.broker_loads

    def load(self, batch: BatchNumber, part: str, columns: Sequence[str], body: Body, rows: int) -> PreparedLoad:
        """Have Doris take so many rows under the label of a part of a batch."""
        # Rows of a decided batch cannot be made fewer.
        loads = replace(self.loads, shrinks=False) if part.startswith(AGAIN) else self.loads
        published = None if self.published_for is None else published_label(self.published_for, batch, part)
        if published is None:
            return loads.prepare(self.labels.label(self.epoch, batch, part), columns, body, rows)
        return replace(loads.prepare(published, columns, body, rows), shares_label=True)

    def commit(self, committable: Committable) -> bool:
        """Commit a load by the id of its transaction."""
        return self.state_of(committable) is LoadState.COMMITTED

    def state_of(self, committable: Committable) -> LoadState:
        """Return what Doris says of a load: by its id alone, because a label names its latest transaction only.

        HTTP has no question about an id. So it is committed, which is what is to be done with it: whoever asks has decided it.
        """
        answer = self.loads.client.settle(Operation.COMMIT, int(committable.transaction_id))
        match answer:
            case Settled.DONE_NOW | Settled.COMMITTED_BEFORE:
                return LoadState.COMMITTED
            case Settled.ABORTED_BEFORE:
                return LoadState.ABORTED
            case Settled.NOT_FOUND:
                return LoadState.UNKNOWN
            case Settled.ONLY_BEGAN:
                raise DorisUnreachable(
                    f"Doris says that {committable} only began, though it was prepared; the next driver asks again."
                )
            case NotSettled(message):
                raise DorisUnreachable(f"Doris does not commit {committable}: {message}.")
            case _:
                assert_never(answer)

    @property
    def loads_into(self) -> str:
        """The database, which `label_num_threshold` is of, and the frontends; a stream that names others has another text."""
        client = self.loads.client
        return f"{client.database} at {', '.join(sorted(map(str, client.frontends)))}"

    @property
    def place(self) -> str:
        """The table, and the frontends that the stream names."""
        client = self.loads.client
        return f"{client.database}.{client.table}{_AT}{', '.join(sorted(map(str, client.frontends)))}"

    def is_at(self, place: str) -> bool:
        """The ids of transactions are a database's, and two clusters have the same ones: one frontend must still be named."""
        (table, _, frontends), (table_now, _, frontends_now) = place.rpartition(_AT), self.place.rpartition(_AT)
        return table == table_now and not set(frontends.split(", ")).isdisjoint(frontends_now.split(", "))

    def how_to_come_back(self, place: str) -> str:
        """A port for TLS is another one, and so may the names of the servers be.

        Nothing else says that they are the same: two clusters behind one host differ in the port alone, and the other one may
        have a transaction of the same id.
        """
        if place.rpartition(_AT)[0] != self.place.rpartition(_AT)[0]:
            return ""
        return (
            "If these are the same servers by other addresses, as after TLS was turned on, list one of the former addresses in "
            "sink.doris.frontends, behind the new ones, until the batch has landed."
        )

    def how_to_find_out(self, in_doubt: Sequence[Committable]) -> str:
        """Name the statement by the id, then the log that outlives it, then the table itself.

        Source: DatabaseTransactionMgr.java, finishTransaction, abortTransaction and TransactionState.toString, which log the
        id with the status; "SHOW TRANSACTION" of Doris' manual, which needs the right ADMIN.
        """
        client = self.loads.client
        database, table = (quoted(name) for name in (client.database, client.table))
        shown = "; ".join(f"SHOW TRANSACTION FROM {database} WHERE {_condition(one)}" for one in in_doubt)
        counted = f"SELECT COUNT(*) FROM {database}.{table} WHERE ..."  # noqa: S608 - a person runs it, names are quoted
        first = in_doubt[0]
        logged = (
            f"label: {first.label}," if first.staged is not None else f"transaction id: {int(first.transaction_id)},"
        )
        return (
            f"Ask Doris as an administrator: {shown}. What it has forgotten is in fe.log of the frontend that was master, with "
            f"'{logged}' and then 'transaction status: VISIBLE' or 'ABORTED'; or count the records of "
            f"these ranges by their keys: {counted}."
        )

    def open_loads(self) -> Iterable[OpenLoad]:
        """Return none, as HTTP lists none. Doris aborts what nobody decided, after an hour by default (docs/adr/0037)."""
        return ()

    def abort(self, load: OpenLoad) -> None:
        """Abort a load that is prepared."""
        self.loads.abort(int(load.transaction_id))


def _condition(one: Committable) -> str:
    """A broker load is known by its label; one that was prepared by its id, since its label names the latest one alone."""
    return f"label = '{one.label}'" if one.staged is not None else f"id = {int(one.transaction_id)}"

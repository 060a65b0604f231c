"""Where the demo's orders go: a table of Postgres, or a folder of Parquet files; each is counted by its own readers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from demo.setup import Setup


@dataclass(frozen=True)
class Count:
    """What one reader counts: rows, distinct ids, ids that were never produced, and the sum of the amounts."""

    reader: str
    rows: int
    distinct: int
    foreign: int
    amount: Decimal


class Sink(Protocol):
    """A sink of the demo."""

    place: str
    """Where orders are once they have landed, for a sentence."""
    after_commit: str
    after_tasks: str
    before_commit: str
    """The acts at named points, in the sink's own words."""

    def prepare(self, setup: Setup) -> None:
        """Make what has to be there before the stream starts."""
        ...

    def spec(self, setup: Setup) -> dict[str, Any]:
        """Return the parts of the resource that say where rows go."""
        ...

    def landed(self, setup: Setup) -> int:
        """Return how many rows have landed."""
        ...

    def counts(self, setup: Setup, total: int) -> Iterator[Count]:
        """Count, each reader on its own; ids from 0 up to `total` were produced."""
        ...


class Table:
    """A table; no key on the id: a record that landed twice must be seen as two rows, not be hidden by the table."""

    place = "in Postgres"
    after_commit = "SIGKILL between Postgres' commit and Spark's commit log"
    after_tasks = "SIGKILL after the tasks have staged their rows"
    before_commit = "SIGKILL just before Postgres' commit"

    def prepare(self, setup: Setup) -> None:
        """Make the table."""
        setup.sql("create table public.orders (id bigint, customer text, amount numeric(12,2), ts timestamptz)")

    def spec(self, setup: Setup) -> dict[str, Any]:
        """The example's own."""
        return {}

    def landed(self, setup: Setup) -> int:
        """Count the rows of the table."""
        return int(setup.sql("select count(*) from public.orders")[0][0])

    def counts(self, setup: Setup, total: int) -> Iterator[Count]:
        """Count in the table."""
        found = setup.sql(
            f"select count(*), count(distinct id), count(*) filter (where id not between 0 and {total - 1}), sum(amount) "
            "from public.orders"
        )[0]
        yield Count("Postgres", *found)


class Folder:
    """A folder of Parquet files; the ledger is in Postgres."""

    place = "in files that count"
    after_commit = "SIGKILL between the ledger's commit and the entry for Spark's readers"
    after_tasks = "SIGKILL after the files are written, before the ledger names them"
    before_commit = "SIGKILL just before the ledger's commit"

    def prepare(self, setup: Setup) -> None:
        """The stream makes its folder."""

    def spec(self, setup: Setup) -> dict[str, Any]:
        """Files in a folder of the demo."""
        return {
            "sink": {"files": {"path": str(setup.folder / "lake")}},
            "ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        }

    def landed(self, setup: Setup) -> int:
        """Ask the ledger: rows of files that it does not name have not landed."""
        if setup.sql("select to_regclass('exactlyonce.committables')")[0][0] is None:
            return 0
        question = "select coalesce(sum((committable::json->>'rows')::bigint), 0) from exactlyonce.committables"
        return int(setup.sql(question)[0][0])

    def counts(self, setup: Setup, total: int) -> Iterator[Count]:
        """Count with pyarrow what `exactlyonce files` lists, and with Spark what it sees in the folder."""
        yield self._by_pyarrow(setup, total)
        yield self._by_spark(setup, total)

    def _by_pyarrow(self, setup: Setup, total: int) -> Count:
        import pyarrow.compute
        import pyarrow.dataset

        command = [sys.executable, "-m", "exactlyonce.cli.main", "files", str(setup.file)]
        command += ["--state", str(setup.folder / "state"), "--secrets", str(setup.folder / "secrets")]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        table = pyarrow.dataset.dataset(listed).to_table(columns=["id", "amount"])
        ids: list[Any] = table["id"].to_pylist()
        amount = pyarrow.compute.sum(table["amount"]).as_py()
        foreign = sum(not 0 <= number < total for number in ids)
        return Count(f"pyarrow, from {len(listed)} files listed", len(ids), len(set(ids)), foreign, amount)

    def _by_spark(self, setup: Setup, total: int) -> Count:
        from pyspark.sql import functions

        from testbed.spark import local_session

        with local_session("counts the demo") as session:
            row = (
                session.read.parquet(str(setup.folder / "lake"))
                .agg(
                    functions.count("*"),
                    functions.countDistinct("id"),
                    functions.count_if(~functions.col("id").between(0, total - 1)),
                    functions.sum("amount"),
                )
                .collect()[0]
            )
        return Count("spark.read of the folder", *row)


SINKS: dict[str, Callable[[], Sink]] = {"postgres": Table, "files": Folder}

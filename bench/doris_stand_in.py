"""The stand-in for Doris in a process of its own, for the benchmark: it parses and counts rows, and keeps none.

Each body is parsed by Arrow, in C++ and on every core, which is less than a backend of Doris does with it. Protocol, labels and
transactions are those of the tests' stand-in. Prints the frontend as host:port; then, for each line of standard input, a
document of what it has seen since the line before: `requests`, `labels`, `rows` that count, and its own `core_seconds`.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.json

from bench.doris_rows import DATABASE, KINDS, PASSWORD, USER
from testbed.doris.cluster import Cluster, Load, Login
from testbed.doris.handlers import Seen
from testbed.doris.servers import StandIn
from testbed.doris.tables import Column, Table


class Requests(list[Seen]):
    """Counts requests, and keeps none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def append(self, _: Seen) -> None:
        """Count one."""
        self.number += 1


@dataclass
class CountingCluster(Cluster):
    """Counts the rows of each load that is committed."""

    prepared: dict[int, int] = field(default_factory=dict)
    visible: int = 0
    labels: int = 0

    def finish(self, load: Load, body: bytes) -> dict[str, Any]:
        """Parse a load, and prepare or commit it."""
        names = [column.name for column in load.table.columns]
        rows, number = _parsed(body, load.headers.get("format", "csv"), names), load.transaction.number
        with self.lock:
            self.labels += 1
            self.prepared[number] = rows
            transactions = self.transactions[load.database]
            if load.headers.get("two_phase_commit") == "true":
                transactions.prepare(number)
            else:
                self._count([transactions.commit(number, two_phases=False).number])
            counts = {"NumberTotalRows": rows, "NumberLoadedRows": rows, "NumberFilteredRows": 0}
            return self.answer(load, "Success", "OK", {**counts, "NumberUnselectedRows": 0, "LoadBytes": len(body)})

    def _show(self, database: str, one: Any) -> None:
        self._count([one.number])

    def _count(self, numbers: Iterable[int]) -> None:
        self.visible += sum(self.prepared.pop(number) for number in numbers)


def _parsed(body: bytes, kind: str, names: list[str]) -> int:
    if not body:
        return 0
    source = io.BytesIO(body)
    if kind == "json":
        return int(pyarrow.json.read_json(source).num_rows)
    options = pyarrow.csv.ReadOptions(column_names=names)
    return int(pyarrow.csv.read_csv(source, options, pyarrow.csv.ParseOptions(delimiter="\t")).num_rows)


def main() -> None:
    """Serve until standard input ends."""
    cluster, requests = CountingCluster({USER: Login(PASSWORD)}), Requests()
    for kind in KINDS:
        others = (Column(name, "VARCHAR") for name in kind.columns[1:])
        cluster.create(DATABASE, Table(kind.table, (Column("id", "BIGINT", is_key=True, nullable=False), *others)))
    with StandIn(cluster, seen=requests) as server:
        print(server.frontend, flush=True)
        before = time.process_time()
        for _ in sys.stdin:
            now = time.process_time()
            seen: dict[str, float] = {"requests": requests.number, "labels": cluster.labels, "rows": cluster.visible}
            requests.number = cluster.labels = cluster.visible = 0
            seen["core_seconds"], before = now - before, now
            print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()

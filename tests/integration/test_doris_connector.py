"""Doris' own Spark connector writes into the stand-in for Doris, and loads rows twice where this project does not.

The connector, and Spark 3.5, are from Maven Central (testbed/doris-connector.lock). What each leaves in a table is counted by
ids. `docs/comparison.md` has what these tests show.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from exactlyonce.connectors.doris.answers import LabelState
from exactlyonce.ledger.decided import Committable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Ranges
from exactlyonce_spark.connectors.doris.client import DorisUnreachable
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.load_labels import LoadLabels
from testbed.doris.cluster import Fault
from testbed.doris.servers import StandIn
from testbed.doris.tables import Table
from testbed.doris_connector import DorisConnector
from tests.combinations import only_in_full
from tests.doris import DATABASE, ORDERS, PASSWORD, client, state

pytestmark = (
    only_in_full  # of the stand-in's rules: tests/unit/test_doris_stand_in.py; of ours: tests/unit/test_doris_loads.py
)

ROWS, HALF, LOAD = 1000, 500, 200
"""Rows; what each of two tasks has of them; and how many go into one load where a test says so."""
TWO_PHASES = {"doris.sink.enable-2pc": "true"}
SMALL_LOADS = {"doris.sink.batch.size": str(LOAD)}


@dataclass
class Site:
    """A stand-in with the connector beside it."""

    server: StandIn
    connector: DorisConnector
    tables: int = 0

    def table(self) -> str:
        """Create a table of ids and notes, and return its name."""
        self.tables += 1
        name = f"ids{self.tables}"
        self.server.cluster.create(DATABASE, Table(name, ORDERS.columns))
        return f"{DATABASE}.{name}"

    def counted(self, table: str) -> tuple[int, int]:
        """Return how many ids a table has, and how many of them more than once."""
        found = Counter(row[0] for row in self.server.cluster.select(f'select id from "{table}"'))
        return len(found), sum(number > 1 for number in found.values())

    def label_states(self, table: str) -> list[str]:
        """Return the state of the label of each load of a table that a backend has seen."""
        path = f"/api/{table.replace('.', '/')}/_stream_load"
        loads = [one for one in self.server.seen if one.server == "backend" and one.path.rstrip("?") == path]
        return [state(self.server, one.headers["label"]) for one in loads]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    log = tmp_path_factory.mktemp("connector") / "log"
    with StandIn() as server:
        server.cluster.create(DATABASE, ORDERS)
        with DorisConnector(log, server.frontend, "loader", PASSWORD) as connector:
            yield Site(server, connector)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"doris.sink.properties.format": "json"},
        {"doris.sink.auto-redirect": "false"},
        {**TWO_PHASES, **SMALL_LOADS},
    ],
    ids=lambda options: ",".join(options) or "as it is",
)
def test_the_connector_of_doris_writes_every_row_once(site: Site, options: Mapping[str, str]) -> None:
    table = site.table()
    assert site.connector.append(table, options, ROWS) == "done"
    assert site.counted(table) == (ROWS, 0)
    assert set(site.label_states(table)) == {"VISIBLE"}


def test_the_connector_doubles_what_a_task_had_loaded_that_spark_runs_again(site: Site) -> None:
    table = site.table()
    assert site.connector.append(table, SMALL_LOADS, ROWS, fails_at=HALF + 2 * LOAD + 50) == "done"
    assert site.counted(table) == (ROWS, 2 * LOAD)


def test_the_connector_doubles_a_load_whose_answer_is_lost(site: Site) -> None:
    table = site.table()
    site.server.cluster.faults.append(Fault.PREPARE_ANSWER_LOST)
    assert site.connector.append(table, {}, ROWS) == "done"
    assert site.counted(table) == (ROWS, HALF)


@pytest.mark.parametrize(("faults", "fails_at"), [([], HALF + 2 * LOAD + 50), ([Fault.PREPARE_ANSWER_LOST], -1)])
def test_the_connector_in_two_phases_survives_a_task_that_runs_again(
    site: Site, faults: list[Fault], fails_at: int
) -> None:
    table = site.table()
    site.server.cluster.faults += faults
    assert site.connector.append(table, {**TWO_PHASES, **SMALL_LOADS}, ROWS, fails_at=fails_at) == "done"
    assert site.counted(table) == (ROWS, 0)


def test_a_structured_stream_of_the_connector_doubles_a_batch_in_two_phases_whose_commit_is_not_answered(
    site: Site, tmp_path: Path
) -> None:
    table = site.table()
    folder = tmp_path / "input"
    folder.mkdir()
    lines = [json.dumps({"id": number, "note": "x"}) + "\n" for number in range(ROWS)]
    (folder / "a.json").write_text("".join(lines))
    site.server.cluster.faults.append(Fault.COMMIT_ANSWER_LOST)
    first, second = (site.connector.stream(table, TWO_PHASES, folder, tmp_path / "checkpoint") for _ in "ab")
    assert (first.split()[0], second) == ("failed", "done")
    assert site.counted(table) == (ROWS, ROWS)


@pytest.mark.parametrize("fault", [Fault.PREPARE_ANSWER_LOST, Fault.COMMIT_ANSWER_LOST, Fault.COMMIT_LOST])
def test_ours_loads_once_what_the_connector_doubles(site: Site, fault: Fault) -> None:
    """A task runs again after its load was prepared, an answer is lost, and a driver commits again what was decided."""
    table = site.table()
    columns = (DorisFit("id", "`id`"), DorisFit("note", "`note`"))
    loads = Loads(client(site.server.frontend, table=table.split(".")[1]), pause=lambda _: None)
    target = DorisTarget(loads, columns, LoadLabels("shop/orders", table), Epoch(1))
    rows = pa.RecordBatch.from_pydict({"id": list(range(ROWS)), "note": ["x"] * ROWS})
    site.server.cluster.faults.append(fault)
    first, again = (target.prepare(BatchNumber(1), f"0-{run}", [rows]) for run in "ab")
    assert first is not None
    assert again is not None
    decided = Committable(again.label, again.transaction_id, again.rows, Ranges({}))
    with suppress(DorisUnreachable):
        target.commit(decided)
    assert target.commit(decided)
    site.server.cluster.pass_time(3601)
    assert site.counted(table) == (ROWS, 0)
    assert tuple(target.loads.client.state_of(label) for label in (first.label, again.label)) == (
        LabelState.ABORTED,
        LabelState.VISIBLE,
    )

"""Replays over real servers: a stream with records that fail continues, the transform is mended, and each id is there once."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.cli.local_replay import document_of, run_document, run_replay
from exactlyonce.cli.main import main
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.launch.backfill import order_of, rows_of
from exactlyonce.launch.local import MARKER
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from tests.combinations import EVERY_MODE, in_full
from tests.replayed_transforms import OF_EACH_RECORD, OF_MANY
from tests.rig import Rig
from tests.warm.launcher import warm_environment

pytestmark = pytest.mark.seconds(30)

FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer, amount, ts from source"
MENDED = "select id, customer, amount, ts from source"
SMALL = 7
"""Fewer records than one partition has in a batch, and none that fails is among the first."""

CURRENCY = {"amount": "1.50 EUR"}
"""What a producer wrote for a while: no number, until the schema takes it as a text."""
WITHOUT = "select id, customer, cast(replace(amount, ' EUR', '') as decimal(12,2)) as amount, ts from source"
NUMBERS, TEXTS = (f"id BIGINT, customer STRING, amount {kind}, ts TIMESTAMP" for kind in ("DECIMAL(12,2)", "STRING"))

NO_BACKOFF = {"initial": "0s", "max": "1s"}
OVERRIDES = {
    "spec.source.kafka.maxOffsetsPerTrigger": 40,
    "spec.source.format": {"schema": NUMBERS, "onMalformed": "DeadLetter"},
    "spec.transform": {"sql": FAILS},
    "spec.recovery": {"backoff": NO_BACKOFF, "maxFailuresPerBatch": 1, "onPoisonBatch": "Quarantine"},
}


def test_what_is_in_quarantine_or_a_dead_letter_lands_once_after_it_is_mended_though_replays_are_killed(
    rig: Rig,
) -> None:
    rig.overrides |= OVERRIDES
    malformed = set(rig.produce(3, partition=2, **CURRENCY))
    rig.produce(60)
    rig.produce(1, partition=1, customer="nobody")
    rig.produce(59)
    assert rig.run() == Done(completed=True), rig.story()
    missing = set(rig.produced) - set(rig.counts()) - malformed
    assert 1 < len(missing) <= 40, "the record that fails, and its batch"
    stood = positions(rig)

    shown = replayed(rig)
    assert shown.exit_code == 0, shown.output
    assert "Nothing was changed" in shown.stdout
    assert shown.stdout.count(" held") == len(ranges(rig))

    # In the simulation they are killed between every two statements: tests/simulation/test_replays.py.
    for point in in_full(
        ("replay.claimed", "replay.read", "replay.rows-written", "replay.landed"), otherwise=("replay.landed",)
    ):
        with_crash(rig, point)
    left = missing - set(rig.counts()) - malformed
    assert len(left) == len(missing) - SMALL, "the first chunk has landed, and nothing else"
    assert statuses(rig) == {"Replaying", "Replayed"}
    if EVERY_MODE:  # by default the simulation and tests/unit/test_replay_rules.py say so
        again = replayed(rig, "--yes")
        assert again.exit_code == 1, "the record fails as it did"
        assert "division by zero" in again.stderr.lower()
        assert len(set(rig.produced) - set(rig.counts()) - malformed) == 1, "one bad record costs one record"
        assert statuses(rig) == {"Quarantined", "Replayed"}

    (rig.folder / "mended.sql").write_text(MENDED)
    landed = replayed(rig, "--yes", "--transform", str(rig.folder / "mended.sql"))
    assert landed.exit_code == 0, landed.output
    assert set(rig.produced) - set(rig.counts()) == malformed
    assert statuses(rig) == {"Replayed"}

    land_dead_letters(rig, malformed)
    backfill(rig)
    rig.assert_exactly_once()
    assert positions(rig) == stood, "the stream stands where it stood"


def land_dead_letters(rig: Rig, malformed: set[int]) -> None:
    """Replay them by the schema that made them, and by a mended one: killed once, and once more where all have landed."""
    if EVERY_MODE:  # by default tests/integration/test_letter_replay.py and the simulation say so
        again = replayed(rig, "--from", "dead-letters", "--yes")
        assert again.exit_code == 1, again.output
        assert again.stderr.count("failed again: column amount: 1.50 EUR is not a plain decimal number") == len(
            malformed
        )
        assert set(rig.counts()).isdisjoint(malformed)
    rig.overrides["spec.source.format"] = {"schema": TEXTS, "onMalformed": "DeadLetter"}
    rig.overrides["spec.transform"] = {"sql": WITHOUT}
    for point in in_full(("letters.claimed", "letters.rows-written", "letters.landed"), otherwise=("letters.landed",)):
        environment = {**warm(rig, point), VARIABLE: f"{point}=kill-driver,{rig.folder / f'fired-{point}'}"}
        opened = rig.open()  # the letters are found by the process itself, as in the pod of a StreamReplay
        document = replace(
            document_of(opened, [], most_records=2), find={"errorMatching": "PLAIN DECIMAL"}, by="uid-1/"
        )
        report = run_document(opened, Path(rig.secrets), document, environment)
        assert report.problem is not None, "it died"
    assert len(malformed - set(rig.counts())) == 1, "the first chunk has landed, and nothing else"
    assert opened.ledger.replayed_letters(opened.stream.stream_id, "uid-1/") == 2, "which is how they are counted"
    landed = replayed(rig, "--from", "dead-letters", "--yes")
    assert landed.exit_code == 0, landed.output
    assert "1 of 1 dead letters can be replayed" in landed.stdout
    assert "is to be replayed" in replayed(rig, "--from", "dead-letters").stdout


def backfill(rig: Rig) -> None:
    """Land what the stream has landed long ago into another table, by a process that is killed and one that continues."""
    rig.sql("create table orders_again (like orders including all)")
    (end,) = rig.sql("select next_offset from exactlyonce.offsets where partition = 0")[0]
    spans = [(Partition(rig.name, 0), OffsetRange(5, end))]
    asked = ("--from", "ranges", "--ranges", json.dumps({rig.name: {"0": [5, end]}}), "--backfill", "again")
    own = replayed(rig, *asked, "--into", "public.orders")
    assert "is the table of the stream itself" in own.stderr
    other_name = replayed(rig, *asked[:-1], "own", "--into", "orders", "--yes")
    assert "itself lands into table orders, or rows of the one table" in other_name.stderr, other_name.output
    shown = replayed(rig, *asked, "--into", "orders_again")
    assert f"0 records have landed, {end - 5} are left." in shown.stdout, shown.output
    opened = rig.open()
    document = replace(
        document_of(opened, (), most_records=7),
        take_up=tuple(AskedRange.given(*it) for it in spans),
        backfill=order_of("again", "orders_again", spans, rows_of(opened.stream.spec)),
    )
    crash = {VARIABLE: f"replay.landed=kill-driver,{rig.folder / 'fired-backfill'}"}
    assert run_document(opened, Path(rig.secrets), document, {**warm(rig, "backfill"), **crash}).problem is not None
    assert rig.sql("select count(*) from orders_again") == [(7,)], "the first chunk has landed, and nothing else"
    landed = replayed(rig, *asked, "--into", "orders_again", "--yes")
    assert landed.exit_code == 0, landed.output
    assert rig.sql("select count(*), count(distinct id) from orders_again") == [(end - 5, end - 5)]
    assert (
        f"{end - 5} records have landed, 0 are left." in replayed(rig, *asked, "--into", "orders_again", "--yes").stdout
    )


def replayed(rig: Rig, *arguments: str) -> Result:
    """Run `exactlyonce replay` on the stream as its file has it."""
    file = rig.folder / "orders.yaml"
    file.write_text(yaml.safe_dump(rig.document()))
    options = ["--state", str(rig.folder / "state"), "--secrets", str(rig.secrets)]
    environment = {**warm(rig, "command"), "COLUMNS": "250"}
    return CliRunner().invoke(main, ["replay", str(file), *options, *arguments], env=environment)


def warm(rig: Rig, name: str) -> dict[str, str]:
    """What lets the process of a replay take a JVM that is there already."""
    return {**warm_environment({}), MARKER: f"{rig.folder}/{name}"}


def positions(rig: Rig) -> list[tuple[Any, ...]]:
    return rig.sql("select partition, next_offset from exactlyonce.offsets order by partition")


def ranges(rig: Rig) -> list[RangeKey]:
    rows = rig.sql("select batch, topic, partition, from_offset from exactlyonce.failures where status <> 'Replayed'")
    return [RangeKey(BatchNumber(batch), Partition(topic, number), start) for batch, topic, number, start in rows]


def statuses(rig: Rig) -> set[str]:
    return {status for (status,) in rig.sql("select status from exactlyonce.failures where status not in ('Closed')")}


def with_crash(rig: Rig, point: str) -> ReplayReport:
    """Replay all with small chunks, by a process that dies at a point."""
    crash = f"{point}=kill-driver,{rig.folder / f'fired-{point}'}"
    environment = {**warm(rig, point), VARIABLE: crash}
    report = run_replay(rig.open(), Path(rig.secrets), ranges(rig), most_records=SMALL, environment=environment)
    assert report.problem is not None, "it died"
    return report


def test_a_transform_that_makes_rows_of_several_records_is_refused_by_what_does_so() -> None:
    """A static table may be summed up and joined: its rows are all there."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.replayed_transforms"], stdout=subprocess.PIPE, check=True, text=True
    )
    found = json.loads(ran.stdout)
    assert [text for text in OF_EACH_RECORD if found[text] is not None] == []
    assert [text for text, node in OF_MANY.items() if node not in (found[text] or "")] == []

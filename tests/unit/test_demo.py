"""The demo: what it counts as wrong, what it puts into each source, and the stream that it runs."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from demo.__main__ import Play, arguments
from demo.acts import acts_on
from demo.orders import NotAccepted, Orders, order
from demo.screen import Screen
from demo.setup import Setup
from demo.sinks import SINKS, Count
from demo.sources import SOURCES, ToKinesis
from exactlyonce.api.resource import parse_stream
from testbed.postgres import Postgres

ROOT = Path(__file__).parents[2]
TOTAL = 4


class KinesisOfTheTest:
    """Takes orders as PutRecords does, except those of some ids."""

    def __init__(self, refuses: int = -1) -> None:
        self.taken: list[int] = []
        self.keys: set[str] = set()
        self._refuses = refuses

    def put_records(self, **asked: Any) -> dict[str, Any]:
        assert asked["StreamName"] == "orders"
        records = asked["Records"]
        assert len(records) <= 500, "Kinesis takes no more at a time"
        ids = [json.loads(record["Data"])["id"] for record in records]
        self.taken += [number for number in ids if number != self._refuses]
        self.keys |= {record["PartitionKey"] for record in records}
        return {"FailedRecordCount": ids.count(self._refuses)}


class SourceOfTheTest:
    """A source without a server."""

    orders_a_second = 1_000_000_000

    def __init__(self, kinesis: KinesisOfTheTest) -> None:
        self.kinesis = kinesis

    def sender(self) -> ToKinesis:
        return ToKinesis(self.kinesis)


def setup(folder: Path, source: str, sink: str) -> Setup:
    return Setup(folder, SOURCES[source](folder), Postgres(folder / "postgres"), SINKS[sink]())


def plays(folder: Path, *counts: Count) -> bool:
    """Return what the demo thinks of what the readers of its sink have counted."""
    played = setup(folder, "kinesis", "files")
    played.sink.counts = lambda setup, total: iter(counts)  # type: ignore[method-assign]
    orders = Orders(played.source, TOTAL)
    return Play(played, orders, Screen(TOTAL, "there"))._count(7)


RIGHT = Count("a reader", 4, 4, 0, Decimal("0.06"))  # orders 0 to 3 are 0.00, 0.01, 0.02 and 0.03


def test_every_order_once_is_right(tmp_path: Path) -> None:
    assert plays(tmp_path, RIGHT, RIGHT)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Count("a reader", 3, 3, 0, Decimal("0.06")), id="one is lost"),
        pytest.param(Count("a reader", 5, 4, 0, Decimal("0.06")), id="one is doubled"),
        pytest.param(Count("a reader", 4, 3, 0, Decimal("0.06")), id="one is lost and another one doubled"),
        pytest.param(Count("a reader", 5, 5, 1, Decimal("0.06")), id="one was never produced"),
        pytest.param(Count("a reader", 4, 4, 1, Decimal("0.06")), id="one is another than was produced"),
        pytest.param(Count("a reader", 4, 4, 0, Decimal("0.05")), id="one has another amount"),
    ],
)
def test_the_demo_is_wrong_if_any_reader_counts_anything_else(tmp_path: Path, wrong: Count) -> None:
    assert not plays(tmp_path, RIGHT, wrong)
    assert not plays(tmp_path, wrong, RIGHT)


def test_every_order_is_put_into_kinesis_once_and_never_further_than_allowed() -> None:
    kinesis = KinesisOfTheTest()
    orders = Orders(SourceOfTheTest(kinesis), 1_234, allowed=1_234)  # type: ignore[arg-type] # all of it that is used
    orders.start()
    assert orders._work is not None
    orders._work.result(60)
    orders.stop()
    assert orders.produced == 1_234
    assert Counter(kinesis.taken) == Counter(range(1_234))
    assert len(kinesis.keys) == 1_234, (
        "each order has a partition key of its own, so that orders spread over the shards"
    )


def test_more_orders_than_kinesis_takes_at_a_time_are_put_in_several_requests() -> None:
    kinesis = KinesisOfTheTest()
    ToKinesis(kinesis).send(range(7, 1_207))
    assert kinesis.taken == list(range(7, 1_207))


def test_the_demo_says_that_kinesis_did_not_take_an_order_instead_of_counting_it_as_lost() -> None:
    orders = Orders(SourceOfTheTest(KinesisOfTheTest(refuses=250)), 1_000, allowed=1_000)  # type: ignore[arg-type] # as above
    orders.start()
    assert orders._work is not None
    orders._work.exception(60)
    orders.stop()
    with pytest.raises(NotAccepted, match=r"did not take 1 of the orders 200 to 399\.$"):
        orders.check()


def test_an_orders_amount_follows_from_its_id() -> None:
    assert json.loads(order(100_007))["amount"] == "0.07"
    assert json.loads(order(100_007))["id"] == 100_007


@pytest.mark.parametrize(("source", "sink"), list(product(SOURCES, SINKS)))
def test_the_demos_stream_is_one_that_may_run(tmp_path: Path, source: str, sink: str) -> None:
    played = setup(tmp_path, source, sink)
    document = played.document()
    parse_stream(document, "the demo")
    assert [word for word in ("kafka", "kinesis") if word in document["spec"]["source"]] == [source]
    assert list(document["spec"]["sink"]) == [sink]


def test_the_secrets_that_the_streams_source_names_are_written(tmp_path: Path) -> None:
    source = setup(tmp_path, "kinesis", "files").source
    assert source.spec()["kinesis"]["secretRef"]["name"] in source.secrets()
    assert setup(tmp_path, "kafka", "files").source.secrets() == {}


def test_shards_are_split_and_merged_on_the_way_and_drivers_killed_as_often_as_with_kafka(tmp_path: Path) -> None:
    kinesis, kafka = (setup(tmp_path, source, "files") for source in ("kinesis", "kafka"))
    titles = [act.title for act in acts_on(kinesis.source, kinesis.sink)]
    assert titles[1].startswith("split a shard")
    assert titles[6].startswith("merge two shards")
    kills = [act.kills for act in acts_on(kinesis.source, kinesis.sink)]
    assert kills == [act.kills for act in acts_on(kafka.source, kafka.sink)]
    assert sum(kills) == 6


def test_the_help_and_the_first_line_name_the_stand_in_for_kinesis(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments().parse_args(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "stand-in on this machine, moto's server" in said
    assert "make demo SOURCE=kinesis SINK=files" in said
    assert "moto" in SOURCES["kinesis"].product


@pytest.mark.parametrize("orders", ["-1", "0", "1999", "many", "1e6"])
def test_a_number_of_orders_with_which_no_act_could_be_played_is_refused(
    orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments().parse_args([f"--orders={orders}"])
    assert ended.value.code == 2
    assert "give a whole number of at least 2,000" in capsys.readouterr().err


def test_make_hands_the_source_and_the_sink_on() -> None:
    asked = ["make", "-n", "-o", ".venv/.ready", "demo", "SOURCE=kinesis", "SINK=files"]
    # A make above this test (make test) would have this one print the directories that it enters.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    said = subprocess.run(asked, cwd=ROOT, env=alone, capture_output=True, text=True, check=True).stdout
    assert said.split()[1:] == ["-m", "demo", "--source", "kinesis", "--sink", "files"]

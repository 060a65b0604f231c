"""`exactlyonce offsets reset` over real servers: what lands once more, and what is kept and lands later or never."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.cli.main import main
from exactlyonce.reconcile.loop import Done
from tests.combinations import in_full
from tests.rig import Rig

pytestmark = pytest.mark.seconds(40)

AT_ONCE = {"spec.trigger": {"availableNow": True}}


def reset(rig: Rig, to: dict[int, int], *options: str) -> Result:
    """Ask for positions of some partitions, as a person does."""
    file = rig.folder / "stream.yaml"
    file.write_text(yaml.safe_dump(rig.document(AT_ONCE)))
    places = ["--state", str(rig.folder / "state"), "--secrets", str(rig.secrets)]
    positions = json.dumps({rig.name: {str(partition): offset for partition, offset in to.items()}})
    return CliRunner().invoke(main, ["offsets", "reset", str(file), *places, "--to", positions, *options])


def stands(rig: Rig) -> dict[int, int]:
    return dict(rig.sql("select partition, next_offset from exactlyonce.offsets"))


def failures(rig: Rig, status: str) -> list[tuple[Any, ...]]:
    rows = "select partition, from_offset, until_offset from exactlyonce.failures where status = %s order by 1, 2"
    return rig.sql(rows, status)


def ids(partition: int, first: int, until: int) -> list[int]:
    """The ids that the rig has produced to a partition of four, from one offset to another."""
    return [4 * offset + partition for offset in range(first, until)]


def test_records_land_once_more_for_a_reset_back_and_once_or_never_where_they_were_skipped_though_drivers_are_killed(
    rig: Rig,
) -> None:
    rig.produce(80)
    assert rig.run() == Done(completed=True), rig.story()
    rig.produce(60)
    assert stands(rig) == {0: 20, 1: 20, 2: 20, 3: 20}
    wanted = {0: 15, 1: 35}

    dry = reset(rig, wanted, "--keep-skipped")
    assert dry.exit_code == 0, dry.output
    table = [line.split()[1:] for line in dry.stdout.splitlines()[1:5]]
    assert table == [["0", "20", "15", "0", "5"], ["1", "20", "35", "15", "0"]] + [
        [partition, "20", "20", "0", "0"] for partition in ("2", "3")
    ]
    assert reset(rig, wanted, "--keep-skipped", "--by", "jane", "--why", "a wrong join", "--yes").exit_code == 0
    assert stands(rig) == {0: 20, 1: 20, 2: 20, 3: 20}, "the next launch does it"
    crash = in_full(
        "land.before-commit@3=kill-driver batch.landed@3=kill-driver", otherwise="batch.landed@3=kill-driver"
    )
    assert rig.run(crash=crash) == Done(completed=True), rig.story()
    once = Counter(rig.produced)
    expected = once + Counter(ids(0, 15, 20)) - Counter(ids(1, 20, 35))
    assert rig.counts() == expected
    assert failures(rig, "Quarantined") == [(1, 20, 35)]
    ((status, note),) = rig.sql("select status, note from exactlyonce.batches where batch = 2")
    assert status == "Seeded"
    assert "jane asked for it at " in note
    assert note.endswith(": a wrong join.")
    told = [words for kind, words in rig.events if kind == "OffsetsReset"]
    assert len(told) == 1, "the annotation that is left behind asks for nothing any more"
    assert "15 records are skipped and kept in quarantine; 5 records are read again." in told[0]
    ((digest,),) = rig.sql("select fingerprint::json ->> 'offset' from exactlyonce.failures")
    assert digest == "34", "a replay recognises the range by its last record"

    refused = reset(rig, {1: 36}, "--why", "beyond the end", "--yes")
    assert refused.exit_code == 1
    assert f"the source holds {rig.name}-1 up to 35, and the stream would stand at 36" in refused.stderr
    assert reset(rig, {1: 30}, "--why", "some of it after all", "--yes").exit_code == 0
    assert rig.run() == Done(completed=True), rig.story()
    assert rig.counts() == expected + Counter(ids(1, 30, 35))
    assert failures(rig, "Quarantined") == [(1, 20, 30)]
    assert failures(rig, "Superseded") == [(1, 30, 35)], "no replay can land them a second time"

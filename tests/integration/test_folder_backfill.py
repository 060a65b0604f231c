"""What was written to a folder between two moments lands in another table, each id once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.resource import API_VERSION
from exactlyonce.api.stream_replay import REPLAY_KIND
from exactlyonce.cli.main import main
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from testbed.postgres import Postgres
from tests.folder_rig import FolderRig
from tests.integration.test_replay import replayed, statuses, warm

pytestmark = pytest.mark.seconds(60)

EACH = 5
NAME = "second-to-fifth"
FIRST = 1_700_000_000
"""The time of the first file, since 1970; each that follows is a second younger."""


def test_what_was_written_between_two_moments_lands_once_in_another_table_though_its_process_is_killed(
    postgres_18: Postgres, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = FolderRig(postgres_18, tmp_path, name)
    files = rig.put(6, ids_each=EACH)
    assert rig.run() == Done(completed=True), rig.story()
    late = rig.put(1, ids_each=EACH, seconds=FIRST + 2)  # read last, though it is as old as the third one
    assert rig.run() == Done(completed=True), rig.story()
    rig.sql("create table orders_again (id bigint, customer text)")
    stood = rig.sql("select position from exactlyonce.offsets")
    wanted = Counter(range(EACH, 4 * EACH)) + Counter(range(6 * EACH, 7 * EACH))

    shown = asked(rig)
    assert shown.exit_code == 0, shown.output
    assert "is looked up by the process that lands it" in shown.stdout
    with monkeypatch.context() as patched:
        patched.setenv(VARIABLE, f"replay.landed=kill-driver,{rig.folder / 'fired'}")
        killed = asked(rig, "--yes", "--chunk", "1")
    assert killed.exit_code == 1, killed.output
    assert (rig.folder / "fired").exists()
    part = again(rig)
    assert part
    assert part < wanted, "a part has landed, each of its ids once"

    landed = run(rig)
    assert landed.exit_code == 0, landed.output
    assert again(rig) == wanted, "a StreamReplay of the same name that asks for the same continues it"
    assert asked(rig, "--yes").exit_code == 0
    assert again(rig) == wanted, "the same backfill lands nothing twice"
    assert rig.sql("select position from exactlyonce.offsets") == stood, "the stream stands where it stood"
    assert rig.counts() == Counter(rig.produced)
    assert statuses(rig) <= {"Replayed"}

    ((folder,),) = rig.sql("select topic from exactlyonce.offsets")
    rig.sql("create table orders_by_name (id bigint, customer text)")
    given = [
        json.dumps({folder: {"0": [first.name, last.name]}})
        for first, last in ((files[1], files[2]), (late[0], late[0]))
    ]
    by_name = replayed(
        rig, "--from", "ranges", *(word for text in given for word in ("--ranges", text)), "--into", "orders_by_name",
        "--backfill", "by-name", "--yes",
    )  # fmt: skip
    assert by_name.exit_code == 0, by_name.output
    named = Counter(number for (number,) in rig.sql("select id from orders_by_name"))
    assert named == Counter(range(EACH, 3 * EACH)) + Counter(range(6 * EACH, 7 * EACH))

    files[2].unlink()
    gone = asked(rig, "--yes", backfill="another")
    assert gone.exit_code == 1, gone.output
    assert f"files are gone: {files[2].name}." in gone.output
    assert late.pop().exists()
    assert again(rig) == wanted


def run(rig: FolderRig) -> Result:
    """Run a StreamReplay that asks for the same, as `exactlyonce run` does."""
    begin, until = (f"{moment}Z" for moment in moments())
    spec = {
        "stream": rig.name,
        "from": {"ranges": {"byTimestamp": {"from": begin, "until": until}}},
        "into": {"table": "orders_again", "backfill": NAME},
    }
    file = rig.folder / "backfill.yaml"
    metadata = {"name": "backfill", "namespace": "tests"}
    file.write_text(
        yaml.safe_dump({"apiVersion": API_VERSION, "kind": REPLAY_KIND, "metadata": metadata, "spec": spec})
    )
    options = ["--stream-file", str(rig.folder / "orders.yaml")]  # which `replayed` has written
    options += ["--state", str(rig.folder / "state"), "--secrets", str(rig.secrets)]
    return CliRunner().invoke(main, ["run", str(file), *options], env={**warm(rig, "command"), "COLUMNS": "250"})


def moments() -> list[str]:
    """From the second file's time to before the fifth's."""
    return [datetime.fromtimestamp(FIRST + at, UTC).strftime("%Y-%m-%dT%H:%M:%S") for at in (1, 4)]


def asked(rig: FolderRig, *options: str, backfill: str = NAME) -> Result:
    """Ask for what was written from the second file's time to before the fifth's."""
    into = ["--into", "orders_again", "--backfill", backfill]
    return replayed(rig, "--from", "ranges", "--by-timestamp", *moments(), *into, *options)


def again(rig: FolderRig) -> Counter[int]:
    """The ids in the other table."""
    return Counter(number for (number,) in rig.sql("select id from orders_again"))

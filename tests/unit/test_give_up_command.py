"""`exactlyonce failures give-up` and `take-back` without a server: over a ledger that is a log of objects on a disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exactlyonce.cli import cluster_offsets
from exactlyonce.cli.main import main
from exactlyonce.control.cluster import Cluster
from exactlyonce.control.cluster_reader import ClusterSilent
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.replay import RangeNotHeld, ReplayClaim, claim_ranges, decide_pieces, land_pieces
from exactlyonce.ledger.replay_decisions import ReplayDecision, read_decisions
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Ranges
from tests.ledgers import P0, STREAM
from tests.unit.test_failures_command import FakeCluster, everything, failed, file, ledger_of, run

__all__ = ["failed", "file"]

HELD, LOST = "12/orders-0/340", "12/orders-1/0"
WHY = ("--why", "a test order [red]", "--by", "alice", "--yes")


def row_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(file, "failures", "--id", HELD, "-o", "json").stdout)
    return found


def keep_life(file: Path) -> FailureRow:
    """Have the range in quarantine name the life of its stream."""
    ledger = ledger_of(file)
    view = ledger.view(STREAM)
    assert view is not None
    held = FailureRow(BatchNumber(12), P0, 340, 350, FailureStatus.QUARANTINED, "b", "it fails", life=view.stream.life)
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (held,))
    return held


def test_without_yes_the_ranges_are_shown_and_nothing_is_changed(failed: Path) -> None:
    before = everything(failed.parent)
    result = run(failed, "failures give-up", "--id", HELD)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 range of shop/orders can be given up. Nothing was changed; --yes does it." in result.stdout
    refused = run(failed, "failures give-up", "--id", HELD, "--id", LOST)
    assert refused.exit_code == 1
    assert refused.stderr == f"The range {LOST} is Lost; only a range in quarantine can be given up.\n"
    assert "1 range of shop/orders can be given up." in refused.stdout
    nothing = run(failed, "failures give-up", "--id", LOST, *WHY)
    assert (nothing.exit_code, nothing.stdout) == (1, "Nothing was changed.\n")
    unknown = run(failed, "failures give-up", "--id", "99/orders-0/1", *WHY)
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "has no failed range 99/orders-0/1" in unknown.stderr
    without = run(failed, "failures give-up", "--id", HELD, "--yes")
    assert (without.exit_code, "--yes needs --why" in without.stderr) == (2, True)
    assert everything(failed.parent) == before


def test_braces_in_a_reason_and_in_a_name_are_text(failed: Path) -> None:
    keep_life(failed)
    result = run(failed, "failures give-up", "--id", HELD, "--why", 'its key is {"id": {}}', "--by", "{alice}", "--yes")
    assert (result.exit_code, result.exception) == (0, None)
    assert ': its key is {"id": {}}. It had failed: it fails' in row_of(failed)["error"]
    assert run(failed, "failures take-back", "--id", HELD, "--by", "{alice}", "--yes").exit_code == 0


def test_what_cannot_be_taken_back_is_told_so_before_anybody_says_yes(failed: Path) -> None:
    assert run(failed, "failures give-up", "--id", HELD, *WHY).exit_code == 0
    with ledger_of(failed).transaction() as transaction:
        (row,) = transaction.read_failures(STREAM, FailureStatus.GIVEN_UP)
        transaction.write_failures(STREAM, (replace(row, life="of a former life"),))
    for yes in ((), ("--yes",)):
        result = run(failed, "failures take-back", "--id", HELD, *yes)
        assert (result.exit_code, "the stream has since started over" in result.stderr) == (1, True)


def test_a_range_that_is_given_up_says_who_and_why_and_no_replay_is_offered_it_until_it_is_taken_back(
    failed: Path,
) -> None:
    held = keep_life(failed)
    result = run(failed, "failures give-up", "--id", HELD, *WHY, "-o", "json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["changed"], [it["status"] for it in told["ranges"]]) == (0, True, ["GivenUp"])
    error = row_of(failed)["error"]
    assert error.startswith("Given up by alice at 20")
    assert error.endswith(": a test order [red]. It had failed: it fails")
    listed = run(failed, "failures")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == [HELD, LOST, "14/orders-1/5"]
    ledger = ledger_of(failed)
    claim = ReplayClaim(STREAM, "mine")
    assert not claim_ranges(ledger, claim, [RangeKey.of(held)]).rows
    again = run(failed, "failures give-up", "--id", HELD, *WHY)
    assert (again.exit_code, again.stderr) == (
        1,
        f"The range {HELD} is GivenUp; only a range in quarantine can be given up.\n",
    )
    assert run(failed, "failures take-back", "--id", HELD).exit_code == 0
    assert row_of(failed)["status"] == "GivenUp", "it was only shown"
    back = run(failed, "failures take-back", "--id", HELD, "--yes")
    assert "1 range of shop/orders is back in quarantine." in back.stdout
    assert {**row_of(failed), "since": ""} == {
        **row_of(failed),
        "since": "",
        "error": "it fails",
        "status": "Quarantined",
    }
    assert claim_ranges(ledger, claim, [RangeKey.of(held)]).rows


def test_a_replay_that_runs_meanwhile_lands_nothing_of_what_is_given_up(failed: Path) -> None:
    held, ledger, claim = keep_life(failed), ledger_of(failed), ReplayClaim(STREAM, "mine")
    (taken,) = claim_ranges(ledger, claim, [RangeKey.of(held)]).rows
    assert run(failed, "failures give-up", "--id", HELD, *WHY).exit_code == 0

    def write(_: object) -> int:
        raise AssertionError("it has written rows")

    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, claim, [Piece(taken, 350)], write)
    assert not row_of(failed)["replay"]


def test_a_range_is_listed_by_its_whole_id_and_a_name_that_a_ledger_holds_does_nothing_to_a_terminal(
    failed: Path,
) -> None:
    name = "orders-" + "of-a-shop-" * 12
    topic = f"{name}\x1b[2J"
    held = FailureRow(BatchNumber(12), Partition(topic, 0), 7, 9, FailureStatus.QUARANTINED, "b", "it fails")
    with ledger_of(failed).transaction() as transaction:
        transaction.write_failures(STREAM, (held,))
    for command, *arguments in (("show",), ("give-up", "--id", f"12/{topic}-0/7")):
        shown = run(failed, f"failures {command}", *arguments, columns=1000).stdout
        assert "\x1b" not in shown
        assert f"12/{name} [2J-0/7 " in shown


class ClusterOfAPerson(FakeCluster):
    """One that also knows who asks."""

    api = None

    def person(self) -> str:
        return "jane@example.org"


def test_for_a_stream_of_a_cluster_the_person_is_who_the_cluster_says_and_an_event_tells_of_it(
    failed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_life(failed)
    opened, told = ledger_of(failed), list[tuple[str, str]]()
    for module in ("asked_ledger", "give_up"):
        monkeypatch.setattr(f"exactlyonce.cli.{module}.cluster_of", lambda options: (ClusterOfAPerson(failed), "shop"))
    monkeypatch.setattr(cluster_offsets, "cluster_ledger", lambda cluster, stream: opened)
    monkeypatch.setattr(Cluster, "tell", lambda _, stream, reason, words, warning: told.append((reason, words)))
    arguments = ["orders", "-n", "shop", "--id", HELD]
    assert CliRunner().invoke(main, ["failures", "give-up", *arguments]).exit_code == 0
    assert not told, "nothing was changed"
    result = CliRunner().invoke(main, ["failures", "give-up", *arguments, "--why", "test data", "--yes"])
    assert result.exit_code == 0, result.output
    back = CliRunner().invoke(main, ["failures", "take-back", *arguments, "--yes"])
    assert back.exit_code == 0, back.output
    assert told == [
        ("RangesGivenUp", f"jane@example.org gave up {HELD} (until 350): test data"),
        ("RangesTakenBack", f"jane@example.org returned to quarantine: {HELD} (until 350)"),
    ]


def test_a_cluster_that_is_silent_once_ranges_are_given_up_does_not_make_that_a_failure(
    failed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SilentSince(ClusterOfAPerson):
        def stream(self, namespace: str, name: str) -> dict[str, Any]:
            if row_of(failed)["status"] == "GivenUp":
                raise ClusterSilent(f"Cannot read stream {namespace}/{name}: the API server does not answer.")
            return super().stream(namespace, name)

    opened = ledger_of(failed)
    for module in ("asked_ledger", "give_up"):
        monkeypatch.setattr(f"exactlyonce.cli.{module}.cluster_of", lambda options: (SilentSince(failed), "shop"))
    monkeypatch.setattr(cluster_offsets, "cluster_ledger", lambda cluster, stream: opened)
    arguments = ["orders", "-n", "shop", "--id", HELD, "--why", "test data", "--yes"]
    result = CliRunner().invoke(main, ["failures", "give-up", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 range of shop/orders is given up." in result.stdout


@pytest.mark.parametrize(
    ("group", "commands"),
    [("failures", "give-up, settle, show, take-back"), ("offsets", "reset, show")],
    ids=["failures", "offsets"],
)
def test_a_mistyped_command_of_a_group_is_answered_with_the_commands_that_it_has(group: str, commands: str) -> None:
    result = CliRunner().invoke(main, [group, "give_up", "orders"])
    assert result.exit_code == 2
    assert f"{group} has no command 'give_up': its commands are {commands};" in result.stderr


def decide(file: Path) -> None:
    """Have a replay decide the range in quarantine, by a load `exactlyonce:a`."""
    held, ledger, claim = keep_life(file), ledger_of(file), ReplayClaim(STREAM, "mine")
    (row,) = claim_ranges(ledger, claim, [RangeKey.of(held)]).rows
    load = Committable("exactlyonce:a", "7", 10, Ranges({P0: OffsetRange(340, 350)}))
    decide_pieces(
        ledger, claim, [Piece(row, 350)], ReplayDecision("mine", DecidedBatch(BatchNumber(12), (load,)), number=1)
    )


def test_an_event_tells_who_has_answered_for_a_load_of_a_stream_of_a_cluster(
    failed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(failed)
    opened, told = ledger_of(failed), list[tuple[str, str]]()
    for module in ("asked_ledger", "give_up"):
        monkeypatch.setattr(f"exactlyonce.cli.{module}.cluster_of", lambda options: (ClusterOfAPerson(failed), "shop"))
    monkeypatch.setattr(cluster_offsets, "cluster_ledger", lambda cluster, stream: opened)
    monkeypatch.setattr(Cluster, "tell", lambda _, stream, reason, words, warning: told.append((reason, words)))
    settle = ["failures", "settle", "orders", "-n", "shop"]
    assert CliRunner().invoke(main, settle).exit_code == 0
    assert CliRunner().invoke(main, [*settle, "--committed", "another"]).exit_code == 1
    assert not told, "nothing was answered"
    result = CliRunner().invoke(main, [*settle, "--committed", "exactlyonce:a"])
    assert result.exit_code == 0, result.output
    assert told == [("LoadAnswered", "jane@example.org answered Committed for exactlyonce:a of a replay.")]


def test_a_person_answers_for_a_load_of_a_replay_and_nothing_else_is_changed(failed: Path) -> None:
    nothing = run(failed, "failures settle")
    assert (nothing.exit_code, nothing.stdout) == (0, "No load of a replay of shop/orders waits to be committed.\n")
    decide(failed)
    assert (row_of(failed)["replay"], row_of(failed)["decided"]) == ("mine", True)
    refused = run(failed, "failures give-up", "--id", HELD, *WHY)
    assert (refused.exit_code, "is decided by a replay, and the sink has not said" in refused.stderr) == (1, True)
    listed = run(failed, "failures settle")
    assert listed.stdout.startswith("batch 12: exactlyonce:a (transaction 7, 10 rows of")
    assert "answered" not in listed.stdout
    unknown = run(failed, "failures settle", "--aborted", "another")
    assert (unknown.exit_code, "those that wait: exactlyonce:a" in unknown.stderr) == (1, True)
    both = run(failed, "failures settle", "--aborted", "exactlyonce:a", "--committed", "exactlyonce:a")
    assert (both.exit_code, "Give one answer" in both.stderr) == (2, True)
    assert [one.load.answer for one in read_decisions(ledger_of(failed), STREAM)] == [None]
    done = run(failed, "failures settle", "--aborted", "exactlyonce:a")
    assert (done.exit_code, "its ranges go back into quarantine with the next replay" in done.stdout) == (0, True)
    assert [one.load.answer for one in read_decisions(ledger_of(failed), STREAM)] == [Answer.ABORTED]
    assert "; answered Aborted, which the next replay or driver acts on" in run(failed, "failures settle").stdout


def test_a_person_names_what_the_sink_has_once_the_ledger_went_back(failed: Path) -> None:
    assert row_of(failed)["status"] == "Quarantined"
    unasked = run(failed, "failures settle", "--found", HELD)
    assert (unasked.exit_code, "--found needs --ledger-restored" in unasked.stderr) == (2, True)
    for text, words in (
        ("orders", "'orders' names no part of a range. Write the id of a range"),
        (f"{HELD}-340", f"'{HELD}-340' names no part of a range"),
        ("12/orders-0/300", "The ledger has no range in quarantine that holds 12/orders-0/300 and is not decided"),
        (f"{HELD}-351", f"no range in quarantine that holds {HELD}-351"),
    ):
        refused = run(failed, "failures settle", "--ledger-restored", "--found", text)
        assert (refused.exit_code, words in refused.stderr) == (1, True), refused.output
    assert row_of(failed)["status"] == "Quarantined"
    part = HELD.replace("340", "342-345")
    done = run(failed, "failures settle", "--ledger-restored", "--found", part)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"In the sink: {part}. The rest stays in quarantine, and replays of shop/orders")
    with ledger_of(failed).transaction() as transaction:
        rows = {
            (row.from_offset, row.until_offset): row.status
            for status in FailureStatus
            for row in transaction.read_failures(STREAM, status)
            if row.batch == 12 and row.from_offset >= 340
        }
    assert rows == {
        (340, 342): FailureStatus.QUARANTINED,
        (342, 345): FailureStatus.REPLAYED,
        (345, 350): FailureStatus.QUARANTINED,
    }

"""`exactlyonce settle-loads NAME`: over resources whose status the operator's own passes have written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.cli import cluster_offsets, settle_loads
from exactlyonce.cli.main import main
from exactlyonce.control import cluster_reader
from exactlyonce.control.cluster_reader import ClusterReader, ReadRefused
from exactlyonce.ledger.rows import BatchStatus, Owner
from exactlyonce.reconcile.decided import MOST_LABELS
from tests.resource_documents import changed
from tests.unit.decided_streams import (
    FIRST_BATCH,
    LOADS,
    A,
    B,
    in_doubt,
    many_loads,
    partly_loaded,
    resource_of,
    running,
    start_over,
)
from tests.unit.passes import STREAM, Machine

NOT_READ = "You may not read secret shop/ledger."


class FakeCluster:
    """A cluster with one stream; `conflicts` is how many writes find that somebody else was first."""

    def __init__(self, stream: dict[str, Any], conflicts: int = 0) -> None:
        self.kept, self.conflicts = stream, conflicts
        self.written: list[tuple[str, str]] = []

    def stream(self, namespace: str, name: str) -> dict[str, Any]:
        return self.kept

    def annotate(self, stream: dict[str, Any], key: str, value: str, what: str) -> dict[str, Any] | None:
        if self.conflicts:
            self.conflicts -= 1
            return None
        self.written.append((key, value))
        return stream


Settle = Callable[..., tuple[Result, list[tuple[str, str]]]]


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Settle:
    """Settle of a stream; its ledger is read from here, or it is not."""

    def asked(
        machine: Machine, *arguments: str, reads: bool, before: str = "", conflicts: int = 0
    ) -> tuple[Result, list[tuple[str, str]]]:
        cluster = FakeCluster(resource_of(machine, {SETTLE_LOADS: before} if before else {}), conflicts)

        def opened(*_: object) -> object:
            if not reads:
                raise ReadRefused(NOT_READ)
            return machine.ledger

        monkeypatch.setattr(settle_loads, "cluster_of", lambda options: (cluster, "shop"))
        monkeypatch.setattr(cluster_offsets, "cluster_ledger", opened)
        result = CliRunner().invoke(main, ["settle-loads", "orders", "-n", "shop", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result, cluster.written

    return asked


@pytest.mark.parametrize("reads", [True, False], ids=["ledger", "status"])
def test_answers_for_loads_in_doubt_become_the_annotation(settle: Settle, reads: bool) -> None:
    result, written = settle(in_doubt(), "--committed", A, "--aborted", B, reads=reads)
    assert (result.exit_code, written) == (0, [(SETTLE_LOADS, f"{A}=Committed {B}=Aborted")]), result.output
    assert f"{A}: Committed; where the sink does not know it, it counts as landed" in result.stdout
    assert "has no effect" not in result.stderr


@pytest.mark.parametrize("reads", [True, False], ids=["ledger", "status"])
@pytest.mark.parametrize("label", [A, B])
@pytest.mark.parametrize(("option", "answer"), [("--removed", "Removed"), ("--completed", "Completed")])
def test_what_is_answered_for_a_load_that_a_running_driver_found_in_part_becomes_the_annotation(
    settle: Settle, label: str, option: str, answer: str, reads: bool
) -> None:
    """The verdict is of an earlier look the batch, so that no label stands in it."""
    load = next(one for one in LOADS if one.answered_as == label)
    result, written = settle(partly_loaded(load), option, label, reads=reads)
    assert (result.exit_code, written) == (0, [(SETTLE_LOADS, f"{label}={answer}")]), result.output
    assert "has no effect" not in result.stderr


@pytest.mark.parametrize("reads", [True, False], ids=["ledger", "status"])
def test_an_operator_that_finds_the_annotation_records_the_answer(settle: Settle, reads: bool) -> None:
    machine = partly_loaded()
    _, ((key, text),) = settle(machine, "--removed", A, reads=reads)
    machine.annotations = {key: text}
    start_over(machine)
    machine.run_until_a_driver_runs()
    decided = machine.view().decided
    assert decided is not None
    assert [(one.label, str(one.answer)) for one in decided.committables] == [(A, "Removed")]


def test_loads_are_listed_as_the_ledger_has_them_and_nothing_is_written(settle: Settle) -> None:
    result, written = settle(in_doubt(many_loads(25)), reads=True)
    assert (result.exit_code, written, result.stderr) == (0, [], "")
    assert f"Batch 1 of {STREAM} is decided; 25 loads are not known to be committed:" in result.stdout
    assert "  load-24  40 rows of orders-0 [0, 40)\n" in result.stdout
    assert "Find out whether it has the rows of these loads" in result.stdout


def test_of_many_loads_the_status_names_the_first_ones_and_says_that_there_are_more(settle: Settle) -> None:
    result, written = settle(in_doubt(many_loads(25)), reads=False)
    assert (result.exit_code, written) == (0, [])
    assert "25 loads are not known to be committed:\n  load-0\n" in result.stdout
    assert f"  load-{MOST_LABELS - 1}\n  and 5 more, which the ledger names\n" in result.stdout
    assert f"The ledger of {STREAM} is not read from here: {NOT_READ}" in result.stderr


def test_a_load_that_only_the_message_names_is_listed_by_the_message(settle: Settle) -> None:
    result, written = settle(partly_loaded(), reads=False)
    assert (result.exit_code, written) == (0, [])
    assert f"The latest verdict of {STREAM} names no decided batch" in result.stdout
    assert f"with {A}=Removed" in result.stdout


@pytest.mark.parametrize("world", [in_doubt, partly_loaded])
def test_without_the_ledger_a_label_that_nothing_names_is_written_with_a_warning(
    settle: Settle, world: Callable[[], Machine]
) -> None:
    """A driver may have written rows again since, under labels that no verdict and no message has."""
    result, written = settle(world(), "--aborted", "mine", reads=False)
    assert (result.exit_code, written) == (0, [(SETTLE_LOADS, "mine=Aborted")])
    assert "mine: neither the latest verdict nor the message names such a load" in result.stderr
    assert "has no effect" in result.stderr


def test_a_part_of_a_label_that_the_message_has_is_not_that_label(settle: Settle) -> None:
    result, _ = settle(partly_loaded(LOADS[1]), "--removed", B.partition("#")[0], reads=False)
    assert "has no effect" in result.stderr


@pytest.mark.parametrize("label", ["mine", B.partition("#")[0]])
def test_a_label_that_the_ledger_does_not_have_is_refused(settle: Settle, label: str) -> None:
    result, written = settle(in_doubt(), "--aborted", label, reads=True)
    assert (result.exit_code, written) == (1, [])
    assert (
        f"{label}: the decided batch 1 of {STREAM} has no such load, so nothing was written; it has {A}"
        in result.stderr
    )


def test_a_label_of_the_verdict_that_the_ledger_has_left_out_since_is_refused(settle: Settle) -> None:
    """Its sink has said that the load is committed."""
    machine = in_doubt()
    decided = machine.view().decided
    assert decided is not None
    machine.database.tables.rows["decided", STREAM] = replace(decided, committables=LOADS[1:])
    assert settle(machine, "--aborted", A, reads=True)[0].exit_code == 1
    assert settle(machine, "--aborted", B, reads=True)[1] == [(SETTLE_LOADS, f"{B}=Aborted")]


def test_a_load_cannot_be_two_things(settle: Settle) -> None:
    result, written = settle(in_doubt(), "--aborted", A, "--committed", A, reads=True)
    assert (result.exit_code, written) == (2, [])
    assert "cannot be committed and aborted; give one answer for each load" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("reads", "kept"), [(True, f"{A}=Aborted {B}=Committed"), (False, f"{A}=Aborted other=Committed {B}=Committed")]
)
def test_answers_that_were_given_before_stay_where_they_may_be_of_a_load_that_waits(
    settle: Settle, reads: bool, kept: str
) -> None:
    before = f"{A}=Aborted other=Committed"
    result, written = settle(in_doubt(), "--committed", B, reads=reads, before=before, conflicts=1)
    assert (result.exit_code, written) == (0, [(SETTLE_LOADS, kept)])


def test_a_new_answer_takes_the_place_of_the_one_before(settle: Settle) -> None:
    result, written = settle(in_doubt(), "--committed", A, reads=True, before=f"{A}=Aborted")
    assert written == [(SETTLE_LOADS, f"{A}=Committed")]
    assert f"Without an answer: {B}." in result.stdout


@pytest.mark.parametrize("reads", [True, False], ids=["ledger", "status"])
@pytest.mark.parametrize("arguments", [(), ("--committed", A)])
def test_a_stream_without_a_decided_batch_has_nothing_to_be_answered(
    settle: Settle, arguments: tuple[str, ...], reads: bool
) -> None:
    result, written = settle(running(), *arguments, reads=reads)
    assert (result.exit_code, written) == (1, [])
    assert "has no batch that is decided and waits for its sink; nothing was written" in result.stderr
    assert (NOT_READ in result.stderr) is not reads


def test_a_halt_whose_batch_has_landed_since_is_not_answered(settle: Settle) -> None:
    machine = in_doubt()
    rows, row = machine.database.tables.rows, ("batch", STREAM, FIRST_BATCH)
    rows[row] = replace(rows[row], status=BatchStatus.LANDED)
    del rows["decided", STREAM]
    result, written = settle(machine, "--committed", A, reads=True)
    assert (result.exit_code, written) == (1, [])


@pytest.mark.parametrize("holds", ["another's", "nothing"])
def test_a_ledger_that_is_not_this_resources_own_from_here_counts_as_not_read(settle: Settle, holds: str) -> None:
    """A path of the operator's may be another folder on this machine, where somebody tried the same stream."""
    machine = in_doubt()
    rows = machine.database.tables.rows
    if holds == "nothing":
        del rows["stream", STREAM]
    else:
        rows["stream", STREAM] = replace(rows["stream", STREAM], owner=Owner("laptop", "uid-9"))
        del rows["decided", STREAM]
    result, written = settle(machine, "--committed", A, reads=True)
    assert (result.exit_code, written) == (0, [(SETTLE_LOADS, f"{A}=Committed")])
    assert "what is found from here is not this resource's" in result.stderr


def test_a_ledger_on_a_disk_of_the_clusters_is_not_made_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resource = changed(resource_of(partly_loaded()), {"spec.checkpoint": {"local": {"path": str(tmp_path / "there")}}})
    cluster = FakeCluster(resource)
    monkeypatch.setattr(settle_loads, "cluster_of", lambda options: (cluster, "shop"))
    result = CliRunner().invoke(main, ["settle-loads", "orders", "-n", "shop", "--removed", A])
    assert (result.exit_code, cluster.written) == (0, [(SETTLE_LOADS, f"{A}=Removed")]), result.output
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_what_would_be_written(settle: Settle) -> None:
    result, written = settle(in_doubt(), "--aborted", A, "--dry-run", reads=True)
    assert (result.exit_code, written) == (0, [])
    assert f"This would be written to the annotation {SETTLE_LOADS} of shop/orders." in result.stdout


def test_who_is_always_overtaken_is_told_so(settle: Settle) -> None:
    result, _ = settle(in_doubt(), "--aborted", A, reads=True, conflicts=9)
    assert result.exit_code == 1
    assert "nothing was written: try again" in result.stderr


@pytest.mark.parametrize("label", [f"{A}=Removed", f"{A} {B}", f"{A},{B}", ""])
def test_what_is_not_one_label_is_an_error_of_use(settle: Settle, label: str) -> None:
    """Written down, it would answer for another load or for none; the message of a halt has LABEL=ANSWER to be copied."""
    result, written = settle(partly_loaded(), "--removed", label, reads=False)
    assert (result.exit_code, written) == (2, [])
    assert "is not one label; repeat --removed for each, without =." in " ".join(result.stderr.split())


@pytest.mark.parametrize("annotations", [{}, {"a": "b"}])
def test_an_annotation_is_set_on_the_very_version_that_was_read(
    monkeypatch: pytest.MonkeyPatch, annotations: dict[str, str]
) -> None:
    sent: list[Any] = []

    def patched(api: object, method: str, path: str, *, body: Any, content: str) -> dict[str, Any]:
        sent.append((method, body))
        return {}

    monkeypatch.setattr(cluster_reader, "asked", patched)
    nobody: Any = None
    resource = resource_of(in_doubt(), annotations)
    ClusterReader(nobody, "shop").annotate(resource, SETTLE_LOADS, "a=Aborted", "answer for")
    ((method, body),) = sent
    made = [] if annotations else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    assert (method, body) == (
        "PATCH",
        [
            {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "4"},
            *made,
            {"op": "add", "path": "/metadata/annotations/exactlyonce.dev~1settle-loads", "value": "a=Aborted"},
        ],
    )

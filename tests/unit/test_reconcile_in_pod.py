"""Reconciliation in a driver's pod: the operator raises and records, the pod observes, decides and acts, its word is read."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from exactlyonce.api.status import CheckpointStatus, Phase, StreamStatus
from exactlyonce.checkpoint.locations import StoreInPods
from exactlyonce.errors import OriginMissing, SourceUnreachable
from exactlyonce.launch.pod_verdict import EXIT_STATUS, Outcome, PodVerdict, parse_pod_verdict
from exactlyonce.launch.port import DriverPod, Gone, Running
from exactlyonce.ledger.fence import NewStream, claim_epoch, raise_epoch
from exactlyonce.ledger.rows import Owner
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.in_pod import Brief, reconcile_in_pod
from exactlyonce.reconcile.loop import Done, Halted, Waiting, Wanted, Watching
from exactlyonce.reconcile.observe import Stores
from tests.unit.launch_situations import positions_reset
from tests.unit.passes import FIRST, ME, SECOND, STREAM, Died, Machine, ended
from tests.unit.stateful_passes import database_went_back, state_of

Prepare = Callable[[], Machine]


def in_pods(machine: Machine | None = None) -> Machine:
    """Return a world whose operator does not reach the checkpoint."""
    found = machine or Machine()
    found.in_pod = True
    return found


def stores(machine: Machine) -> Stores:
    """Return the stores as the pod has them."""
    return Stores(machine.ledger, machine.store, machine.topic)


def word_of_pod(machine: Machine, attempt: Epoch) -> PodVerdict:
    """Be the init container of an attempt's pod: reconcile with nothing but its brief."""
    brief = machine.drivers.orders[attempt].brief
    assert brief is not None
    return reconcile_in_pod(stores(machine), Brief.parse(brief), attempt)


def run_init_container(machine: Machine, attempt: Epoch) -> PodVerdict:
    """Let it run to its end and the kubelet report it."""
    word = parse_pod_verdict(word_of_pod(machine, attempt).render())
    assert word is not None
    pod = DriverPod(f"orders-driver-{attempt}", "spark:1", None, word)
    lets_start = EXIT_STATUS[word.outcome] == 0
    machine.drivers.states[attempt] = (
        Running("on node1", pod=pod) if lets_start else Gone("init container reconcile ended", "CannotStart", pod)
    )
    return word


def test_the_operator_raises_and_records_before_the_pod_is_made_and_looks_at_no_checkpoint() -> None:
    machine = in_pods()
    machine.store = StoreInPods("/checkpoints/orders", "it is on a volume")  # type: ignore[assignment] # as the operator has it
    assert machine.run_pass() == Watching(FIRST)
    assert machine.effects == ["record Reconciling", "commit", "committed", "record Reconciling", "start driver 1"]
    status = machine.statuses.status
    assert (status.verdict, status.phase) == (None, Phase.RECONCILING)
    assert status.message == "Attempt 1 reconciles in its pod, which reaches the checkpoint."


def test_the_word_of_the_pod_is_told_once_and_stands_in_the_status() -> None:
    machine = in_pods()
    machine.run_pass()
    word = run_init_container(machine, FIRST)
    assert (word.outcome, word.kind) == (Outcome.LAUNCHES, "FirstStart")
    for _ in range(3):
        machine.run_pass()
    status = machine.statuses.status
    assert [kind for kind, _ in machine.reports] == ["FirstStart"]
    assert status.verdict is not None
    assert (status.verdict.kind, status.verdict.attempt, status.phase) == ("FirstStart", 1, Phase.RUNNING)
    assert [item["words"] for item in status.verdict.evidence][1:] == ["the start is orders-0@0, orders-1@0"]
    path = machine.view().stream.checkpoint_path
    assert path is not None
    assert status.checkpoint == CheckpointStatus(generation=1, location=path)
    assert status.driver is not None
    assert (status.driver.landed_at_start, status.driver.pod_name) == (0, "orders-driver-1")
    machine.assert_launched_as_published()


def test_a_driver_that_died_goes_on_as_with_an_operator_that_reaches_the_checkpoint() -> None:
    machine = in_pods(ended())
    assert machine.run_pass() == Watching(SECOND)
    word = run_init_container(machine, SECOND)
    assert (word.kind, word.batch, word.landed, word.generation) == ("Resume", 1, 1, 1)
    machine.run_pass()
    machine.assert_launched_as_published()
    assert machine.statuses.status.driver is not None
    assert machine.statuses.status.driver.landed_at_start == 1


def test_a_query_with_state_whose_database_went_back_goes_on_in_the_pod_with_what_its_volume_retains() -> None:
    machine = in_pods(database_went_back())
    machine.run_pass()
    assert machine.run_pass() == Watching(SECOND)
    word = run_init_container(machine, SECOND)
    assert (word.outcome, word.kind, word.landed, word.generation) == (Outcome.LAUNCHES, "RewindToSink", 1, 2)
    assert state_of(machine) == {"2.snapshot": b"the state of version 2"}
    machine.run_pass()
    machine.assert_launched_as_published()
    assert run_init_container(machine, SECOND).outcome is Outcome.LAUNCHES, "doing it again is harmless"


def test_a_driver_that_landed_nothing_waits_longer_each_time_though_its_pod_ended_before_its_word_was_read() -> None:
    machine, waits = in_pods(), []
    for _ in range(3):
        result = machine.run_pass()
        assert isinstance(result, Watching)
        word = run_init_container(machine, result.attempt)
        pod = DriverPod("p", "spark:1", None, word)
        machine.drivers.states[result.attempt] = Gone("its node is lost", "NodeLost", pod)
        waiting = machine.run_pass()
        assert isinstance(waiting, Waiting)
        waits.append((waiting.until - machine.now).total_seconds())
        machine.now = waiting.until
    assert waits == [0, 5, 10]
    assert [kind for kind, _ in machine.reports] == [
        "FirstStart", "NodeLost", "SkipLanded", "NodeLost", "SkipLanded", "NodeLost",
    ]  # fmt: skip


def test_a_verdict_that_halts_halts_the_stream_and_no_driver_starts() -> None:
    machine = in_pods(ended())
    machine.topic.topic_id = "id-2"
    machine.run_pass()
    word = run_init_container(machine, SECOND)
    assert (word.outcome, word.kind, EXIT_STATUS[word.outcome]) == (Outcome.HALTS, "SourceReplaced", 2)
    assert machine.run_pass() == Halted(word.message)
    status = machine.statuses.status
    assert status.verdict is not None
    assert (status.phase, status.verdict.kind, status.message) == (Phase.HALTED, "SourceReplaced", word.message)
    assert [kind for kind, _ in machine.reports] == ["SourceReplaced"]
    assert machine.run_pass() == Halted(word.message)


@pytest.mark.parametrize("problem", [SourceUnreachable("The brokers do not answer."), OriginMissing("It is gone.")])
def test_a_store_that_does_not_answer_the_pod_or_refuses_it_is_asked_again_with_growing_waits(
    problem: Exception,
) -> None:
    machine, waits = in_pods(ended()), []

    def fails(*_: object) -> None:
        raise problem

    view, machine.topic.view = machine.topic.view, fails  # type: ignore[method-assign,assignment]
    for _ in range(2):
        result = machine.run_pass()
        assert isinstance(result, Watching)
        assert run_init_container(machine, result.attempt).outcome is Outcome.UNREACHABLE
        waiting = machine.run_pass()
        assert isinstance(waiting, Waiting)
        waits.append((waiting.until - machine.now).total_seconds())
        machine.now = waiting.until
    assert waits == [10, 20]
    assert machine.statuses.status.phase is Phase.BACKING_OFF
    assert [kind for kind, _ in machine.reports] == ["BackingOff", "BackingOff"]
    machine.topic.view = view  # type: ignore[method-assign]
    result = machine.run_pass()
    assert isinstance(result, Watching)
    assert run_init_container(machine, result.attempt).kind == "Resume"


def test_what_only_a_person_can_mend_halts_the_stream_with_the_pods_sentence() -> None:
    machine = in_pods(ended())
    word = PodVerdict(Outcome.REFUSED, "There is no topic orders; create it.")
    machine.run_pass()
    machine.drivers.states[SECOND] = Gone("it ended", "CannotStart", DriverPod("p", "spark:1", None, word))
    assert machine.run_pass() == Halted("There is no topic orders; create it.")
    assert machine.reports == [("Halted", "There is no topic orders; create it.")]


def test_a_pod_that_was_overtaken_changes_nothing_and_the_next_attempt_is_made_at_once() -> None:
    machine = in_pods(ended())
    machine.run_pass()
    raise_epoch(machine.ledger, NewStream(STREAM, "t", ME, machine.database.identity), Epoch(9), "ticket")
    files, rows = dict(machine.store.files), dict(machine.database.tables.rows)
    word = run_init_container(machine, SECOND)
    assert word.outcome is Outcome.OVERTAKEN
    assert word.message == "The ledger of shop/orders is at epoch 9; this pod has epoch 2."
    assert (machine.store.files, machine.database.tables.rows) == (files, rows)
    assert machine.run_pass() == Waiting(machine.now, word.message)
    assert machine.run_pass() == Watching(Epoch(10))


def test_a_pod_of_a_former_life_changes_nothing_although_the_stream_has_reached_its_epoch_again() -> None:
    former, machine = in_pods(), in_pods()
    former.run_pass()
    machine.run_pass()
    files, rows = dict(machine.store.files), dict(machine.database.tables.rows)
    machine.drivers.orders[FIRST], mine = former.drivers.orders[FIRST], machine.drivers.orders[FIRST]
    word = word_of_pod(machine, FIRST)
    assert word.outcome is Outcome.OVERTAKEN
    assert "former life" in word.message
    assert (machine.store.files, machine.database.tables.rows) == (files, rows)
    machine.drivers.orders[FIRST] = mine
    assert word_of_pod(machine, FIRST).outcome is Outcome.LAUNCHES


def test_a_pod_knows_from_its_brief_that_a_batch_landed_and_does_not_start_over_with_a_lost_ledger() -> None:
    machine = in_pods(ended())
    machine.database.tables.rows.clear()
    machine.store.files.clear()
    machine.run_pass()
    word = run_init_container(machine, SECOND)
    assert (word.outcome, word.reason) == (Outcome.HALTS, "LedgerLost")
    assert "knows that batch 1 landed" in word.message
    assert machine.store.files == {}
    assert isinstance(machine.run_pass(), Halted)


def test_the_status_forgets_its_former_life_when_a_pod_has_started_the_stream_over() -> None:
    machine = in_pods(ended())
    machine.annotations = {"exactlyonce.dev/fresh": machine.view().stream.token}
    machine.run_pass()
    assert run_init_container(machine, SECOND).kind == "FirstStart"
    machine.run_pass()
    progress = machine.statuses.status.progress
    assert progress is not None
    assert progress.batch == machine.view().stream.landed_batch


def test_a_pod_that_is_overtaken_between_its_look_and_its_act_publishes_nothing() -> None:
    machine = in_pods()
    machine.run_pass()
    resolved = machine.topic.start

    def overtaken(*given: object) -> object:
        raise_epoch(machine.ledger, NewStream(STREAM, "t", ME, machine.database.identity), Epoch(9), "ticket")
        return resolved(*given)  # type: ignore[arg-type]

    machine.topic.start = overtaken  # type: ignore[method-assign,assignment]
    word = word_of_pod(machine, FIRST)
    assert word.outcome is Outcome.OVERTAKEN
    assert machine.view().stream.checkpoint_path is None


def test_an_init_container_that_runs_a_second_time_finds_what_it_did_and_lets_the_driver_start() -> None:
    machine = in_pods()
    machine.run_pass()
    assert word_of_pod(machine, FIRST).kind == "FirstStart"
    files = dict(machine.store.files)
    again = run_init_container(machine, FIRST)
    assert (again.outcome, again.kind) == (Outcome.LAUNCHES, "SkipLanded")
    assert machine.store.files == files
    machine.run_pass()
    machine.assert_launched_as_published()


def test_an_init_container_that_runs_again_beside_a_driver_that_has_claimed_says_that_it_is_too_late() -> None:
    machine = in_pods()
    machine.run_pass()
    word_of_pod(machine, FIRST)
    claim_epoch(machine.ledger, STREAM, FIRST, "claim 1", machine.drivers.ticket(FIRST))
    word = word_of_pod(machine, FIRST)
    assert word.outcome is Outcome.OVERTAKEN
    assert "is at epoch 1 and claimed" in word.message


def test_an_init_container_killed_at_any_of_its_effects_leaves_an_attempt_that_comes_to_the_same_end() -> None:
    whole = in_pods()
    whole.run_pass()
    before = len(whole.effects)
    word_of_pod(whole, FIRST)
    for place in range(before, len(whole.effects)):
        machine = in_pods()
        machine.run_pass()
        machine.dies_before = place
        with pytest.raises(Died):
            word_of_pod(machine, FIRST)
        machine.drivers.states[FIRST] = Gone("init container reconcile was killed", "CannotStart")
        machine.run_pass()
        assert machine.statuses.status.phase is Phase.BACKING_OFF
        machine.now += timedelta(hours=1)
        assert machine.run_pass() == Watching(SECOND)
        assert run_init_container(machine, SECOND).outcome is Outcome.LAUNCHES
        machine.run_pass()
        machine.assert_launched_as_published()


@pytest.mark.parametrize("place", range(5))
def test_an_operator_killed_at_any_of_its_effects_makes_a_pod_of_a_newer_epoch(place: int) -> None:
    machine = in_pods(ended())
    machine.dies_before = place
    with pytest.raises(Died):
        machine.run_pass()
    result = machine.run_pass()
    assert isinstance(result, Watching)
    assert run_init_container(machine, result.attempt).kind == "Resume"
    machine.run_pass()
    machine.assert_launched_as_published()


def test_a_stream_that_is_to_rest_while_its_pod_reconciles_comes_to_rest() -> None:
    machine = in_pods()
    machine.run_pass()
    machine.drivers.states[FIRST] = Running("pod orders-driver-1 is being started", started=False)
    assert machine.run_pass(Wanted.REST) == Watching(FIRST)
    assert machine.drivers.drained == [FIRST]
    machine.drivers.states[FIRST] = Gone("init container reconcile ended with status 143", "CannotStart")
    machine.run_pass(Wanted.REST)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert machine.statuses.status.phase is Phase.SUSPENDED


def test_that_the_owner_before_is_gone_is_asked_by_the_operator_and_told_to_the_pod() -> None:
    machine = in_pods(ended())
    machine.owner, machine.owner_is_gone = Owner("cluster-1", "uid-2"), True
    machine.run_pass()
    assert run_init_container(machine, SECOND).kind == "Resume"
    assert machine.view().stream.owner == machine.owner


def test_a_stream_of_an_owner_that_is_still_there_gets_no_pod() -> None:
    machine = in_pods(ended())
    before = machine.view()
    machine.owner, machine.owner_is_gone = Owner("cluster-1", "uid-2"), False
    assert isinstance(machine.run_pass(), Halted)
    assert machine.view() == before
    assert SECOND not in machine.drivers.orders


def test_an_annotation_reaches_the_pod() -> None:
    machine = in_pods(ended())
    machine.annotations = {"exactlyonce.dev/fresh": machine.view().stream.token, "team": "shop"}
    machine.run_pass()
    assert "team" not in json.loads(machine.drivers.orders[SECOND].brief or "")["stream"]["metadata"]["annotations"]
    assert run_init_container(machine, SECOND).kind == "FirstStart"
    assert machine.stands() == (0, 0)


def test_a_reset_that_a_person_asked_for_reaches_the_pod() -> None:
    machine = in_pods(positions_reset())
    machine.run_pass()
    assert run_init_container(machine, SECOND).kind == "OffsetsReset"
    assert machine.stands() == (60, 10)


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("{}", "KeyError"), ("[", "JSONDecodeError")])
def test_a_pod_that_does_not_understand_its_brief_says_so_and_lets_no_driver_start(
    content: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief, word = tmp_path / "reconcile.json", tmp_path / "word"
    if content is not None:
        brief.write_text(content)
    arguments = ["reconciler", "--brief", str(brief), "--epoch", "1", "--word", str(word)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as status:
        runpy.run_module("exactlyonce.init_container", run_name="__main__")
    assert status.value.code == EXIT_STATUS[Outcome.REFUSED]
    read = parse_pod_verdict(word.read_text())
    assert read is not None
    assert read.outcome is Outcome.REFUSED
    assert said in read.message
    assert "give driver and operator images of the same release" in read.message


def test_a_lost_status_makes_the_next_attempt_and_not_the_same_one_again() -> None:
    machine = in_pods()
    machine.run_pass()
    run_init_container(machine, FIRST)
    machine.statuses.status = StreamStatus()
    assert machine.run_pass() == Watching(SECOND)

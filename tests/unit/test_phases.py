"""The table of phases: what may follow what, and what is done about a write that it does not have."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.conditions import rendered
from exactlyonce.api.phases import TRANSITIONS, TransitionReason, Writer, is_known
from exactlyonce.api.status import Phase
from exactlyonce.cli.status_file import StatusFile
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.reconcile.loop import StatusStore
from exactlyonce.reconcile.phase_check import STRICT, TransitionUnknown
from tests.unit.resource_in_memory import NOW, ServerInMemory, resource

FINAL = (Phase.HALTED, Phase.COMPLETED)
Made = Callable[[Phase, Path], StatusStore]


def on_a_server(phase: Phase, folder: Path) -> StatusStore:
    """Return the status of a resource in a phase."""
    found = resource(phase)
    server: Any = ServerInMemory(found)
    return ResourceStatus(server, found, lambda status, document: rendered(status, document, NOW), lambda: True)


def in_a_file(phase: Phase, folder: Path) -> StatusStore:
    """Return the status in a file that tells a phase."""
    (folder / "status.json").write_text(f'{{"uid": "u-1", "version": 1, "status": {{"phase": "{phase}"}}}}')
    return StatusFile(folder / "status.json")


STORES = pytest.mark.parametrize("store", [on_a_server, in_a_file])


@pytest.mark.parametrize("after", [phase for phase in Phase if phase is not Phase.HALTED])
def test_only_a_person_or_a_roll_back_takes_a_halted_stream_out_of_its_halt(after: Phase) -> None:
    reasons = {reason for reason in TransitionReason if is_known(Phase.HALTED, after, reason)}
    assert reasons <= {TransitionReason.PERSON_ACTED, TransitionReason.ROLLED_BACK}


def test_a_halted_or_completed_stream_starts_over_when_a_person_acts() -> None:
    for phase in FINAL:
        assert is_known(phase, Phase.PENDING, TransitionReason.PERSON_ACTED)


def test_only_a_pass_halts_or_completes_a_stream() -> None:
    assert {it.writer for it in TRANSITIONS if it.after in FINAL} == {Writer.LOOP}


def test_every_phase_can_be_reached_and_left() -> None:
    assert {it.after for it in TRANSITIONS} == set(Phase)
    assert {phase for it in TRANSITIONS for phase in it.before} == set(Phase)


def test_no_transition_is_told_twice_and_each_reason_has_one_writer() -> None:
    told = [(before, it.after, it.reason) for it in TRANSITIONS for before in it.before]
    assert len(told) == len(set(told))
    assert len({(it.reason, it.writer) for it in TRANSITIONS}) == len(TransitionReason)
    assert all(set(it.rare) <= set(it.before) for it in TRANSITIONS)


def write(store: StatusStore, after: Phase, reason: TransitionReason | None) -> None:
    """Write a phase over the one that stands."""
    status, version = store.read()
    store.write(status.model_copy(update={"phase": after}), version, reason)


@STORES
def test_a_transition_that_the_table_does_not_have_fails_every_test(store: Made, tmp_path: Path) -> None:
    made = store(Phase.DRAINING, tmp_path)
    with pytest.raises(TransitionUnknown, match="Running does not follow on Draining for the reason DriverRuns"):
        write(made, Phase.RUNNING, TransitionReason.DRIVER_RUNS)
    with pytest.raises(TransitionUnknown, match="Halted does not follow on Draining without a reason"):
        write(made, Phase.HALTED, None)


@STORES
def test_outside_of_tests_a_halt_is_told_even_if_the_table_does_not_have_it(
    store: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(STRICT)
    made = store(Phase.DRAINING, tmp_path)
    with caplog.at_level(logging.ERROR):
        write(made, Phase.HALTED, None)
    assert made.read()[0].phase is Phase.HALTED
    (record,) = caplog.records
    assert "Halted does not follow on Draining" in record.message


@STORES
@pytest.mark.parametrize("phase", FINAL)
def test_outside_of_tests_no_unknown_transition_takes_a_stream_out_of_its_halt_or_its_end(
    store: Made, phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STRICT)
    made = store(phase, tmp_path)
    with pytest.raises(TransitionUnknown):
        write(made, Phase.RUNNING, TransitionReason.DRIVER_RUNS)
    assert made.read()[0].phase is phase
    write(made, Phase.PENDING, TransitionReason.PERSON_ACTED)
    assert made.read()[0].phase is Phase.PENDING

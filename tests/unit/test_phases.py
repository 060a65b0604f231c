"""The table of phases: what may follow what, and that whoever writes a phase is held to it."""

from __future__ import annotations

import pytest

from exactlyonce.api.phases import TRANSITIONS, TransitionUnknown, Writer, require_transition
from exactlyonce.api.status import Phase

FINAL = (Phase.HALTED, Phase.COMPLETED)


@pytest.mark.parametrize("after", [phase for phase in Phase if phase is not Phase.HALTED])
def test_no_pass_and_no_hold_takes_a_halted_stream_out_of_its_halt(after: Phase) -> None:
    for writer in (Writer.LOOP, Writer.HOLD):
        with pytest.raises(TransitionUnknown, match="over Halted"):
            require_transition(Phase.HALTED, after, writer)


def test_a_halted_or_completed_stream_starts_over_when_a_person_acts() -> None:
    for phase in FINAL:
        require_transition(phase, Phase.PENDING, Writer.PERSON)


def test_only_a_pass_halts_or_completes_a_stream() -> None:
    assert {it.writer for it in TRANSITIONS if it.after in FINAL} == {Writer.LOOP}


def test_every_phase_can_be_reached_and_left() -> None:
    assert {it.after for it in TRANSITIONS} == set(Phase)
    assert {phase for it in TRANSITIONS for phase in it.before} == set(Phase)


def test_no_way_is_told_twice() -> None:
    told = [(before, it.after, it.writer) for it in TRANSITIONS for before in it.before]
    assert len(told) == len(set(told))

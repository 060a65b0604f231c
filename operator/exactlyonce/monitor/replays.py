"""What is told of a stream's StreamReplays: how many wait and run, and how far the one has come whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from exactlyonce.api.stream_replay_status import ReplayPhase, ReplayStatus


@dataclass(frozen=True, slots=True)
class ReplaysView:
    """The replays of one stream that have not ended; `records` are by outcome, of the one whose turn it is.

    `progressed_timestamp` is when that one landed something last, or began its attempts, in seconds; None while the
    stream is suspended, since it only waits then. `in_turn` is its name.
    """

    pending: int = 0
    running: int = 0
    records: dict[str, int] = field(default_factory=dict)
    progressed_timestamp: float | None = None
    in_turn: str = ""


def view_of(in_turn: list[tuple[str, ReplayStatus, datetime]], *, is_suspended: bool) -> ReplaysView | None:
    """Return what is told of the replays that have not ended, each with name and creation; None where there is none."""
    if not in_turn:
        return None
    running = sum(status.phase is ReplayPhase.RUNNING for _, status, _ in in_turn)
    name, first, created_at = in_turn[0]
    counts = first.records or first.ranges  # where nobody can count records, ranges are
    records = (
        {}
        if counts is None
        else {"asked": counts.asked, "replayed": counts.replayed, "put_back": counts.put_back, "lost": counts.lost}
    )
    progressed_at = first.progressed_at or first.started_at or created_at
    since = None if is_suspended else progressed_at.timestamp()
    return ReplaysView(len(in_turn) - running, running, records, since, name)

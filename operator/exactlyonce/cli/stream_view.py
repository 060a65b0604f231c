"""Streams as a person sees them: a line each, or all that there is to know of one. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from exactlyonce.api.conditions import ROLLED_BACK, STALLED
from exactlyonce.api.status import Phase
from exactlyonce.cli.ages import age, clock_time
from exactlyonce.control.cluster_reader import Event

_EVENTS_SHOWN = 10
_STYLES = {
    Phase.RUNNING: "green",
    Phase.COMPLETED: "green",
    Phase.HALTED: "bold red",
    Phase.BACKING_OFF: "yellow",
    Phase.DRAINING: "yellow",
}

Resource = Mapping[str, Any]

_COLUMNS = (
    "NAMESPACE", "NAME", "PHASE", "READY", "BATCH", "LAG-RECORDS", "BEHIND", "VERDICT", "ATTEMPT", "AGE", "MESSAGE",
)  # fmt: skip
_LEFT_OUT = ("AGE", "ATTEMPT", "READY", "BATCH", "MESSAGE", "BEHIND", "LAG-RECORDS")
"""What a narrow screen does without, first to last: where a stream is and what was decided is always shown whole."""
_FOLDED, _FOLDED_CELLS = ("NAME", "NAMESPACE"), 6
_MESSAGE_CELLS, _GAP_CELLS = 24, 2


def table(streams: Sequence[Resource], now: datetime, *, with_namespace: bool, width: int) -> Table:
    """Return a line for each stream; columns that do not fit into `width` are left out, never name, phase and verdict."""
    rows = [_cells(stream, now) for stream in streams]
    widths = _fitting([name for name in _COLUMNS if name != "NAMESPACE" or with_namespace], rows, width)
    made = Table(box=None, padding=(0, _GAP_CELLS, 0, 0))
    for name, cells in widths.items():
        folded = name in _FOLDED
        made.add_column(name, width=cells, no_wrap=not folded, overflow="fold" if folded else "ellipsis")
    for row in rows:
        style = _STYLES.get(Phase(row["PHASE"]), "") if row["PHASE"] in set(Phase) else ""
        made.add_row(*(Text(row[name], style=style if name == "PHASE" else "") for name in widths))
    return made


def _cells(stream: Resource, now: datetime) -> dict[str, str]:
    metadata, status = stream["metadata"], stream.get("status") or {}
    progress = status.get("progress") or {}
    return {
        "NAMESPACE": metadata["namespace"],
        "NAME": metadata["name"],
        "PHASE": phase_of(stream),
        "READY": _condition(status, "Ready"),
        "BATCH": _shown(progress.get("batch")),
        "LAG-RECORDS": (_files(progress) or _shown(progress.get("lagRecords")))
        + ("?" if progress.get("lagProblem") else ""),
        "BEHIND": behind(progress, now),
        "VERDICT": _shown((status.get("verdict") or {}).get("kind")),
        "ATTEMPT": _shown(status.get("attempt")),
        "AGE": age(metadata.get("creationTimestamp"), now),
        "MESSAGE": _message(status),
    }


def _fitting(names: list[str], rows: Sequence[Mapping[str, str]], width: int) -> dict[str, int]:
    """Return the columns that fit, with their widths; they are left out in the order of `_LEFT_OUT`.

    A message gets what is left, and is cut to it. Names longer than the screen are folded, so that nothing of them is lost.
    """
    needed = {name: max(map(cell_len, (name, *(row[name] for row in rows)))) for name in names}
    message, needed["MESSAGE"] = needed["MESSAGE"], min(needed["MESSAGE"], _MESSAGE_CELLS)
    for name in _LEFT_OUT:
        if _total(needed) > width:
            del needed[name]
    if "MESSAGE" in needed:
        needed["MESSAGE"] = min(message, needed["MESSAGE"] + width - _total(needed))
    for name in _FOLDED:
        if name in needed:
            needed[name] = max(needed[name] - max(_total(needed) - width, 0), _FOLDED_CELLS)
    return needed


def _total(widths: Mapping[str, int]) -> int:
    """Return the width of a line: each column has a gap behind it."""
    return sum(widths.values()) + _GAP_CELLS * len(widths)


def detail(stream: Resource, events: Sequence[Event], now: datetime) -> Group:
    """Return all that there is to know of one stream."""
    metadata, spec, status = stream["metadata"], stream["spec"], stream.get("status") or {}
    key = f"{metadata['namespace']}/{metadata['name']}"
    phase = phase_of(stream)
    facts = Table.grid(padding=(0, 3))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("Stream", key if spec.get("streamId") in (None, key) else f"{key}, in the ledger {spec['streamId']}")
    facts.add_row("Phase", Text(phase, style=_STYLES.get(Phase(phase), "") if phase in set(Phase) else ""))
    if _message(status):
        facts.add_row("", _message(status))
    for label, words in [
        ("Lag", _lag(status.get("progress") or {}, spec.get("objectives") or {}, now)),
        ("Landed", landed_words(status.get("progress") or {}, now)),
        ("Driver", driver_words(status, now)),
        ("Checkpoint", _checkpoint(status.get("checkpoint"))),
        ("Failures", failure_words(status.get("consecutiveFailures") or {})),
        ("Verdict", _verdict(status.get("verdict"), now)),
    ]:
        if words:
            facts.add_row(label, words)
    sections: list[RenderableType] = [facts]
    conditions = status.get("conditions") or []
    if conditions:
        sections += [Text("\nConditions"), _conditions(conditions, now)]
    if events:
        sections += [Text("\nEvents"), _events(events[-_EVENTS_SHOWN:], now)]
    return Group(*sections)


def behind(progress: Resource, now: datetime) -> str:
    """Return how old the oldest record is that has not landed: as of now, by its timestamp."""
    if progress.get("oldestRecordAt"):
        return age(progress["oldestRecordAt"], now)
    seconds = progress.get("lagSeconds")
    return "-" if seconds is None else f"{seconds}s"


def phase_of(stream: Resource) -> str:
    """Return the phase; Pending where no operator has looked at the stream yet."""
    return str((stream.get("status") or {}).get("phase", Phase.PENDING))


def _message(status: Resource) -> str:
    rolled_back = (
        it["message"]
        for it in status.get("conditions") or []
        if (it["type"], it["status"], it["reason"]) == (STALLED, "True", ROLLED_BACK)
    )
    return str(status.get("specProblem") or next(rolled_back, None) or status.get("message") or "")


def _condition(status: Resource, kind: str) -> str:
    return next((str(it["status"]) for it in status.get("conditions") or [] if it["type"] == kind), "-")


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _lag(progress: Resource, objectives: Resource, now: datetime) -> str:
    files = _files(progress)
    if not files and progress.get("lagRecords") is None and not progress.get("lagProblem"):
        return ""
    words = files or f"{_shown(progress.get('lagRecords'))} records"
    if files and progress.get("lagProblem"):
        words = f"at least {words}"
    if files and progress.get("lagBytes") is not None:
        words += f" ({progress['lagBytes']} bytes)"
    if progress.get("oldestRecordAt"):
        words += f"; the oldest was written {behind(progress, now)} ago, at {clock_time(progress['oldestRecordAt'])}"
    if progress.get("heldBackSince"):
        held = f"{progress['heldBackRecords']} of them are held back by a transaction that is open"
        words += f"; {held} since {clock_time(progress['heldBackSince'])}"
    if objectives.get("lagSeconds"):
        words += f" (objective {objectives['lagSeconds']}s)"
    return words + (f"\nNot measured now: {progress['lagProblem']}" if progress.get("lagProblem") else "")


def _files(progress: Resource) -> str:
    """Return how many files wait; empty where nobody has counted them."""
    count = progress.get("lagFiles")
    return "" if count is None else "1 file" if count == 1 else f"{count} files"


def landed_words(progress: Resource, now: datetime) -> str:
    """Return the batch that landed last; empty where none has."""
    if progress.get("batch") is None:
        return ""
    at = progress.get("landedAt")
    return f"batch {progress['batch']}" + (f", {age(at, now)} ago, at {clock_time(at)}" if at else "")


def driver_words(status: Resource, now: datetime) -> str:
    """Return the latest driver, and how it ended; empty before the first."""
    driver = status.get("driver")
    if not driver:
        return ""
    words = f"attempt {driver['attempt']}"
    words += f", pod {driver['podName']}" if driver.get("podName") else ""
    words += f", started {age(driver['startedAt'], now)} ago" if driver.get("startedAt") else ""
    words += f", image {driver['image']}" if driver.get("image") else ""
    return words + (f"\nIt ended: {driver['ended']}. {driver.get('message') or ''}" if driver.get("ended") else "")


def _checkpoint(checkpoint: Resource | None) -> str:
    return "" if not checkpoint else f"generation {checkpoint['generation']} at {checkpoint['location']}"


def failure_words(failures: Resource) -> str:
    """Return failures in a row, and when the next attempt is made; empty where there are none."""
    words = []
    if failures.get("endings"):
        words.append(f"{failures['endings']} attempts in a row ended without landing a batch")
    if failures.get("batchFailures"):
        words.append(f"batch {failures.get('batch')} has failed {failures['batchFailures']} times")
    if failures.get("retryAt"):
        words.append(f"the next attempt is made at {clock_time(failures['retryAt'])}")
    return "; ".join(words)


def _verdict(verdict: Resource | None, now: datetime) -> str:
    if not verdict:
        return ""
    number = "" if verdict.get("batch") is None else f"({verdict['batch']})"
    reason = "" if verdict.get("reason") is None else f" ({verdict['reason']})"
    head = f"{verdict['kind']}{number}{reason}, for attempt {verdict['attempt']}, {age(verdict['at'], now)} ago"
    evidence = [f"- {it['words']}" for it in verdict.get("evidence") or [] if "words" in it]
    return "\n".join([head, verdict.get("message") or "", *evidence])


def _conditions(conditions: Sequence[Resource], now: datetime) -> Table:
    made = Table(box=None, pad_edge=True, show_header=False)
    for it in conditions:
        made.add_row(it["type"], it["status"], it["reason"], age(it["lastTransitionTime"], now), it["message"])
    return made


def _events(events: Sequence[Event], now: datetime) -> Table:
    made = Table(box=None, pad_edge=True, show_header=False)
    for it in events:
        often = f"{it.count} times" if it.count > 1 else ""
        at = "" if it.at is None else age(it.at.isoformat(), now)
        made.add_row(at, Text(it.reason, style="yellow" if it.warning else ""), often, it.message)
    return made

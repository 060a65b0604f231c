"""`exactlyonce explain`: the verdict and its evidence, with nothing changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import click

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.launch.port import Running
from exactlyonce.positions.ranges import Epoch, offset_text
from exactlyonce.reconcile.batch_limit import records_of, still_needed, too_large_of
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.finish_first import finished_by
from exactlyonce.reconcile.observation import Predecessor, ProvenDead
from exactlyonce.reconcile.observe import observe, request_of
from exactlyonce.reconcile.predecessor import next_attempt, predecessor_of
from exactlyonce.reconcile.progress import known_of
from exactlyonce.reconcile.verdicts import Decision, Launch, SeedAndPublish, Verdict, batch_of, kind_of, reason_of

EXIT_LAUNCHES, EXIT_HALTS = 0, 2


def explain_stream(opened: LocalStream, *, as_json: bool) -> int:
    """Print the decision for a stream as it stands, and return the exit status."""
    running = running_attempt(opened)
    decision = decide_without_acting(opened, running)
    if as_json:
        click.echo(json.dumps(as_data(opened.stream.stream_id, decision, running), indent=2, default=str))
    else:
        position_text = opened.stream.spec.source.spec.position_text
        click.echo(as_text(opened.stream.stream_id, decision, running, position_text))
    return EXIT_HALTS if decision.halts else EXIT_LAUNCHES


def running_attempt(opened: LocalStream) -> Epoch | None:
    """Return the attempt whose driver runs now, if one does: the status's, or the ledger's where the status was lost."""
    view = opened.ledger.view(opened.stream.stream_id)
    status, _ = opened.statuses.read()
    known = (Epoch(status.attempt), None if view is None else view.stream.writer)
    return next(
        (attempt for attempt in known if attempt and isinstance(opened.launcher.state_of(attempt), Running)), None
    )


def decide_without_acting(opened: LocalStream, running: Epoch | None) -> Decision:
    """Observe and decide as the next attempt would, without recording, raising or acting.

    A driver that is running is taken to end now, seen by its launcher; nothing is decided before it has ended.
    """
    view = opened.ledger.view(opened.stream.stream_id)
    status, _ = opened.statuses.read()
    attempt = next_attempt(status, view, opened.launcher)
    row = None if view is None else view.stream
    if running is not None and row is not None and row.writer == running:
        predecessor: Predecessor = ProvenDead(f"the driver of attempt {running} is taken to have ended")
    else:
        predecessor = predecessor_of(row, status, opened.launcher)
    limit = still_needed(status.batch_limit, view, opened.stream.spec.recovery)
    request = request_of(
        opened.stream, opened.owner, records_of(limit), too_large_of(limit), finished_by=finished_by(status)
    )
    return decide(observe(opened.stores, request, attempt, predecessor, opened.owner_is_gone, known_of(status)))


def as_text(
    stream_id: str, decision: Decision, running: Epoch | None, position_text: Callable[[int], str] = offset_text
) -> str:
    """Render a decision for a person; `position_text` is how the source writes a position."""
    verdict = decision.verdict
    lines = [
        f"Stream   {stream_id}",
        *(
            []
            if running is None
            else [f"Driver   attempt {running} runs; this is what would be decided if it ended now"]
        ),
        f"Verdict  {titled(verdict)}",
        f"Message  {verdict.message}",
        "Evidence",
        *(f"  - {item.words}" for item in verdict.evidence),
        "Actions",
        *(f"  {place}. {_told(action, position_text)}" for place, action in enumerate(decision.actions, 1)),
    ]
    if decision.halts:
        lines.append("  the stream halts until a person has acted")
    return "\n".join(lines)


def as_data(stream_id: str, decision: Decision, running: Epoch | None) -> dict[str, object]:
    """Render a decision for a program."""
    verdict = decision.verdict
    return {
        "streamId": stream_id,
        "runningAttempt": running,
        "verdict": kind_of(verdict),
        "reason": reason_of(verdict),
        "batch": batch_of(verdict),
        "message": verdict.message,
        "evidence": [asdict(item) for item in verdict.evidence],
        "actions": [type(action).__name__ for action in decision.actions],
        "halts": decision.halts,
    }


def _told(action: object, position_text: Callable[[int], str]) -> str:
    if action == Launch(DriverTask.FINISH_ONLY):
        return "start a driver without a query, which finishes what is left; then decide again"
    if isinstance(action, SeedAndPublish) and action.state_of is not None:
        return (
            f"make {action.generation.folder} of what {action.state_of.folder} retains of batch {action.seed_batch} at "
            f"{action.after.positions.text(position_text)}, state included, and publish it"
        )
    if isinstance(action, SeedAndPublish):
        return (
            f"seed {action.generation.folder} as the empty batch {action.seed_batch} at "
            f"{action.after.positions.text(position_text)} and publish it"
        )
    names = {
        "RecordIdentity": "record the stream's new owner, database or token in the ledger",
        "WriteMarker": "write stream.json at the checkpoint location",
        "RecordLost": "record the ranges of a batch that was taken and may not have been written",
        "RecordQuery": "record what the next driver reads and does, which has changed",
        "RecordAnswers": "record what a person has found out about loads that the sink has forgotten",
        "RecordLoads": "record an answer for a load that the ledger had lost, or that the next driver asks the sink",
        "Launch": "start the driver",
    }
    return names[type(action).__name__]


def titled(verdict: Verdict) -> str:
    """Return the verdict's name with its reason and its batch, as a person reads it."""
    reason, batch = reason_of(verdict), batch_of(verdict)
    return f"{kind_of(verdict)}{'' if batch is None else f'({batch})'}{'' if reason is None else f' ({reason})'}"

"""`exactlyonce explain NAME`: what the operator decided for a stream of a cluster when it last did. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from exactlyonce.api.status import Phase
from exactlyonce.cli.ages import age, clock_time
from exactlyonce.cli.stream_view import driver_words, failure_words, landed_words, phase_of
from exactlyonce.errors import Refused


class NothingDecided(Refused):
    """No verdict is recorded yet."""


def recorded_text(stream: Mapping[str, Any], now: datetime) -> str:
    """Render the recorded verdict and what has happened since, for a person.

    Raises:
        NothingDecided: if there is none.
    """
    status, verdict = stream["status"], _verdict(stream)
    number = "" if verdict.get("batch") is None else f"({verdict['batch']})"
    since = [
        ("Phase", f"{phase_of(stream)}. {status.get('message') or ''}".rstrip()),
        ("Driver", driver_words(status, now)),
        ("Landed", landed_words(status.get("progress") or {}, now)),
        ("Failures", failure_words(status.get("consecutiveFailures") or {})),
    ]
    return "\n".join(
        [
            f"Stream    {_key(stream)}",
            f"Recorded  at {clock_time(verdict['at'])}, {age(verdict['at'], now)} ago, for attempt {verdict['attempt']}: it is "
            "not what would be decided now",
            f"Verdict   {verdict['kind']}{number}" + (f" {verdict['reason']}" if verdict.get("reason") else ""),
            f"Message   {verdict.get('message') or ''}",
            "Evidence",
            *(f"  - {item['words']}" for item in verdict.get("evidence") or () if "words" in item),
            "Since then",
            *(f"  {label:<8}{words}" for label, words in since if words),
            "The operator, which reads the checkpoint, decides again when this driver has ended, before it starts the next.",
        ]
    )


def recorded_data(stream: Mapping[str, Any]) -> dict[str, object]:
    """Render it for a program; `now` is false, which tells it from the decision for a file.

    Raises:
        NothingDecided: as `recorded_text`.
    """
    verdict, status = _verdict(stream), stream["status"]
    return {
        "stream": _key(stream),
        "now": False,
        "recordedAt": verdict["at"],
        "attempt": verdict["attempt"],
        "verdict": verdict["kind"],
        "reason": verdict.get("reason"),
        "batch": verdict.get("batch"),
        "message": verdict.get("message") or "",
        "evidence": verdict.get("evidence") or [],
        "phase": phase_of(stream),
        "statusMessage": status.get("message") or "",
        "halts": phase_of(stream) == Phase.HALTED,
    }


def _verdict(stream: Mapping[str, Any]) -> Mapping[str, Any]:
    status = stream.get("status") or {}
    if not status.get("verdict"):
        said = f": {status['message']}" if status.get("message") else ""
        raise NothingDecided(f"Nothing has been decided for {_key(stream)} yet (it is {phase_of(stream)}{said}).")
    found: Mapping[str, Any] = status["verdict"]
    return found


def _key(stream: Mapping[str, Any]) -> str:
    return f"{stream['metadata']['namespace']}/{stream['metadata']['name']}"

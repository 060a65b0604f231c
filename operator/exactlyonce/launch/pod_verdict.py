"""What the reconciliation in a driver's pod says: outcome and verdict, as a termination message. Performs no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from exactlyonce.launch.last_message import MAX_BYTES

_SHORTEST = 300  # characters; JSON writes each in at most 12 bytes of ASCII


class Outcome(StrEnum):
    """What follows for the pod."""

    LAUNCHES = "Launches"
    """The driver's container starts."""
    FINISHES = "Finishes"
    """Nothing was done, and the driver's container does not start: one without a query is started by the operator first."""
    HALTS = "Halts"
    """The verdict halts the stream."""
    REFUSED = "Refused"
    """Something is wrong that only a person can mend; nothing was decided."""
    UNREACHABLE = "Unreachable"
    """A store did not answer, or refused what may be granted later; nothing is known, so nothing was decided."""
    OVERTAKEN = "Overtaken"
    """Another attempt has gone further meanwhile."""


EXIT_STATUS = {
    Outcome.LAUNCHES: 0,
    Outcome.HALTS: 2,
    Outcome.OVERTAKEN: 3,
    Outcome.UNREACHABLE: 4,
    Outcome.REFUSED: 5,
    Outcome.FINISHES: 6,
}
"""Of the init container: the driver's starts after 0 only."""


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """The word of a reconciliation in a pod.

    `kind`, `reason`, `batch` and `evidence` are of the verdict, where there is one. `landed` is the landed batch that the
    driver starts after, `generation` and `location` the checkpoint that it starts on.
    """

    outcome: Outcome
    message: str
    kind: str | None = None
    batch: int | None = None
    landed: int | None = None
    generation: int | None = None
    location: str | None = None
    evidence: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None

    def render(self) -> str:
        """Return one JSON object of at most MAX_BYTES; the last of the evidence goes first, then the message is cut."""
        for count in range(len(self.evidence), -1, -1):
            text = self._json(self.message, self.evidence[:count])
            if len(text) <= MAX_BYTES:
                return text
        longest = next(
            length for length in (1500, _SHORTEST) if len(self._json(self.message[:length], ())) <= MAX_BYTES
        )
        return self._json(self.message[:longest], ())

    def _json(self, message: str, evidence: tuple[Mapping[str, Any], ...]) -> str:
        fields = {
            "outcome": str(self.outcome),
            "verdict": self.kind,
            "reason": self.reason,
            "batch": self.batch,
            "landed": self.landed,
            "generation": self.generation,
            "location": self.location,
            "message": message,
            "evidence": [dict(item) for item in evidence] or None,
        }
        return json.dumps({key: value for key, value in fields.items() if value is not None})


_CUT = re.compile(
    r'\{"outcome": "(\w+)"(?:, "verdict": "(\w+)")?(?:, "reason": "(\w+)")?(?:, "batch": (\d+))?(?:, "landed": (\d+))?'
)


def parse_pod_verdict(text: str) -> PodVerdict | None:
    """Return what a termination message says, or None where no driver of ours wrote it.

    Of one whose end was cut off, as a kubelet does where a pod's containers have said a lot together, what is left.
    """
    try:
        fields = json.loads(text)
        return PodVerdict(
            Outcome(fields["outcome"]),
            str(fields["message"]),
            fields.get("verdict"),
            fields.get("batch"),
            fields.get("landed"),
            fields.get("generation"),
            fields.get("location"),
            tuple(fields.get("evidence", ())),
            fields.get("reason"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return _parse_cut(text)


def _parse_cut(text: str) -> PodVerdict | None:
    found = _CUT.match(text)
    if found is None or found[1] not in {str(outcome) for outcome in Outcome}:
        return None
    rest = text[found.end() :].partition('"message": "')[2][:500]
    batch, landed = (None if number is None else int(number) for number in (found[4], found[5]))
    return PodVerdict(
        Outcome(found[1]), f"What it said was cut short: {rest}", found[2], batch, landed, reason=found[3]
    )

"""What of a stream may never change, or only while it rests, as rules of the API server. Performs no I/O.

What the spec asks for is not yet so while a driver of an earlier one runs; a stream that has never been attempted, or that is
suspended, has none. The status is written before each act, from the very version that was read: a change that comes between is
seen as a conflict and starts the pass over.
"""

from __future__ import annotations

from exactlyonce.api.connector_rules import FIXED_IN_LEDGERS, FIXED_IN_SINKS
from exactlyonce.api.ledger import has_other_sinks, sink_holds_ledger_cel

_NEVER_ATTEMPTED = "!has(oldSelf.status) || !has(oldSelf.status.attempt) || oldSelf.status.attempt == 0"
_RESTS = f"{_NEVER_ATTEMPTED} || (has(oldSelf.status.phase) && oldSelf.status.phase == 'Suspended')"
_HOW = "set spec.suspend, wait for the phase Suspended, then change it"
_NEVER_SENTENCE = "streamId never changes: the ledger knows the stream by it; make another resource for another stream"

NEVER = {"spec.streamId": "spec.streamId"}
"""Fields that never change, with the path that is told."""

WHILE_SUSPENDED = {
    "spec.delivery": ("spec.delivery",),
    "spec.sink": FIXED_IN_SINKS,
    "spec.checkpoint": (
        "spec.checkpoint.s3.location",
        "spec.checkpoint.s3.endpoint",
        "spec.checkpoint.s3.region",
        "spec.checkpoint.s3.pathStyle",
        "spec.checkpoint.volume.claimName",
        "spec.checkpoint.volume.path",
        "spec.checkpoint.volume.mountPath",
        "spec.checkpoint.local.path",
    ),
    "spec.ledger": FIXED_IN_LEDGERS,
}
"""Fields that can be changed only while the stream is suspended, by the path that is told."""


def ledgers_stay() -> list[dict[str, str]]:
    """Return the rule that keeps a ledger beside its checkpoint where it is, if there are sinks that need such a ledger.

    A checkpoint that moves is rebuilt from the ledger. If both went at once, nothing would say what has landed.
    """
    if not has_other_sinks():
        return []
    same = " && ".join(f"({_same(field)})" for field in WHILE_SUSPENDED["spec.checkpoint"])
    held, chosen = sink_holds_ledger_cel("self.spec"), "has(self.spec.ledger) || has(oldSelf.spec.ledger)"
    sentence = (
        "without spec.ledger the ledger is in the checkpoint's folder ledger, and the checkpoint cannot move away from it; "
        "give spec.ledger the folder where it is now, then move the checkpoint"
    )
    return [_rule("spec.checkpoint", f"{held} || {chosen} || {_NEVER_ATTEMPTED} || ({same})", sentence)]


def update_rules() -> list[dict[str, str]]:
    """Return the rules of the whole resource, which sees the status beside the spec."""
    never = [_rule(told, _same(field), _NEVER_SENTENCE) for told, field in NEVER.items()]
    resting = []
    for told, fields in WHILE_SUSPENDED.items():
        *others, last = (field.removeprefix("spec.") for field in fields)
        names = f"{', '.join(others)} and {last}" if others else last
        same = " && ".join(f"({_same(field)})" for field in fields)
        resting.append(
            _rule(told, f"{_RESTS} || ({same})", f"{names} can be changed only while the stream is suspended: {_HOW}")
        )
    return [*never, *resting, *ledgers_stay()]


def _rule(told: str, cel: str, sentence: str) -> dict[str, str]:
    return {"rule": cel, "message": sentence, "reason": "FieldValueForbidden", "fieldPath": f".{told}"}


def _same(field: str) -> str:
    """Return the expression that a field, absent or not, is what it was."""
    there, was = _has("self", field), _has("oldSelf", field)
    return f"({there}) == ({was}) && (!({there}) || self.{field} == oldSelf.{field})"


def _has(side: str, field: str) -> str:
    """Return the expression that a field is there; what it stands in may be absent too."""
    parts = field.split(".")
    steps = [f"has({side}.{'.'.join(parts[: count + 1])})" for count in range(1, len(parts))]
    return " && ".join(steps)

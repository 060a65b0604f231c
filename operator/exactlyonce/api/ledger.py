"""Where a stream's ledger is: in the sink's own database, where the resource says, or beside the checkpoint.

Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.connectors.registry import LEDGERS, NEEDS_A_FOLDER_ONLY, SINKS, LedgerFields
from exactlyonce.connectors.specs import Chosen, LedgerSpec, SinkSpec
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import field_name
from exactlyonce.schema.places import S3Place

if TYPE_CHECKING:
    from exactlyonce.api.spec import StreamSpec

LEDGER_FOLDER = "ledger"
"""The folder of a checkpoint's location that the ledger is in where nothing else is said."""


class Ledger(LedgerFields, Chosen[LedgerSpec]):
    """Where it is recorded what has landed."""

    one_of = tuple(LEDGERS)
    removed: ClassVar[Mapping[str, str]] = {
        "dynamoDb": f"no ledger is kept in DynamoDB; write {field_name(NEEDS_A_FOLDER_ONLY)} with the location of an empty "
        "folder of this stream alone, on S3 or on a disk, or leave ledger out to keep the object log beside the checkpoint"
    }


@dataclass(frozen=True)
class LedgerInUse:
    """The ledger of a stream: the connector that opens it, and what that takes.

    `named_at` is the part of the resource that says where it is, and `folder` what it is in, unless that is a database server.
    """

    connector: str
    spec: SinkSpec | LedgerSpec
    named_at: str
    folder: S3Place | str | None


def ledger_of(spec: StreamSpec) -> LedgerInUse:
    """Return which ledger a stream has."""
    sink = spec.sink
    if sink.spec.holds_ledger:
        return LedgerInUse(sink.connector, sink.spec, f"spec.sink.{field_name(sink.connector)}", None)
    if spec.ledger is not None:
        ledger = spec.ledger
        named_at = f"spec.ledger.{field_name(ledger.connector)}"
        return LedgerInUse(ledger.connector, ledger.spec, named_at, ledger.spec.folder)
    folder = _beside(spec.checkpoint)
    made: LedgerSpec = LEDGERS[NEEDS_A_FOLDER_ONLY].in_folder(folder)
    return LedgerInUse(NEEDS_A_FOLDER_ONLY, made, "spec.checkpoint", folder)


def _beside(checkpoint: Checkpoint) -> S3Place | str:
    location = f"{checkpoint.location.rstrip('/')}/{LEDGER_FOLDER}"
    # Nothing is checked again: the location was, and the limit of its length is one for what a person writes.
    return location if checkpoint.s3 is None else checkpoint.s3.model_copy(update={"location": location})


def ledger_rules(sinks: Mapping[str, type[SinkSpec]]) -> tuple[Rule, ...]:
    """Return the rules of the whole spec, where these are the sinks that a stream can have."""
    named = " and ".join(f"sink.{field_name(name)}" for name, sink in sinks.items() if sink.holds_ledger)
    holds = sink_holds_ledger_cel("self", sinks)
    left_out = Rule(
        f"!has(self.ledger) || !{holds}",
        lambda it: it.ledger is None or not it.sink.spec.holds_ledger,
        f"leave ledger out with {named}: the ledger is in the sink's own database, where a batch's rows and its record land in "
        "one transaction",
    )
    in_reach = Rule(
        f"{holds} || has(self.ledger) || !has(self.checkpoint.volume)",
        lambda it: it.sink.spec.holds_ledger or it.ledger is not None or it.checkpoint.volume is None,
        "give ledger where the checkpoint is on a volume: the operator needs the ledger and does not reach the volume",
    )
    return (left_out, in_reach) if has_other_sinks(sinks) else (left_out,)


def has_other_sinks(sinks: Mapping[str, type[SinkSpec]] = SINKS) -> bool:
    """Return whether there are sinks that do not hold the ledger."""
    return any(not sink.holds_ledger for sink in sinks.values())


def sink_holds_ledger_cel(spec: str, sinks: Mapping[str, type[SinkSpec]] = SINKS) -> str:
    """Return the expression that the sink of a spec holds the ledger."""
    holding = [field_name(name) for name, sink in sinks.items() if sink.holds_ledger]
    return "(" + (" || ".join(f"has({spec}.sink.{name})" for name in holding) or "false") + ")"

"""Rules of the whole spec for streams whose sink is a manifest, or one of two phases: what has landed there never changes.

Performs no I/O.
"""

from __future__ import annotations

from typing import Any

from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import field_name


def manifest_rules(connector: str) -> tuple[Rule, ...]:
    """Return the `stream_rules` of a sink, named by its connector, whose target is a `ManifestTarget` or `TwoPhaseTarget`."""
    sink = f"sink.{field_name(connector)}"
    other_sink = f"!has(self.{sink})"

    def has_other_sink(it: Any) -> bool:
        return getattr(it.sink, connector) is None

    return (
        Rule(
            f"{other_sink} || self.delivery == 'ExactlyOnce'",
            lambda it: has_other_sink(it) or it.delivery == "ExactlyOnce",
            f"{sink} supports only delivery: ExactlyOnce",
        ),
        Rule(
            f"{other_sink} || self.outputMode == 'Append'",
            lambda it: has_other_sink(it) or it.output_mode == "Append",
            f"{sink} needs outputMode: Append, since what has landed is never changed",
        ),
        Rule(
            f"{other_sink} || self.source.format.onTombstone != 'Delete'",
            lambda it: has_other_sink(it) or it.source.format.on_tombstone != "Delete",
            f"source.format.onTombstone: Delete needs a sink whose rows can be deleted, not {sink}",
        ),
        Rule(
            f"{other_sink} || self.source.format.onMalformed != 'DeadLetter'",
            lambda it: has_other_sink(it) or it.source.format.on_malformed != "DeadLetter",
            f"source.format.onMalformed: DeadLetter needs a sink that keeps dead letters, not {sink}",
        ),
    )

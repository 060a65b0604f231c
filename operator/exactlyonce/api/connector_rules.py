"""What connectors add to the rules of the whole resource. Performs no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from exactlyonce.api.recovery import OnPoisonBatch
from exactlyonce.connectors.registry import LEDGERS, SINKS, SOURCES
from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import field_name


def _lands_by_batch(source: str, sink: str) -> Rule:
    """Return the rule for a source whose tasks do not show what they read, and a sink that may commit by partition."""
    from_source, commit = f"source.{field_name(source)}", f"sink.{field_name(sink)}.commit"
    return Rule(
        f"!has(self.{from_source}) || !has(self.sink.{field_name(sink)}) || self.{commit} == 'Batch'",
        lambda it: getattr(it.source, source) is None or it.sink.spec.commit is Commit.BATCH,
        f"{commit}: Partition is not for {from_source}: Spark does not show what each of its tasks reads; write Batch",
    )


def _tells_no_records_apart(source: str) -> Rule:
    """Return the rule for a source whose ranges cannot be divided into single records."""
    from_source = f"source.{field_name(source)}"
    return Rule(
        f"!has(self.{from_source}) || !has(self.recovery) || !has(self.recovery.onPoisonBatch) || "
        "self.recovery.onPoisonBatch != 'Bisect'",
        lambda it: getattr(it.source, source) is None or it.recovery.on_poison_batch is not OnPoisonBatch.BISECT,
        f"recovery.onPoisonBatch: Bisect is not for {from_source}, whose positions count no records, so that a batch cannot be "
        "halved down to one of them; write Quarantine",
    )


def _starts_behind_a_former_query(source: str, sink: str) -> Rule:
    """Return the rule for a sink that may continue what a query has written: by default its records would be read again."""
    begin, former = f"source.{field_name(source)}.start", f"sink.{field_name(sink)}.continueAfterBatch"
    default = SOURCES[source].model_fields["start"].get_default(call_default_factory=True).from_

    def holds(it: Any) -> bool:
        read, written = getattr(it.source, source), getattr(it.sink, sink)
        return (
            read is None or written is None or written.continue_after_batch is None or read.start.from_ is not default
        )

    return Rule(
        f"!has(self.source.{field_name(source)}) || !has(self.sink.{field_name(sink)}) || !has(self.{former}) || "
        f"self.{begin}.from != '{default}'",
        holds,
        f"{former} needs {begin} to say where that batch ends: {default} would read again what the former query has written",
    )


CONNECTOR_RULES: tuple[Rule, ...] = (
    *(rule for spec in (*SOURCES.values(), *SINKS.values()) for rule in spec.stream_rules),
    *(
        _lands_by_batch(source, sink)
        for source, reads in SOURCES.items()
        for sink, lands in SINKS.items()
        if not reads.tasks_show_ranges and "commit" in lands.model_fields
    ),
    *(
        _starts_behind_a_former_query(source, sink)
        for source, reads in SOURCES.items()
        for sink, lands in SINKS.items()
        if "start" in reads.model_fields and "continue_after_batch" in lands.model_fields
    ),
    *(_tells_no_records_apart(source) for source, reads in SOURCES.items() if not reads.positions_count_records),
)
"""Rules of the whole spec."""


def _below(part: str, fields: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the paths of fields of connectors, which are given by the connectors' names."""
    return tuple(f"{part}.{field_name(name)}.{field}" for name, those in fields.items() for field in those)


OPERATORS_OWN = _below("source", {name: spec.own_fields for name, spec in SOURCES.items()})
"""Fields of sources that the operator alone reads: a change of them needs no other driver."""

FIXED_IN_SINKS = _below("spec.sink", {name: spec.fixed_fields for name, spec in SINKS.items()})
"""Fields of sinks that can be changed only while the stream is suspended; so does the sink itself."""

FIXED_IN_LEDGERS = _below("spec.ledger", {name: spec.fixed_fields for name, spec in LEDGERS.items()})
"""Fields of ledgers that can be changed only while the stream is suspended; so does which ledger it is."""

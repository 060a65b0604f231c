"""What connectors add to the rules of the whole resource. Performs no I/O."""

from __future__ import annotations

from exactlyonce.connectors.registry import SINKS, SOURCES
from exactlyonce.schema.constraints import Rule

CONNECTOR_RULES: tuple[Rule, ...] = tuple(
    rule for spec in (*SOURCES.values(), *SINKS.values()) for rule in spec.stream_rules
)
"""Rules of the whole spec."""

OPERATORS_OWN = tuple(f"source.{name}.{field}" for name, spec in SOURCES.items() for field in spec.own_fields)
"""Fields of sources that the operator alone reads: a change of them needs no other driver."""

FIXED_IN_SINKS = tuple(f"spec.sink.{name}.{field}" for name, spec in SINKS.items() for field in spec.fixed_fields)
"""Fields of sinks that change only while the stream rests; so does the sink itself."""

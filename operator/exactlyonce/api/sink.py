"""The sink half of a stream's spec."""

from __future__ import annotations

from exactlyonce.connectors.registry import SINKS, SinkFields
from exactlyonce.connectors.specs import Chosen, SinkSpec


class Sink(SinkFields, Chosen[SinkSpec]):
    """Where rows take effect."""

    one_of = tuple(SINKS)

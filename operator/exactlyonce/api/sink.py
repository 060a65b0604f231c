"""The sink half of a stream's spec."""

from __future__ import annotations

from exactlyonce.connectors.registry import SINKS, SinkFields
from exactlyonce.connectors.specs import SinkSpec, chosen


class Sink(SinkFields):
    """Where rows take effect."""

    one_of = tuple(SINKS)

    @property
    def connector(self) -> str:
        """The name of the sink that is given."""
        return chosen(self, self.one_of)[0]

    @property
    def spec(self) -> SinkSpec:
        """What the resource says of it."""
        spec: SinkSpec = chosen(self, self.one_of)[1]
        return spec

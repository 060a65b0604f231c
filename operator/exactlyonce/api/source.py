"""The source half of a stream's spec."""

from __future__ import annotations

from pydantic import Field

from exactlyonce.api.format import Format
from exactlyonce.connectors.registry import SOURCES, SourceFields
from exactlyonce.connectors.specs import SourceSpec, chosen


class Source(SourceFields):
    """Where records come from."""

    format: Format = Field(description="How values are turned into columns.")

    one_of = tuple(SOURCES)

    @property
    def connector(self) -> str:
        """The name of the source that is given."""
        return chosen(self, self.one_of)[0]

    @property
    def spec(self) -> SourceSpec:
        """What the resource says of it."""
        spec: SourceSpec = chosen(self, self.one_of)[1]
        return spec

"""The source half of a stream's spec."""

from __future__ import annotations

from pydantic import Field

from exactlyonce.api.format import Format
from exactlyonce.connectors.registry import SOURCES, SourceFields, source_fields
from exactlyonce.connectors.specs import Chosen, SourceSpec


class Source(SourceFields, Chosen[SourceSpec]):
    """Where records come from."""

    format: Format = Field(description="How values are turned into columns.")

    one_of = tuple(SOURCES)

    @property
    def limit_fields(self) -> tuple[str, ...]:
        """The fields that limit a batch, each as a path in the resource."""
        return source_fields("PerTrigger", self.connector)

"""The source half of a stream's spec."""

from __future__ import annotations

from pydantic import Field

from exactlyonce.api.format import Format
from exactlyonce.connectors.registry import SOURCES, SourceFields
from exactlyonce.connectors.specs import Chosen, SourceSpec


class Source(SourceFields, Chosen[SourceSpec]):
    """Where records come from."""

    format: Format = Field(description="How values are turned into columns.")

    one_of = tuple(SOURCES)

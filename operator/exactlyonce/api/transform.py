"""The transform of a stream's spec: what is done to the rows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Model

_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
ModuleName = Annotated[
    str,
    Field(max_length=512),
    matches(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*", "write a module's name as Python imports it"),
]
FunctionName = Annotated[str, Field(max_length=128), matches(_IDENTIFIER, "write a function's name")]


class PythonTransform(Model):
    """A function `(DataFrame) -> DataFrame` of a module on the driver's Python path."""

    module: ModuleName = Field(description="The module.")
    function: FunctionName = Field("transform", description="The function in it.")


class Transform(Model):
    """What is done to the rows; without one they land as the format gives them."""

    sql: Annotated[str, Field(min_length=1, max_length=100_000)] | None = Field(
        None, description="A SELECT over the view `source`."
    )
    python: PythonTransform | None = Field(None, description="A Python function from DataFrame to DataFrame.")

    rules = (
        Rule(
            "has(self.sql) != has(self.python)",
            lambda it: (it.sql is None) != (it.python is None),
            "give exactly one of sql and python",
        ),
    )

"""The base of every object of the resource, and the kinds of value they share."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from exactlyonce.schema.constraints import VALIDATIONS, Rule, cel_text, matches, require

_DURATION = re.compile(r"(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8})s)?(?:([0-9]{1,11})ms)?")
_DURATION_FORM = "write it like 500ms, 10s, 5m or 1h30m"


def is_duration_cel(value: str) -> str:
    """Return the expression that a value of CEL is a duration; other text cannot be compared as one."""
    return f"({value} != '' && {value}.matches({cel_text(f'^{_DURATION.pattern}$')}))"


class Model(BaseModel):
    """An immutable object with camelCase names on the outside; a field that it does not know is refused.

    `rules` are what its fields have to fulfil together; of the fields that `one_of` names it has exactly one. `removed` are
    fields that there were, by the name on the outside, with what to write instead: the schema keeps them, or the API server
    would drop one in silence.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    rules: ClassVar[tuple[Rule, ...]] = ()
    one_of: ClassVar[tuple[str, ...]] = ()
    removed: ClassVar[Mapping[str, str]] = {}

    def to_document(self) -> dict[str, Any]:
        """Return the object as it stands in a YAML or JSON document, without what was left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @model_validator(mode="before")
    @classmethod
    def _prepared(cls, value: Any) -> Any:
        known = {field.alias or name for name, field in cls.model_fields.items()}
        given = value
        if isinstance(value, dict):
            given = {name: _as_whole(item) for name, item in without_nulls(value, known).items()}
        if isinstance(given, dict):
            for name in cls.removed:
                if name in given:
                    raise ValueError(cls._removed_sentence(name))
        if cls.one_of and isinstance(given, dict):
            named = sum(name in given or field_name(name) in given for name in cls.one_of)
            if named != 1:
                raise ValueError(cls._one_of_sentence())
        return given

    @model_validator(mode="after")
    def _keeps_its_rules(self) -> Self:
        require(self.rules, self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Carry the rules into the schema."""
        made = handler(schema)
        resolved = handler.resolve_ref_schema(made)
        rules = [rule.to_document() for rule in cls.rules]
        if cls.one_of:
            names = [field_name(name) for name in cls.one_of]
            # Not `required`: the sentence is to say which there are.
            resolved["required"] = [name for name in resolved.get("required", []) if name not in names]
            given = ", ".join(f"has(self.{name})" for name in names)
            unless = "".join(f"has(self.{name}) || " for name in cls.removed)
            rule = f"{unless}[{given}].filter(given, given).size() == 1"
            rules.append({"rule": rule, "message": cls._one_of_sentence()})
        for name in cls.removed:
            sentence = cls._removed_sentence(name)
            resolved["properties"][name] = {
                "type": "object",
                "description": f"Removed: {cls.removed[name]}.",
                "additionalProperties": True,
            }
            rules.append({"rule": f"!has(self.{name})", "message": sentence})
        if rules:
            resolved[VALIDATIONS] = rules
        return made

    @classmethod
    def _removed_sentence(cls, name: str) -> str:
        return f"{name} was removed: {cls.removed[name]}"

    @classmethod
    def _one_of_sentence(cls) -> str:
        names = ", ".join(field_name(name) for name in cls.one_of)
        return f"give exactly one of: {names}"


def field_name(name: str) -> str:
    """Return how a field is called on the outside."""
    return to_camel(name)


def _as_whole(value: Any) -> Any:
    """Take 1.0 for the whole number that it is, as JSON does not tell one from the other."""
    if isinstance(value, list):
        return [_as_whole(item) for item in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value


def without_nulls(value: Any, names: Container[str] | None = None) -> Any:
    """Leave out what is null, all of it or the fields of these names: `field: null` is the same as no such field.

    Source: the API server's own treatment of null where a schema does not say nullable.
    """
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if item is not None or (names is not None and key not in names)}


def parse_duration(text: object) -> timedelta:
    """Parse a duration such as `500ms`, `10s`, `5m` or `1h30m`.

    Raises:
        ValueError: if it is anything else.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) and text else None
    if match is None:
        raise ValueError(f"{text!r} is not a duration; {_DURATION_FORM}")
    hours, minutes, seconds, milliseconds = (int(part or 0) for part in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)


def render_duration(duration: timedelta) -> str:
    """Render a duration in the form `parse_duration` reads."""
    milliseconds = round(duration.total_seconds() * 1000)
    hours, milliseconds = divmod(milliseconds, 3_600_000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    seconds, milliseconds = divmod(milliseconds, 1000)
    parts = [(hours, "h"), (minutes, "m"), (seconds, "s"), (milliseconds, "ms")]
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def within(shortest: str, longest: str) -> Rule:
    """Return the rule that a duration is between two others, both included."""
    sentence = f"give a time from {shortest} to {longest}"
    least, most = parse_duration(shortest), parse_duration(longest)
    # What is not a duration has a sentence of its own.
    bounds = f"duration(self) >= duration('{shortest}') && duration(self) <= duration('{longest}')"
    return Rule(
        f"!{is_duration_cel('self')} || ({bounds})",
        lambda value: least <= value <= most,
        sentence,
        told=lambda value: f"{render_duration(value)} will not do; {sentence}",
    )


def _as_duration(value: object) -> object:
    return value if isinstance(value, timedelta) else parse_duration(value)


Duration = Annotated[
    timedelta,
    BeforeValidator(_as_duration),
    PlainSerializer(render_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 36,
            VALIDATIONS: [{"rule": is_duration_cel("self"), "message": _DURATION_FORM}],
        }
    ),
]


Whole = Annotated[int, Strict()]
"""A whole number; like the API server it takes 1.0 for one (see Model) and no text."""

Flag = Annotated[bool, Strict()]
"""True or false; like the API server it does not take a text or a number for one."""

LARGEST = 10**18
"""The bound of whole numbers without one of their own; a schema's bounds are floating-point, and this one is exact."""

Text = Annotated[str, Field(max_length=4096)]

Texts = Annotated[dict[str, Text], Field(max_length=200), BeforeValidator(without_nulls)]
"""Values by name, such as properties and options."""

DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME = rf"{DNS_LABEL}(\.{DNS_LABEL})*"

ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    matches(DNS_NAME, "write the name of a Kubernetes object: lowercase letters, digits, hyphens and dots"),
]


class SecretRef(Model):
    """A secret in the stream's own namespace."""

    name: ObjectName = Field(description="The secret's name.")

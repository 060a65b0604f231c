"""The models as the structural OpenAPI schema of a CustomResourceDefinition. Performs no I/O.

A structural schema has no references, no unions and a type everywhere. Source of the rules: the Kubernetes documentation,
"Specifying a structural schema".
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from exactlyonce.schema.constraints import VALIDATIONS
from exactlyonce.schema.model import Model, render_duration

Schema = dict[str, Any]

_KEPT = {
    "type", "format", "enum", "description", "default", "required", "items", "properties", "additionalProperties",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", VALIDATIONS,
}  # fmt: skip
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


def structural_schema(model: type[BaseModel], *, with_defaults: bool = True) -> Schema:
    """Return the schema of a model, every field described.

    Without defaults nothing is filled in by the API server: what is absent from a status is unknown.
    """
    made = model.model_json_schema(schema_generator=_Generator)
    return _Inlined(made.pop("$defs", {}), with_defaults).schema(made, model.__name__)


class _Generator(GenerateJsonSchema):
    """Renders defaults as a person would write them.

    An object's default is whole: the API server holds it to the object's rules before it fills in the fields' own defaults.
    """

    def encode_default(self, dft: Any) -> Any:
        match dft:
            case Model():
                return _without_empty(dft.to_document())
            case timedelta():
                return render_duration(dft)
            case _:
                return super().encode_default(dft)


class _Inlined:
    """Puts definitions where they are referred to and leaves out what a structural schema has not."""

    def __init__(self, definitions: Schema, with_defaults: bool) -> None:
        self._definitions = definitions
        self._with_defaults = with_defaults

    def schema(self, found: Schema, where: str) -> Schema:
        made = self._resolved(found, where)
        made.pop("title", None)
        if "default" in made and (not self._with_defaults or made["default"] in ([], {})):
            del made["default"]  # an empty list, map or object is the same as none
        if made.get("additionalProperties") is True:
            # Any object, as it is: a part of a pod, or evidence.
            del made["additionalProperties"]
            return {**made, _PRESERVE: True}
        if made.get("additionalProperties") is False:
            del made["additionalProperties"]
        unknown = set(made) - _KEPT
        assert not unknown, f"{where}: {', '.join(sorted(unknown))} has no place in a structural schema"
        assert made["type"] == "string" or "maxLength" not in made, f"{where}: give a map's bound before its validators"
        if made["type"] == "integer":
            made["format"] = "int64"
        if "properties" in made:
            made["properties"] = {
                name: self._property(field, f"{where}.{name}") for name, field in made["properties"].items()
            }
            if not made.get("required"):
                made.pop("required", None)
        for part in ("items", "additionalProperties"):
            if part in made:
                made[part] = self.schema(made[part], f"{where}.{part}")
        return _ordered(made)

    def _property(self, field: Schema, where: str) -> Schema:
        made = self.schema(field, where)
        assert made.get("description"), f"{where} has no description"
        return made

    def _resolved(self, found: Schema, where: str) -> Schema:
        """Follow references and take the one kind of value out of `kind or null`; what stands beside goes over it."""
        beside = {key: value for key, value in found.items() if key not in ("$ref", "anyOf")}
        if "$ref" in found:
            base = self._resolved(self._definitions[found["$ref"].rpartition("/")[2]], where)
        elif "anyOf" in found:
            kinds = [kind for kind in found["anyOf"] if kind != {"type": "null"}]
            assert len(kinds) == 1, f"{where} is a union, which no structural schema has"
            base = self._resolved(kinds[0], where)
            if beside.get("default", ...) is None:
                del beside["default"]
        else:
            return dict(found)
        rules = [*base.get(VALIDATIONS, []), *beside.get(VALIDATIONS, [])]
        return {**base, **beside, **({VALIDATIONS: rules} if rules else {})}


def _without_empty(document: Schema) -> Schema:
    """Leave out what is an empty list, map or object; to leave it out means the same."""
    kept = {key: _without_empty(item) if isinstance(item, dict) else item for key, item in document.items()}
    return {key: item for key, item in kept.items() if item not in ([], {})}


def _ordered(schema: Schema) -> Schema:
    """Put what a reader looks for first first."""
    first = ["description", "type", "format", "enum", "default"]
    last = ["required", "properties", "items", "additionalProperties"]
    middle = sorted(set(schema) - set(first) - set(last))
    return {key: schema[key] for key in [*first, *middle, *last] if key in schema}

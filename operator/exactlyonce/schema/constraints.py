"""What a value has to fulfil, told once: in CEL for the API server, in Python here, in a sentence for people.

scripts/generate_crd.py carries the CEL and the sentences into the schema; tests/cluster/test_resource.py shows on a real API
server that both sides refuse the same resources. Performs no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

VALIDATIONS = "x-kubernetes-validations"


class Broken(ValueError):
    """A value breaks rules; `sentences` has one for each."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


@dataclass(frozen=True)
class Rule:
    """What a value has to fulfil; stands in the annotation of a field, or in the `rules` of a model.

    `cel` and `holds` say the same. `told` adds to the sentence what the value is; the API server adds it by itself.
    """

    cel: str
    holds: Callable[[Any], bool]
    sentence: str
    told: Callable[[Any], str] | None = None

    def broken_by(self, value: Any) -> str | None:
        """Return the sentence if `value` breaks the rule, else None."""
        if self.holds(value):
            return None
        return self.sentence if self.told is None else self.told(value)

    def to_document(self) -> dict[str, str]:
        """Return the rule as a schema has it.

        No messageExpression: the server estimates one over names of any length beyond every budget.
        """
        return {"rule": self.cel, "message": self.sentence}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the value of a field here."""
        return AllOf((self,)).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Check it on the API server."""
        return AllOf((self,)).__get_pydantic_json_schema__(schema, handler)


@dataclass(frozen=True)
class AllOf:
    """Several rules of one field; all that are broken are told."""

    rules: tuple[Rule, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the value of a field here."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Check it on the API server."""
        made = handler(schema)
        return {**made, VALIDATIONS: [*made.get(VALIDATIONS, []), *(rule.to_document() for rule in self.rules)]}

    def _check(self, value: Any) -> Any:
        require(self.rules, value)
        return value


def require(rules: Iterable[Rule], value: Any) -> None:
    """Hold a value to rules.

    Raises:
        Broken: with the sentence of each rule that it breaks.
    """
    sentences = [sentence for rule in rules if (sentence := rule.broken_by(value)) is not None]
    if sentences:
        raise Broken(sentences)


def matches(pattern: str, sentence: str) -> Rule:
    """Return the rule that all of a text matches `pattern`: ASCII, and only what RE2 and Python read alike.

    A CEL rule rather than a `pattern` of the schema, whose message would be the expression itself.
    """
    expression = re.compile(pattern, re.ASCII)
    return Rule(
        f"self.matches({cel_text(f'^({pattern})$')})",
        lambda value: expression.fullmatch(value) is not None,
        sentence,
        told=lambda value: f"{value!r} will not do; {sentence}",
    )


@dataclass(frozen=True)
class Unique:
    """No two entries of a list are the same, or have the same values of `keys`."""

    keys: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the list here."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Let the API server check it, and merge entries of several field managers."""
        kind = {"x-kubernetes-list-type": "map" if self.keys else "set"}
        return {**handler(schema), **kind, **({"x-kubernetes-list-map-keys": list(self.keys)} if self.keys else {})}

    def _check(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        seen = set()
        for entry in entries:
            same = tuple(getattr(entry, key) for key in self.keys) if self.keys else (entry,)
            if same in seen:
                raise ValueError(f"{', '.join(str(part) for part in same)} stands in it twice; name it once")
            seen.add(same)
        return entries


def cel_text(text: str) -> str:
    """Return a literal of CEL that stands for `text`, taken as it is: backslashes have no meaning in it."""
    quote = "'" if "'" not in text else '"'
    assert quote not in text, f"no raw literal of CEL holds both kinds of quote: {text}"
    return f"r{quote}{text}{quote}"


def cel_list(texts: Iterable[str]) -> str:
    """Return a list literal of CEL."""
    return "[" + ", ".join(cel_text(text) for text in texts) + "]"

"""Files of the form that earlier versions read, rewritten as this version reads them. Performs no I/O.

What changed: a checkpoint says which kind of place it is in, `sink.postgres.merge` is a list, and memory is a quantity of
Kubernetes. Only these values are rewritten; the rest of a file stays as it is, with its comments. docs/adr/0027
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from exactlyonce.api.resource import API_VERSION, KIND
from exactlyonce.errors import Refused
from exactlyonce.schema.places import S3_PREFIX
from exactlyonce.schema.yaml_loader import KubectlLoader

_MEMORY = tuple(
    f"spec.{process}.{field}" for process in ("driver", "executor") for field in ("memory", "memoryOverhead")
)
_CHECKPOINT, _MERGE = "spec.checkpoint", "spec.sink.postgres.merge"
_PLACES = (_CHECKPOINT, _MERGE, *_MEMORY)


class NotRewritten(Refused):
    """A file cannot be rewritten without changing what it means."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The text of a file in the form of this version, and how many of its streams had another one."""

    text: str
    streams: int


@dataclass(frozen=True, slots=True)
class _Edit:
    """`text` goes in the place of what is between two offsets of a file."""

    start: int
    end: int
    text: str


def to_current_form(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource as this version reads it; one that is in that form already is returned as it is."""
    made = copy.deepcopy(dict(document))
    for path, changed in _CHANGES.items():
        *folders, last = path.split(".")
        place: Any = made
        for folder in folders:
            place = place.get(folder) if isinstance(place, dict) else None
        if isinstance(place, dict) and last in place:
            place[last] = changed(place[last])
    return made


def rewritten(text: str) -> Rewritten:
    """Return the text of a YAML file with every stream in it in the current form.

    Raises:
        NotRewritten: if a value that has to change is shared by an anchor or a merge key; it is to be rewritten by hand.
        YAMLError: if it is no YAML.
    """
    nodes = list(yaml.compose_all(text, KubectlLoader))
    before = list(yaml.load_all(text, KubectlLoader))
    after = [to_current_form(document) if _is_stream(document) else document for document in before]
    edits = [
        edit
        for node, was, now in zip(nodes, before, after, strict=True)
        if was != now
        for edit in _edits(node, was, now, text)
    ]
    made = text
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end), reverse=True):
        made = made[: edit.start] + edit.text + made[edit.end :]
    if _loaded(made) != after:
        raise NotRewritten(
            f"What has to change is written with anchors, merge keys or tags; rewrite {', '.join(_PLACES)} by hand, as "
            "docs/reference.md describes them."
        )
    return Rewritten(made, sum(was != now for was, now in zip(before, after, strict=True)))


def _is_stream(document: object) -> bool:
    return isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == (API_VERSION, KIND)


def _loaded(text: str) -> list[Any] | None:
    try:
        return list(yaml.load_all(text, KubectlLoader))
    except yaml.YAMLError:
        return None


def _checkpoint(given: Any) -> Any:
    if not isinstance(given, dict) or not isinstance(given.get("location"), str):
        return given
    # False was this field's default in every kind of place, and null is the same as no field.
    others = {name: value for name, value in given.items() if name not in ("location", "persistentVolumeClaim")}
    others = {
        name: value for name, value in others.items() if value is not None and (name, value) != ("pathStyle", False)
    }
    location, claim = given["location"], given.get("persistentVolumeClaim")
    if location.startswith(S3_PREFIX):
        return {"s3": {"location": location, **others}}
    if isinstance(claim, dict):
        at = {name: value for name, value in claim.items() if value is not None}
        return {"volume": {"claimName": at.pop("claimName", None), "path": location, **at, **others}}
    return {"local": {"path": location, **others}}


def _merge(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return [{"column": column, "combine": combine} for column, combine in given.items() if combine is not None]


def _memory(given: Any) -> Any:
    found = re.fullmatch("([0-9]+)([mg])", given) if isinstance(given, str) else None
    return given if found is None else f"{found[1]}{found[2].upper()}i"


_CHANGES = {_CHECKPOINT: _checkpoint, _MERGE: _merge, **dict.fromkeys(_MEMORY, _memory)}


def _edits(document: yaml.Node, was: Any, now: Any, text: str) -> Iterator[_Edit]:
    for path in _PLACES:
        before, after = _value_at(was, path), _value_at(now, path)
        node = _node_at(document, path)
        if before != after and node is not None:
            yield from _rewritten(node, after, text)


def _rewritten(node: yaml.Node, value: Any, text: str) -> Iterator[_Edit]:
    """Yield the edits that put a value in the place of a node, and the comments in it above it."""
    start, end = node.start_mark.index, max(leaf.end_mark.index for leaf in _leaves(node))
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    made = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=not is_block, sort_keys=False, width=10**6, allow_unicode=True
    )
    lines = [line for line in made.splitlines() if line != "..."]
    yield _Edit(start, end, f"\n{node.start_mark.column * ' '}".join(lines))
    comments = list(_comments(node, start, end, text))
    if comments:
        line_start = text.rfind("\n", 0, start) + 1
        margin = text[line_start : len(text) - len(text[line_start:].lstrip(" "))]
        yield _Edit(line_start, line_start, "".join(f"{margin}{comment}\n" for comment in comments))


def _comments(node: yaml.Node, start: int, end: int, text: str) -> Iterator[str]:
    """Yield the comments in a node: what begins with # between its scalars."""
    at = start
    for leaf in sorted(_leaves(node), key=lambda leaf: leaf.start_mark.index):
        if isinstance(leaf, yaml.ScalarNode):
            yield from re.findall(r"#[^\r\n]*", text[at : leaf.start_mark.index])
            at = leaf.end_mark.index
    yield from re.findall(r"#[^\r\n]*", text[at:end])


def _leaves(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield what ends where its text does: scalars, and collections in brackets, whose scalars follow."""
    if isinstance(node, yaml.ScalarNode) or (isinstance(node, yaml.CollectionNode) and node.flow_style):
        yield node
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _leaves(key)
            yield from _leaves(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _leaves(value)


def _value_at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _node_at(node: yaml.Node | None, path: str) -> yaml.Node | None:
    for name in path.split("."):
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for key, value in entries if key.value == name), None)
    return node


class _Dumper(yaml.SafeDumper):
    """Puts texts in quotes where kubectl would read something else, and writes each value where it stands."""

    yaml_implicit_resolvers = KubectlLoader.yaml_implicit_resolvers

    def ignore_aliases(self, data: object) -> bool:
        return True

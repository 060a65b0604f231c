"""An ExactlyOnceStream as a document: read it from YAML and check it as the API server would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from exactlyonce.api.model import DNS_NAME, Model
from exactlyonce.api.spec import StreamSpec
from exactlyonce.errors import Refused

API_VERSION = "exactlyonce.dev/v1alpha1"
KIND = "ExactlyOnceStream"

ADOPT = "exactlyonce.dev/adopt"
FRESH = "exactlyonce.dev/fresh"
RESTART_STATE = "exactlyonce.dev/restart-state"


class ResourceInvalid(Refused):
    """A document is no valid ExactlyOnceStream; `problems` has one sentence for each thing that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Metadata(Model):
    """The part of a Kubernetes object's metadata that a stream depends on."""

    name: str = Field(pattern=DNS_NAME, max_length=52)
    namespace: str = Field("default", pattern=DNS_NAME, max_length=63)
    annotations: dict[str, str] = Field({})


class Stream(Model):
    """One ExactlyOnceStream."""

    metadata: Metadata
    spec: StreamSpec

    @property
    def stream_id(self) -> str:
        """The ledger's key: what the spec says, or `<namespace>/<name>`."""
        return self.spec.stream_id or f"{self.metadata.namespace}/{self.metadata.name}"


def parse_stream(document: Mapping[str, Any], where: str) -> Stream:
    """Turn a document into a stream; `where` says in errors where it stands.

    Raises:
        ResourceInvalid: with a sentence for each thing that is wrong.
    """
    found = (document.get("apiVersion"), document.get("kind"))
    if found != (API_VERSION, KIND):
        raise ResourceInvalid(
            [f"{where}: this is {found[1]} of {found[0]}; write kind: {KIND} and apiVersion: {API_VERSION}."]
        )
    metadata = document.get("metadata")
    kept = (
        {key: metadata[key] for key in ("name", "namespace", "annotations") if key in metadata}
        if isinstance(metadata, dict)
        else {}
    )
    try:
        return Stream.model_validate({"metadata": kept, "spec": document.get("spec")})
    except ValidationError as problem:
        raise ResourceInvalid([f"{where}: {sentence}" for sentence in _sentences(problem)]) from problem


def read_streams(path: Path) -> list[Stream]:
    """Read every ExactlyOnceStream of a YAML file; other documents in it are passed over.

    Raises:
        ResourceInvalid: if the file cannot be read, is no YAML, holds no stream, or one that is invalid.
    """
    documents = [document for document in _documents(path) if document.get("kind") == KIND]
    if not documents:
        raise ResourceInvalid([f"{path}: there is no {KIND} in this file; write one, as in examples/orders.yaml."])
    return [parse_stream(document, str(path)) for document in documents]


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = path.read_text()
    except OSError as problem:
        raise ResourceInvalid(
            [f"{path}: the file cannot be read ({problem.strerror}); name one that can."]
        ) from problem
    except UnicodeDecodeError as problem:
        raise ResourceInvalid([f"{path}: the file is not UTF-8 text; name a YAML file."]) from problem
    try:
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict):
                yield document
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ResourceInvalid(
            [f"{line}: this is no YAML ({getattr(problem, 'problem', problem)}); correct it."]
        ) from problem


def _sentences(problem: ValidationError) -> Iterator[str]:
    for error in problem.errors(include_url=False):
        path = ".".join(str(part) for part in error["loc"])
        yield f"{path or 'the resource'}: {_what(error)}."


def _what(error: Any) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "this field is required; give it a value"
        case "extra_forbidden":
            return "there is no such field; remove it or correct its name"
        case "enum":
            return f"{error['input']!r} is not one of {context['expected']}"
        case "value_error":
            return str(context["error"])
        case "string_pattern_mismatch":
            return f"{error['input']!r} does not match {context['pattern']}"
        case _:
            shown = repr(error["input"])
            given = f" (it is {shown})" if len(shown) < 60 and not isinstance(error["input"], dict | list) else ""
            message = str(error["msg"]).removeprefix("Input ").rstrip(".")
            return message[0].lower() + message[1:] + given

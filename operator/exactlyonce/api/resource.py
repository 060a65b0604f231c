"""An ExactlyOnceStream as a document: read it from YAML and check it as the API server would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from exactlyonce.api.spec import StreamSpec
from exactlyonce.errors import Refused
from exactlyonce.schema.constraints import Broken, matches
from exactlyonce.schema.model import DNS_LABEL, Model
from exactlyonce.schema.yaml_loader import KubectlLoader

API_VERSION = "exactlyonce.dev/v1alpha1"
KIND = "ExactlyOnceStream"

ADOPT = "exactlyonce.dev/adopt"
FRESH = "exactlyonce.dev/fresh"
SETTLE_LOADS = "exactlyonce.dev/settle-loads"
RESET_OFFSETS = "exactlyonce.dev/reset-offsets"
ASKED_OF_A_PASS = (ADOPT, FRESH, SETTLE_LOADS, RESET_OFFSETS)
"""The annotations that a decision depends on."""


class ResourceInvalid(Refused):
    """A document is not a valid ExactlyOnceStream; `problems` has one sentence for each thing that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


NAME_MAX_LENGTH = 49
"""What is left of the 63 characters of a label or a host name beside `-driver-` and an attempt of six digits."""

NAME_RULE = matches(
    f"[a-z]([-a-z0-9]{{0,{NAME_MAX_LENGTH - 2}}}[a-z0-9])?",
    f"write metadata.name with at most {NAME_MAX_LENGTH} lowercase letters, digits and hyphens, a letter first and no hyphen "
    "last, so that pods and Services can be named after it",
)


class Metadata(Model):
    """The part of a Kubernetes object's metadata that a stream depends on."""

    name: Annotated[str, NAME_RULE] = Field(description="The stream's name.")
    namespace: Annotated[str, Field(max_length=63), matches(DNS_LABEL, "write a namespace's name")] = Field(
        "default", description="The stream's namespace."
    )
    annotations: dict[str, str] = Field(
        {}, description="Annotations; those that begin with exactlyonce.dev/ are requests from a person."
    )


class Stream(Model):
    """One ExactlyOnceStream."""

    metadata: Metadata = Field(description="Name, namespace and annotations.")
    spec: StreamSpec = Field(description="The desired state.")

    @property
    def stream_id(self) -> str:
        """The ledger's key: what the spec says, or `<namespace>/<name>`."""
        return self.spec.stream_id or f"{self.metadata.namespace}/{self.metadata.name}"


def parse_stream(document: Mapping[str, Any], where: str) -> Stream:
    """Turn a document into a stream; `where` says in errors where it stands.

    Raises:
        ResourceInvalid: with a sentence for each thing that is wrong.
    """
    require_kind(document, where)
    metadata = document.get("metadata")
    kept = (
        {key: metadata[key] for key in ("name", "namespace", "annotations") if key in metadata}
        if isinstance(metadata, dict)
        else {}
    )
    try:
        return Stream.model_validate({"metadata": kept, "spec": document.get("spec")})
    except ValidationError as problem:
        raise ResourceInvalid([f"{where}: {sentence}" for sentence in sentences_of(problem)]) from problem


def require_kind(document: Mapping[str, Any], where: str) -> None:
    """Require that a document is an ExactlyOnceStream of the version that is read here.

    Raises:
        ResourceInvalid: if it is anything else.
    """
    found = (document.get("apiVersion"), document.get("kind"))
    if found != (API_VERSION, KIND):
        raise ResourceInvalid(
            [f"{where}: this is {found[1]} of {found[0]}; write kind: {KIND} and apiVersion: {API_VERSION}."]
        )


def read_streams(path: Path) -> list[Stream]:
    """Read every ExactlyOnceStream of a YAML file; other documents in it are passed over.

    Raises:
        ResourceInvalid: if the file cannot be read, is no YAML, holds no stream, or one that is invalid.
    """
    return [parse_stream(document, str(path)) for document in stream_documents(path)]


def has_streams(path: Path) -> bool:
    """Whether a YAML file holds an ExactlyOnceStream.

    Raises:
        ResourceInvalid: if the file cannot be read, or is no YAML.
    """
    return any(document.get("kind") == KIND for document in documents_in(path))


def stream_documents(path: Path) -> list[Mapping[str, Any]]:
    """Return every ExactlyOnceStream of a YAML file as it is written there.

    Raises:
        ResourceInvalid: if the file cannot be read, is no YAML, or holds no stream.
    """
    documents = [document for document in documents_in(path) if document.get("kind") == KIND]
    if not documents:
        raise ResourceInvalid([f"{path}: there is no {KIND} in this file; write one, as in examples/orders.yaml."])
    return documents


def documents_in(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield every document of a YAML file that is an object.

    Raises:
        ResourceInvalid: if the file cannot be read, or is no YAML.
    """
    try:
        for document in yaml.load_all(text_of(path), KubectlLoader):
            if isinstance(document, dict):
                yield document
    except yaml.YAMLError as problem:
        raise _not_yaml(path, problem) from problem


def text_of(path: Path) -> str:
    """Return the text of a file, its line ends as they are.

    Raises:
        ResourceInvalid: if it cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as opened:
            return opened.read()
    except OSError as problem:
        raise ResourceInvalid(
            [f"{path}: the file cannot be read ({problem.strerror}); name one that can."]
        ) from problem
    except UnicodeDecodeError as problem:
        raise ResourceInvalid([f"{path}: the file is not UTF-8 text; name a YAML file."]) from problem


def _not_yaml(path: Path, problem: yaml.YAMLError) -> ResourceInvalid:
    """Return the error for a file that is no YAML, with the line."""
    mark = getattr(problem, "problem_mark", None)
    line = f"{path}:{mark.line + 1}" if mark else str(path)
    return ResourceInvalid([f"{line}: this is not YAML ({getattr(problem, 'problem', problem)}); correct it."])


def sentences_of(problem: ValidationError) -> Iterator[str]:
    """Yield a sentence for each thing that is wrong with a document: where, why, what to write instead."""
    errors = problem.errors(include_url=False)
    for error in errors:
        if error["type"] == "too_short" and any(_is_within(other["loc"], error["loc"]) for other in errors):
            continue  # it is short of the entries that are wrong, and those are told
        path = ".".join(str(part) for part in error["loc"])
        broken = error.get("ctx", {}).get("error")
        for sentence in broken.sentences if isinstance(broken, Broken) else [_what(error)]:
            yield f"{path or 'the resource'}: {sentence}."


def _is_within(inner: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _what(error: Any) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "this field is required; give it a value"
        case "extra_forbidden":
            return "there is no such field; remove it or correct its name"
        case "too_short":
            return f"give at least {context['min_length']}"
        case "too_long":
            return f"give at most {context['max_length']}; these are {context['actual_length']}"
        case "enum":
            return f"{error['input']!r} is not one of {context['expected']}"
        case "value_error":
            return str(context["error"])
        case _:
            shown = repr(error["input"])
            given = f" (it is {shown})" if len(shown) < 60 and not isinstance(error["input"], dict | list) else ""
            message = str(error["msg"]).removeprefix("Input ").rstrip(".")
            return message[0].lower() + message[1:] + given

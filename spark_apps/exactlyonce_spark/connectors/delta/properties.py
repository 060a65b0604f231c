"""What a table asks of its writers that this project does not do: such a table is refused. Performs no I/O.

Source: the Delta transaction protocol, "Requirements for Writers"; legacy writer versions (up to 6) ask by what is set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
    }
)
"""Features that ask nothing of who adds files, or only where a property or a column says so, which is looked at below."""

_LEGACY = 7

EXPIRES = "delta.setTransactionRetentionDuration"


def unwritable(
    writer_version: int, features: Collection[str], properties: Mapping[str, str | None], fields: Sequence[Any]
) -> str | None:
    """Return, as a clause, why a table may not be written here; None if it may.

    `fields` are those of the schema's JSON.
    """
    return next(_reasons(writer_version, features, properties, fields), None)


def _reasons(
    writer_version: int, features: Collection[str], properties: Mapping[str, str | None], fields: Sequence[Any]
) -> Iterator[str]:
    if writer_version > _LEGACY:
        yield f"it asks for writers of version {writer_version}"
    unknown = sorted(set(features) - _FEATURES)
    if unknown:
        yield f"it has the feature {unknown[0]}, which is not supported here"
    constraints = sorted(name for name in properties if name.startswith("delta.constraints."))
    if constraints:
        yield f"it has the constraint {constraints[0].removeprefix('delta.constraints.')}, which nobody would check here"
    if (properties.get("delta.columnMapping.mode") or "none") != "none":
        yield "it maps its columns to other names (delta.columnMapping.mode)"
    if properties.get(EXPIRES):
        yield f"{EXPIRES} is set, so the table would forget which batches it has"
    for field in fields:
        told = _reason_of(field)
        if told is not None:
            yield f"its column {field['name']} {told}"


def _reason_of(field: Any) -> str | None:
    metadata = field.get("metadata") or {}
    if not field.get("nullable", True) or _requires_values(field["type"]):
        return "is NOT NULL, which nobody would check here"
    if "delta.generationExpression" in metadata:
        return "is generated"
    if any(key.startswith("delta.identity.") for key in metadata):
        return "is an identity column"
    if "delta.invariants" in metadata:
        return "has an invariant, which nobody would check here"
    if "__CHAR_VARCHAR_TYPE_STRING" in metadata:
        return "has a limited length, which nobody would check here"
    return None


def _requires_values(type_: Any) -> bool:
    """Whether something within a type must not be NULL; keys of maps never are."""
    if not isinstance(type_, dict):
        return False
    if type_.get("containsNull") is False or type_.get("valueContainsNull") is False:
        return True
    fields = type_.get("fields", [])
    inner = [type_.get("elementType"), type_.get("keyType"), type_.get("valueType"), *(it["type"] for it in fields)]
    return any(not it.get("nullable", True) for it in fields) or any(map(_requires_values, inner))

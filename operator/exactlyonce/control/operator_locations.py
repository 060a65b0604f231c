"""Which folders on S3 and parts of tables the operator may reach with its own login, by namespace. Performs no I/O.

An administrator allows them (`checkpoints.locations` of the chart); nothing is allowed by default. A tenant names a location,
so both sides are taken apart and compared folder by folder: what is not in the one canonical form is allowed to nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from exactlyonce.control.namespace_lists import NAMESPACE, ServiceAllowance, entries_of
from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.places import BUCKET, FOLDER, S3_PREFIX, TABLE_PREFIX, Place, S3Place, has_no_dots

_FOLDER_OF_PREFIX = FOLDER.replace("*", "")
_TABLE = r"[a-z0-9-]{1,64}/[A-Za-z0-9_.-]{3,255}"
_FOLDERS_OF_PREFIX = rf"(/({_FOLDER_OF_PREFIX}|\{{namespace\}}))*/?"
_PREFIX = rf"(s3a?://{BUCKET}|{TABLE_PREFIX}{_TABLE}){_FOLDERS_OF_PREFIX}"


Prefix = Annotated[
    str,
    Field(max_length=1024),
    matches(
        _PREFIX,
        f"write s3a://bucket or s3a://bucket/folder, or {TABLE_PREFIX}region/table with or without /partition-key; {NAMESPACE} "
        "may stand for a whole folder and for nothing else, and there are no wildcards",
    ),
    Rule("true", has_no_dots, "write the folder without . and .. as parts of it"),
]


class Allowance(ServiceAllowance):
    """Some namespaces, and the folders and tables in which their streams may have what the operator itself reaches."""

    prefixes: tuple[Prefix, ...] = Field(min_length=1, description="Folders on S3, and tables or parts of them.")

    def allows(self, namespace: str, place: CanonicalPlace) -> bool:
        """Return whether a stream of this namespace may name this place."""
        return self.is_for(namespace, place.endpoint) and any(
            place.is_in(prefix, namespace) for prefix in self.prefixes
        )


@dataclass(frozen=True, slots=True)
class CanonicalPlace:
    """A location taken apart: nothing in it can mean two things to two programs.

    `store` is a bucket, or a region with a table; `folders` are those of the folder, or of the partition key.
    """

    endpoint: str | None
    scheme: str
    store: tuple[str, ...]
    folders: tuple[str, ...]

    @classmethod
    def of(cls, named: Place) -> CanonicalPlace | None:
        """Return the place that a stream names; None where that is not in the canonical form."""
        written, form = (S3_PREFIX, BUCKET) if isinstance(named, S3Place) else (TABLE_PREFIX, _TABLE)
        scheme, store, folders = _split(named.location)
        canonical = (
            named.location.startswith(written)
            and re.fullmatch(form, "/".join(store), re.ASCII) is not None
            and bool(folders)
            and all(_is_canonical(folder) for folder in folders)
        )
        return cls(named.endpoint, scheme, store, folders) if canonical else None

    def is_in(self, prefix: str, namespace: str) -> bool:
        """Return whether the place is the folder of a prefix or one below it, compared folder by folder."""
        scheme, store, written = _split(prefix.rstrip("/"))
        folders = tuple(namespace if folder == NAMESPACE else folder for folder in written)
        same_store = (self.scheme, self.store) == (scheme, store)
        return same_store and self.folders[: len(folders)] == folders


@dataclass(frozen=True, slots=True)
class OperatorLocations:
    """All that is allowed.

    `pathStyle` and a bucket's region have no say: a bucket's name is the same in all regions of a service. A table's region
    does: it is a part of what is compared.
    """

    allowances: tuple[Allowance, ...] = ()

    def allow(self, namespace: str, named: Place) -> bool:
        """Return whether the operator may reach what a stream of this namespace names with its own login."""
        place = CanonicalPlace.of(named)
        return place is not None and any(allowance.allows(namespace, place) for allowance in self.allowances)


NO_LOCATIONS = OperatorLocations()


def parse_locations(text: str) -> OperatorLocations:
    """Return what the operator is started with: a JSON list of allowances, or nothing.

    Raises:
        ListUnusable: with a sentence for each thing that is wrong.
    """
    return OperatorLocations(entries_of(text, _ALLOWANCES, "checkpoints.locations"))


_ALLOWANCES = TypeAdapter(tuple[Allowance, ...])


def _split(location: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return scheme, store and folders; `s3://`, as Amazon writes it, is the same place as `s3a://`."""
    for written, scheme, parts in ((S3_PREFIX, S3_PREFIX, 1), ("s3://", S3_PREFIX, 1), (TABLE_PREFIX, TABLE_PREFIX, 2)):
        if location.startswith(written):
            found = tuple(location.removeprefix(written).split("/"))
            return scheme, found[:parts], found[parts:]
    return "", (), ()


def _is_canonical(folder: str) -> bool:
    """Whether a folder's name is told as it is: not empty, neither . nor .., and without a percent sign."""
    return has_no_dots(folder) and re.fullmatch(FOLDER, folder, re.ASCII) is not None

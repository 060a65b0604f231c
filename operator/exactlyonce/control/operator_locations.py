"""Which folders on S3 the operator may reach with its own login, by namespace. Performs no I/O.

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
from exactlyonce.schema.places import BUCKET, FOLDER, S3_PREFIX, S3Place, has_no_dots

_FOLDER_OF_PREFIX = FOLDER.replace("*", "")
_PREFIX = rf"s3a?://{BUCKET}(/({_FOLDER_OF_PREFIX}|\{{namespace\}}))*/?"


Prefix = Annotated[
    str,
    Field(max_length=1024),
    matches(
        _PREFIX,
        f"write s3a://bucket or s3a://bucket/folder; {NAMESPACE} may stand for a whole folder and for nothing else, and there "
        "are no wildcards",
    ),
    Rule("true", has_no_dots, "write the folder without . and .. as parts of it"),
]


class Allowance(ServiceAllowance):
    """Some namespaces, and the folders in which their streams may have what the operator itself reaches."""

    prefixes: tuple[Prefix, ...] = Field(min_length=1, description="Folders on S3.")

    def allows(self, namespace: str, place: CanonicalPlace) -> bool:
        """Return whether a stream of this namespace may name this place."""
        return self.is_for(namespace, place.endpoint) and any(
            place.is_in(prefix, namespace) for prefix in self.prefixes
        )


@dataclass(frozen=True, slots=True)
class CanonicalPlace:
    """A location taken apart: nothing in it can mean two things to two programs."""

    endpoint: str | None
    bucket: str
    folders: tuple[str, ...]

    @classmethod
    def of(cls, named: S3Place) -> CanonicalPlace | None:
        """Return the place that a stream names; None where that is not in the canonical form."""
        bucket, folders = _split(named.location)
        canonical = (
            named.location.startswith(S3_PREFIX)
            and re.fullmatch(BUCKET, bucket, re.ASCII) is not None
            and bool(folders)
            and all(_is_canonical(folder) for folder in folders)
        )
        return cls(named.endpoint, bucket, folders) if canonical else None

    def is_in(self, prefix: str, namespace: str) -> bool:
        """Return whether the place is the folder of a prefix or one below it, compared folder by folder."""
        bucket, written = _split(prefix.rstrip("/"))
        folders = tuple(namespace if folder == NAMESPACE else folder for folder in written)
        return self.bucket == bucket and self.folders[: len(folders)] == folders


@dataclass(frozen=True, slots=True)
class OperatorLocations:
    """All that is allowed.

    `pathStyle` and a bucket's region have no say: a bucket's name is the same in all regions of a service.
    """

    allowances: tuple[Allowance, ...] = ()

    def allow(self, namespace: str, named: S3Place) -> bool:
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


def _split(location: str) -> tuple[str, tuple[str, ...]]:
    """Return bucket and folders; `s3://`, as Amazon writes it, is the same place as `s3a://`."""
    bucket, *folders = re.sub("^s3a?://", "", location).split("/")
    return bucket, tuple(folders)


def _is_canonical(folder: str) -> bool:
    """Whether a folder's name is told as it is: not empty, neither . nor .., and without a percent sign."""
    return has_no_dots(folder) and re.fullmatch(FOLDER, folder, re.ASCII) is not None

"""Why Doris has loaded no row, as a closed union: whether to wait, to halt or to blame the batch. Performs no I/O.

A backend writes the kind of an error in brackets before its message, and a frontend's refusal comes through it as
ANALYSIS_ERROR (be/src/common/status.h; FrontendServiceImpl.java, streamLoadPut). Older releases write the message alone, so
words count where no kind says more. Only messages about data hold text of records, and nothing but their kind is looked at: no
record chooses what its failure is taken for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from exactlyonce.bounded_text import one_line

_KIND = re.compile(r"\[(E-\d+|[A-Z_]+)\]")
_ROWS = re.compile(r"DATA_QUALITY_ERROR|too many filtered rows|encountered unqualified data", re.IGNORECASE)
"""The last one is what a row outside of every partition gave before release 2.1.5, with no filtered row.

Source: apache/doris#36831.
"""

_PASSING_CODES = (216, 223, 227, 232, 233, 235, 236, 240, 241, 242, 1603)
_PASSING_KINDS = frozenset(
    (
        *("MEM_LIMIT_EXCEEDED", "MEM_ALLOC_FAILED", "BUFFER_ALLOCATION_FAILED", "MINIMUM_RESERVATION_UNAVAILABLE"),
        *("PROCESS_MEMORY_EXCEEDED", "WORKLOAD_GROUP_MEMORY_EXCEEDED", "QUERY_MEMORY_EXCEEDED"),
        *("TIMEOUT", "THRIFT_RPC_ERROR", "NETWORK_ERROR", "HTTP_ERROR", "IO_ERROR", "NOT_MASTER", "UNINITIALIZED"),
        *("TOO_MANY_TASKS", "LIMIT_REACH", "TABLET_MISSING", "DELETE_BITMAP_LOCK_ERROR"),
        *(f"E-{code}" for code in _PASSING_CODES),
    )
)
"""Kinds of be/src/common/status.h that say something of servers, and not of rows: memory, disks, other servers, too many loads
or versions, and -1603, a schema change that is not finished."""

_PASSING_WORDS = re.compile(
    rf"(?<![\d-])-(?:235|1603)\b|\berr(?:or)?=-(?:{'|'.join(map(str, _PASSING_CODES))})\b"
    r"|too many versions|exceed limit: \d+, tablet"
    r"|current running txns on db \S+ is \d+, larger than limit"
    r"|read lock timeout|alive replica num|alive backends|(?:no|not enough) (?:\w+ )?(?:alive |available )?backend"
    r"|errCode = 3\b|schema ?change|state is not normal|not master|is not ready"
    r"|memory (?:limit )?exceed|exceed limit usage|timed? ?out|\bbrpc\b|\brpc\b|host is down|connection (?:refused|reset)"
    r"|cancelled: closed|failed to call frontend service|already stopped, skip waiting|failed to open tablet writer",
    re.IGNORECASE,
)
"""A backend wraps what another one answered, with its code or without: apache/doris#30381, #5334."""

_QUOTED = re.compile(r"'[^'\n]*'|`[^`\n]*`|\"[^\"\n]*\"")
_COLUMNS = re.compile(
    r"unknown (?:reference )?column|column has no default value|no matching function|can not found function|syntax error",
    re.IGNORECASE,
)
"""They come first, since a name in such a message may be any word."""
_DENIED = re.compile(
    r"access denied|privilege\(s\)|no valid basic authorization|unknown (?:table|database)|table not found|NOT_AUTHORIZED",
    re.IGNORECASE,
)
_SWITCHED_OFF = re.compile(r"two phase commit \(2pc\) for stream load was disabled", re.IGNORECASE)
_ABOUT_THE_LOAD = re.compile(r"\[(?:ANALYSIS_ERROR|INVALID_ARGUMENT|NOT_IMPLEMENTED_ERROR)\]|\berrCode = \d")
_MOST_OF_URL = 500


@dataclass(frozen=True, slots=True)
class RowsRefused:
    """Rows do not fit the table: `filtered` of them, 0 where it is not told; `listed_at` is where the server lists them."""

    filtered: int
    message: str
    listed_at: str = ""


@dataclass(frozen=True, slots=True)
class NotNow:
    """It passes by waiting: too many loads, no memory, a server that is away, a change of the schema that is under way."""

    message: str


@dataclass(frozen=True, slots=True)
class TwoPhasesOff:
    """The server does not do two phases."""


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """The login, its rights, or what is named: only a person can mend it, outside of the resource as a rule."""

    message: str


@dataclass(frozen=True, slots=True)
class LoadRefused:
    """A frontend refuses the load itself, whatever its rows are: its columns, its expressions, its headers."""

    message: str


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """A server took no row, for a reason that it tells and that no other class here covers."""

    message: str


LoadFailure: TypeAlias = RowsRefused | NotNow | TwoPhasesOff | NotAllowed | LoadRefused | NotLoaded


def failure_of_backend(found: Mapping[str, Any]) -> LoadFailure:
    """Return why a load failed, by the answer of the backend that was to take its rows."""
    said = str(found.get("Message") or "")[:10_000]
    filtered = found.get("NumberFilteredRows")
    count = filtered if isinstance(filtered, int) and filtered > 0 else 0
    refused = RowsRefused(count, _shown(said), one_line(found.get("ErrorURL") or "", _MOST_OF_URL))
    kind = _KIND.match(said)
    if kind is not None and kind[1] in _PASSING_KINDS:
        return NotNow(_shown(said))
    if _ROWS.search(said):  # before any other word is looked for: it may be one of a record
        return refused
    found_in_words = _by_words(said)
    if found_in_words is not None:
        return found_in_words
    if count:
        return refused
    return LoadRefused(_shown(said)) if _ABOUT_THE_LOAD.search(said) else NotLoaded(_shown(said))


def failure_of_frontend(said: str) -> LoadFailure:
    """Return why a frontend sends a load to no backend. It has seen no row, so no row is to blame."""
    return _by_words(said) or LoadRefused(_shown(said))


def _by_words(said: str) -> NotNow | TwoPhasesOff | NotAllowed | LoadRefused | None:
    if _COLUMNS.search(said):
        return LoadRefused(_shown(said))
    if _SWITCHED_OFF.search(said):
        return TwoPhasesOff()
    if _DENIED.search(said):
        return NotAllowed(_shown(said))
    return NotNow(_shown(said)) if _passes(said) else None


def _passes(said: str) -> bool:
    """Whether words of Doris' own say that waiting helps: not a name that it quotes, and not a stack trace."""
    own = _QUOTED.sub("", said.split("\n", 1)[0])
    return any(kind in _PASSING_KINDS for kind in _KIND.findall(own)) or _PASSING_WORDS.search(own) is not None


def _shown(said: str) -> str:
    return one_line(said or "no reason")

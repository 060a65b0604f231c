"""What a driver says as its last act: why it ended, on which batch and ranges. Performs no I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum

MAX_BYTES = 4096  # a Kubernetes termination message holds no more
_SHORTEST = 300  # characters; JSON writes each in at most 12 bytes of ASCII


class Ending(StrEnum):
    """Why a driver ended, by its own word."""

    DRAINED = "Drained"
    """It was asked to end and did so after the current batch."""
    COMPLETED = "Completed"
    """`trigger: availableNow` has landed what there was."""
    FINISHED = "Finished"
    """It ran no query: what earlier drivers had decided is committed, and what they had landed is shown."""
    FENCED = "Fenced"
    """It may not land any more: a successor was started."""
    BATCH_FAILED = "BatchFailed"
    """The current batch failed; it has not landed."""
    UNREACHABLE = "Unreachable"
    """The source, the ledger or the storage did not answer."""
    REFUSED = "Refused"
    """The resource asks for something that cannot be; trying again changes nothing."""
    FAILED = "Failed"
    """It failed outside of any batch."""


@dataclass(frozen=True, slots=True)
class LastMessage:
    """The last message of a driver; `ranges` is the JSON of the current batch.

    `too_large` says that the batch needed more memory or time than there is; `refused_rows` are those that the sink has counted
    of the load that failed. `case` names the error behind it as a CamelCase code; empty where it has no name. `advice` follows
    the message, and is never cut: a sentence of at most 200 ASCII characters; what is parsed has it in the message.
    """

    ending: Ending
    message: str
    batch: int | None = None
    ranges: str | None = None
    too_large: bool = False
    advice: str = ""
    refused_rows: int | None = None
    case: str = ""

    @property
    def whole_message(self) -> str:
        """The message with the advice."""
        return f"{self.message} {self.advice}".rstrip() if self.advice else self.message

    def render(self) -> str:
        """Return one JSON object of at most MAX_BYTES; the message is cut to fit, then the ranges are left out."""
        for ranges in (self.ranges, None):
            for length in (len(self.message), 1500, _SHORTEST):
                text = self._json(replace(self, message=self.message[:length]).whole_message, ranges)
                if len(text) <= MAX_BYTES:
                    return text
        raise AssertionError("the shortest message fits beside a reason and a number")

    def _json(self, message: str, ranges: str | None) -> str:
        fields = {
            "reason": str(self.ending),
            "batch": self.batch,
            "tooLarge": self.too_large or None,
            "refusedRows": self.refused_rows,
            "case": _code(self.case) or None,
            "ranges": None if ranges is None else json.loads(ranges),
            "error": message,
        }
        return json.dumps({key: value for key, value in fields.items() if value is not None})


def parse_last_message(text: str) -> LastMessage | None:
    """Return the last message in `text`, or None when it is empty, cut off or something else."""
    try:
        fields = json.loads(text)
        ranges = fields.get("ranges")
        return LastMessage(
            Ending(fields["reason"]),
            str(fields.get("error", "")),
            fields.get("batch"),
            None if ranges is None else json.dumps(ranges, separators=(",", ":")),
            fields.get("tooLarge") is True,
            refused_rows=_count(fields.get("refusedRows")),
            case=_code(fields.get("case")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _count(value: object) -> int | None:
    """Return a number of rows; what a driver says is a tenant's, and may be anything."""
    return value if type(value) is int and 0 < value < 1 << 63 else None


def _code(value: object) -> str:
    """Return a CamelCase code, or an empty text for anything else: what a driver says is a tenant's."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) else ""


_CODE = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_CUT = re.compile(
    r'\{"reason": "(\w+)"(?:, "batch": (\d+))?(, "tooLarge": true)?(?:, "refusedRows": ([1-9]\d{0,17})(?=,))?'
    r'(?:, "case": "([A-Z][A-Za-z0-9]{0,63})")?'
)


def parse_cut_message(text: str) -> LastMessage | None:
    """Return what is left of a last message whose end was cut off: a kubelet shortens the messages of a pod's containers."""
    found = _CUT.match(text)
    if found is None or found[1] not in {str(ending) for ending in Ending}:
        return None
    batch = None if found[2] is None else int(found[2])
    return LastMessage(
        Ending(found[1]),
        f"Its last message was cut short: {text[found.end() :].lstrip(', ')[:500]}",
        batch,
        too_large=found[3] is not None,
        refused_rows=None if found[4] is None else int(found[4]),
        case=found[5] or "",
    )

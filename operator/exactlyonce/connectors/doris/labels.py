"""Labels of loads as Doris takes them. Performs no I/O."""

from __future__ import annotations

import hashlib
import re

MOST_CHARACTERS = 128
_RULE = re.compile(r"[-_A-Za-z0-9:]{1,128}")
_REFUSED = re.compile(r"[^-_A-Za-z0-9:]")
_DIGEST_CHARACTERS = 16
_BEFORE_DIGEST = "_sha256-"
_ENDS_LIKE_A_DIGEST = re.compile(rf"{_BEFORE_DIGEST}[0-9a-f]{{{_DIGEST_CHARACTERS}}}$")


class LabelUnfit(ValueError):
    """The published rule gives a label that Doris does not take; `str()` says which."""


def is_label(text: str) -> bool:
    """Whether Doris takes a text as a label."""
    return _RULE.fullmatch(text) is not None


def as_label(text: str) -> str:
    """Return a text as a label: itself where Doris takes it, otherwise what can be kept of it and a digest of the whole.

    Different texts have different labels.
    """
    if is_label(text) and _ENDS_LIKE_A_DIGEST.search(text) is None:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    kept = _REFUSED.sub("_", text)[: MOST_CHARACTERS - _DIGEST_CHARACTERS - len(_BEFORE_DIGEST)]
    return f"{kept}{_BEFORE_DIGEST}{digest}"


def compatible_label(checkpoint_location: str, batch: int, partition: int) -> str:
    """Return the label of a batch's partition by the published rule of `labelFormat: Compatible`.

    The checkpoint's location, the batch and the partition are joined by `_`; each of `-`, `|`, `/`, `:` and `.` becomes `_`;
    runs of `_` become one; the last 128 characters count. Such a label says nothing of epoch and run: two runs of one task
    share it, and so may two streams (`may_meet`).

    Raises:
        LabelUnfit: if the location has other characters that Doris takes in no label.
    """
    label = _by_rule(f"{checkpoint_location}_{batch}_{partition}")
    if not is_label(label):
        raise LabelUnfit(
            f"labelFormat: Compatible makes the label {label!r} of the checkpoint's location, and Doris takes letters, digits, "
            "-, _ and : alone; use labelFormat: Default, or a location without other characters."
        )
    return label


def may_meet(location: str, other_location: str) -> bool:
    """Whether loads of two checkpoint locations can share a label of `Compatible`, where the rule makes the same text of both.

    Then Doris refuses one stream's rows as loaded before. Locations that are cut are told by what is in each label.
    """
    one, other = _by_rule(f"{location}_"), _by_rule(f"{other_location}_")
    if min(len(one), len(other)) < KEPT_OF_LOCATION:
        return one == other
    return one[-KEPT_OF_LOCATION:] == other[-KEPT_OF_LOCATION:]


def is_cut(location: str) -> bool:
    """Whether the beginning of a location may be missing in its labels of `Compatible`."""
    return len(_by_rule(f"{location}_")) > KEPT_OF_LOCATION


KEPT_OF_LOCATION = MOST_CHARACTERS - len(f"{(1 << 63) - 1}_{(1 << 31) - 1}")
"""So much of a location's end is in each of its labels, however large batch and partition are."""


def _by_rule(text: str) -> str:
    return re.sub(r"_+", "_", re.sub(r"[-|/:.]", "_", text))[-MOST_CHARACTERS:]

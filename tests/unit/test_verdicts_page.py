"""docs/verdicts.md, the code and `exactlyonce explain` name the same verdicts, reasons and endings, neither more nor fewer."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from exactlyonce.api.conditions import NO_PROGRESS
from exactlyonce.cli import explain
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict, parse_pod_verdict
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.verdicts import (
    Action,
    ContradictionReason,
    Decision,
    RebuildReason,
    Verdict,
    kind_of,
    reason_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"


def first_cells(heading: str) -> list[str]:
    """The first cell of each row of the table under a heading of the page."""
    section = re.search(rf"^##? {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no heading {heading}"
    rows = [line for line in section[1].splitlines() if line.startswith("|")]
    return [row.strip("|").split(" | ")[0].strip() for row in rows[2:]]


def codes(heading: str) -> list[str]:
    """What stands between backticks in those cells."""
    return [code for cell in first_cells(heading) for code in re.findall(r"`(\w+)`", cell)]


def test_every_verdict_has_one_row_and_every_row_a_verdict() -> None:
    assert sorted(re.findall(r"\*\*(\w+)\*\*", " ".join(first_cells("Verdicts")))) == sorted(
        verdict.__name__ for verdict in get_args(Verdict)
    )


def test_every_contradiction_has_one_row_with_its_code_and_every_row_a_contradiction() -> None:
    assert sorted(codes("Contradictions")) == sorted(map(str, ContradictionReason))


def test_every_reason_to_rebuild_has_one_row_with_its_code_and_every_row_a_reason() -> None:
    assert sorted(codes("Reasons to rebuild")) == sorted(map(str, RebuildReason))


def test_every_ending_that_last_message_can_name_has_a_row() -> None:
    named = {word.strip() for cell in first_cells("Endings of a driver") for word in cell.split(",")}
    assert {str(ending) for ending in Ending} <= named
    assert named - {str(ending) for ending in Ending} == {"Died", "Lost", NO_PROGRESS}, (
        "those that nobody left a word about"
    )


def examples(kind: Any) -> list[Any]:
    """Values of a type, made from its annotations; one for each member where an enumeration decides what is shown."""
    if isinstance(kind, typing.NewType):
        return examples(kind.__supertype__)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return [None] if type(None) in get_args(kind) else examples(get_args(kind)[0])
    if origin is tuple:
        return [()]
    if origin in (dict, Mapping) or kind is Any:
        return [{}]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)
    if is_dataclass(kind):
        return instances(kind)
    return [kind()]


def instances(kind: Any) -> list[Any]:
    """One instance of a dataclass for each member of its enumerations, whatever fields it has."""
    hints = get_type_hints(kind)
    values = {field.name: examples(hints[field.name]) for field in fields(kind) if field.init}
    most = max(map(len, values.values()), default=1)
    return [
        kind(**{name: found[min(number, len(found) - 1)] for name, found in values.items()}) for number in range(most)
    ]


EVERY_VERDICT = [verdict for kind in get_args(Verdict) for verdict in instances(kind)]
EVERY_ACTION = [action for kind in get_args(Action) for action in instances(kind)]


def shown_codes(verdict: Any) -> list[str]:
    """The enumerations that a verdict carries: what a person may search the page for."""
    return [str(value) for field in fields(verdict) if isinstance(value := getattr(verdict, field.name), StrEnum)]


@pytest.mark.parametrize(
    "verdict", EVERY_VERDICT, ids=lambda verdict: "-".join([kind_of(verdict), *shown_codes(verdict)])
)
def test_explain_shows_every_verdict_with_the_code_that_the_page_has(verdict: Any) -> None:
    decision = Decision(verdict)
    document = json.loads(json.dumps(explain.as_data("shop/orders", decision, Epoch(3)), default=str))
    line = next(line for line in explain.as_text("shop/orders", decision, None).splitlines() if "Verdict" in line)
    assert reason_of(verdict) == next(iter(shown_codes(verdict)), None)
    assert (document["verdict"], document["reason"]) == (kind_of(verdict), reason_of(verdict))
    assert re.findall(r"[A-Z]\w+", line) == ["Verdict", kind_of(verdict), *shown_codes(verdict)]


@pytest.mark.parametrize("action", EVERY_ACTION, ids=lambda action: type(action).__name__)
def test_explain_has_words_for_every_action(action: Any) -> None:
    decision = Decision(EVERY_VERDICT[0], (action,))
    assert re.search(r"^  1\. [a-z].{10,}", explain.as_text("shop/orders", decision, None), re.MULTILINE)


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut short"])
def test_the_code_of_a_verdict_that_was_made_in_a_pod_reaches_the_operator(cut: bool) -> None:
    text = PodVerdict(Outcome.HALTS, "Words.", "Contradiction", landed=4, reason="OtherOwner").render()
    word = parse_pod_verdict(text[:-3] if cut else text)
    assert word is not None
    assert (word.kind, word.reason, word.landed) == ("Contradiction", "OtherOwner", 4)

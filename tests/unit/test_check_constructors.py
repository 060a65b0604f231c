"""Lint names classes that are made of more than six things that are not data."""

from __future__ import annotations

import ast

from scripts.check_constructors import aliases_in, classes_in, problems

DATA = """
Number = NewType("Number", int)
Names = Mapping[str, Number]

class Colour(StrEnum):
    RED = "Red"

@dataclass(frozen=True)
class Point:
    x: int
    y: Number
    colour: Colour = Colour.RED
"""


def found(text: str) -> list[str]:
    tree = ast.parse(DATA + text)
    return list(problems(dict(classes_in("made.py", tree)), dict(aliases_in(tree))))


def test_data_is_not_counted_however_much_there_is() -> None:
    fields = "\n".join(f"    field_{number}: tuple[Point, ...] | Names | None = None" for number in range(9))

    assert found(f"@dataclass(frozen=True)\nclass Large:\n{fields}\n    client: Client\n") == []


def test_seven_things_that_are_not_data_are_too_many_for_a_constructor_and_for_a_dataclass() -> None:
    arguments = ", ".join(f"client_{number}: Client" for number in range(6))
    fields = "\n".join(f"    client_{number}: Client" for number in range(6))

    assert found(f"class Six:\n    def __init__(self, {arguments}) -> None: ...\n") == []
    (of_class,) = found(f"class Seven:\n    def __init__(self, {arguments}, done: Callable[[], int]) -> None: ...\n")
    (of_fields,) = found(
        f"@dataclass\nclass Seven:\n{fields}\n    stopped: Point = field()\n    done: Callable[[], int]\n"
    )
    assert of_class.startswith("made.py:")
    assert "Seven is made of 7, at most 6 are" in of_class
    assert of_fields.endswith("client_5, done")


def test_fields_that_nobody_passes_are_not_counted() -> None:
    fields = "\n".join(
        f"    client_{number}: Client = field(default_factory=Client, init=False)" for number in range(9)
    )

    assert found(f"@dataclass\nclass Inside:\n{fields}\n    _known: Client = field(default_factory=Client)\n") == []

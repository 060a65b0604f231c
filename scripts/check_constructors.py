"""Find classes that are made of more than six things that are not data: whoever needs that many has more than one task.

`python -m scripts.check_constructors` names file, class and arguments. Data are numbers, texts, times, enums, containers of
data, and frozen dataclasses, models and named tuples whose fields are data. What is not: clients, stores, functions, anything
with a life of its own. `ALLOWED` has the exemptions, each with its reason.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.generated import ROOT

MOST = 6
WHERE = ("operator/exactlyonce", "spark_apps/exactlyonce_spark")
ALLOWED: dict[str, str] = {}
"""Classes by name, and why each may be made of more."""

_PLAIN = {
    "bool", "bytes", "date", "datetime", "float", "int", "str", "timedelta", "Path", "UUID", "None", "type",
    "Annotated", "ClassVar", "Collection", "Iterable", "Literal", "Mapping", "Optional", "Sequence", "Set",
    "dict", "frozenset", "list", "set", "tuple",
}  # fmt: skip
_BASES_OF_DATA = {"Enum", "IntEnum", "Model", "NamedTuple", "StrEnum"}


@dataclass(frozen=True)
class Class:
    """A class as it is written: its bases, the names in each argument of its constructor, and whether that is frozen."""

    path: str
    line: int
    bases: frozenset[str]
    arguments: tuple[tuple[str, frozenset[str]], ...]
    frozen: bool


def classes_in(path: str, tree: ast.Module) -> Iterator[tuple[str, Class]]:
    """Yield the classes of a module, by name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        decorations = [ast.unparse(decorator) for decorator in node.decorator_list]
        is_dataclass = any(decoration.startswith("dataclass") for decoration in decorations)
        frozen = is_dataclass and any("frozen=True" in decoration for decoration in decorations)
        bases = frozenset(ast.unparse(base).split("[")[0] for base in node.bases)
        yield node.name, Class(path, node.lineno, bases, tuple(_arguments(node, is_dataclass=is_dataclass)), frozen)


def aliases_in(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what a module calls types by other names: `Epoch = NewType("Epoch", int)`, `Origins = Mapping[…]`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id[0].isupper():
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "NewType":
                yield target.id, _names(node.value.args[1])
            elif isinstance(node.value, ast.Subscript | ast.BinOp | ast.Name):
                yield target.id, _names(node.value)


def _arguments(node: ast.ClassDef, *, is_dataclass: bool) -> Iterator[tuple[str, frozenset[str]]]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            for argument in (*item.args.posonlyargs, *item.args.args[1:], *item.args.kwonlyargs):
                yield argument.arg, _names(argument.annotation)
        elif is_dataclass and isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            given = "" if item.value is None else ast.unparse(item.value)
            names = _names(item.annotation)
            if "init=False" not in given and "ClassVar" not in names and not item.target.id.startswith("_"):
                yield item.target.id, names


def _names(annotation: ast.expr | None) -> frozenset[str]:
    """Return the names of types in an annotation; a function's own types say nothing of it."""
    if annotation is None:
        return frozenset({"object"})
    found = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return frozenset({"Callable"} if "Callable" in found else found)


def problems(classes: dict[str, Class], aliases: dict[str, frozenset[str]]) -> Iterator[str]:
    """Yield a sentence for each class that is made of too much."""
    data = set(_PLAIN)
    while (
        more := {
            *(name for name, names in aliases.items() if names <= data),
            *(name for name, found in classes.items() if found.bases & _BASES_OF_DATA),
            *(name for name, found in classes.items() if found.bases & data & classes.keys()),
            *(
                name
                for name, found in classes.items()
                if found.frozen and all(names <= data for _, names in found.arguments)
            ),
        }
        - data
    ):
        data |= more
    for name, found in classes.items():
        others = [argument for argument, names in found.arguments if not names <= data]
        if len(others) > MOST and name not in ALLOWED and name not in data:
            yield f"{found.path}:{found.line}: {name} is made of {len(others)}, at most {MOST} are: {', '.join(others)}"


def main() -> int:
    """Print what was found; 1 if anything was, or an exemption is no longer needed."""
    classes: dict[str, Class] = {}
    aliases: dict[str, frozenset[str]] = {}
    for folder in WHERE:
        for path in sorted(Path(ROOT, folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            classes |= dict(classes_in(str(path.relative_to(ROOT)), tree))
            aliases |= dict(aliases_in(tree))
    found = [
        *problems(classes, aliases),
        *(f"{name} is no class; take it out" for name in ALLOWED if name not in classes),
    ]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

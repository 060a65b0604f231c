"""Small wrong changes of a module's source, one at a time: what a reviewer would hope that some test notices.

Operators: comparisons and `and`/`or` exchanged, a `not` taken away, conditions turned round, integers off by one, True for
False, `+` for `-`, a returned value replaced by None, a statement or a raise taken away. Text is left alone, and so are
assertions, annotations and decorators, and calls that are there for a test or a type checker alone: nothing may depend on them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip

_FOR_CHECKS = frozenset({"reached", "assert_never"})
"""Named crash points, of which a test compares the list with the code, and what a type checker proves never to run."""


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of one file: the bytes `[start, end)` replaced."""

    file: Path
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied_to(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_short(self.before)} -> {_short(self.after)}"


def mutants_of(file: Path, source: bytes) -> list[Mutant]:
    """Return every mutant of a file that still compiles, in order."""
    made = set(_Mutator(file, source).of(ast.parse(source)))
    return sorted(mutant for mutant in made if _compiles(mutant.applied_to(source)))


@dataclass
class _Mutator:
    """Walks a module and yields its mutants."""

    file: Path
    source: bytes

    def __post_init__(self) -> None:
        self._starts = [0]
        for line in self.source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.AST) -> Iterator[Mutant]:
        """Yield the mutants at and below a node."""
        if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom) or _is_for_checks(node):
            return
        yield from self._of_expression(node)
        yield from self._of_value_or_statement(node)
        skipped = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        skipped += getattr(node, "decorator_list", [])
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            return  # what it says; the whole of it is taken away above
        for child in ast.iter_child_nodes(node):
            if child not in skipped:
                yield from self.of(child)

    def _of_expression(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
                text = f"{self._text(left)} {_COMPARISONS[type(operator)]} {self._text(right)}"
                yield self._instead_of(node, text)
            case ast.BoolOp(op=operator, values=values):
                word = " or " if isinstance(operator, ast.And) else " and "
                yield self._instead_of(node, "(" + word.join(f"({self._text(value)})" for value in values) + ")")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._instead_of(node, f"({self._text(operand)})")
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                if not isinstance(test, ast.UnaryOp | ast.Compare):  # those are turned round by themselves
                    yield self._instead_of(test, f"(not ({self._text(test)}))")
            case _:
                return

    def _of_value_or_statement(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Constant(value=bool(value)):
                yield self._instead_of(node, str(not value))
            case ast.Constant(value=int(value)):
                yield self._instead_of(node, str(value + 1))
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
                sign = "-" if isinstance(operator, ast.Add) else "+"
                yield self._instead_of(node, f"({self._text(left)} {sign} {self._text(right)})")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self._instead_of(node, "return None")
            case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Delete():
                yield self._instead_of(node, "pass")
            case _:
                return

    def _instead_of(self, node: ast.expr | ast.stmt, text: str) -> Mutant:
        start, end = self._place(node.lineno, node.col_offset), self._end(node)
        return Mutant(self.file, node.lineno, start, end, self.source[start:end].decode(), text)

    def _text(self, node: ast.expr) -> str:
        return self.source[self._place(node.lineno, node.col_offset) : self._end(node)].decode()

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


def _is_for_checks(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
            return name in _FOR_CHECKS
        case _:
            return False


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _short(text: str) -> str:
    words = " ".join(text.split())
    return f"`{words if len(words) <= 90 else words[:87] + '...'}`"

"""The statements of broker load, parsed: `LOAD LABEL … WITH S3` and `SHOW LOAD`. Nothing else of SQL is known here.

docs/sql-manual/sql-statements/data-modification/load-and-export/BROKER-LOAD.md and SHOW-LOAD.md: the syntax.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.doris.transactions import Refused

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|`(?P<name>(?:[^`]|``)*)`"
    r"|(?P<word>[A-Za-z_][\w]*)|(?P<mark>[(),=.;]))",
    re.DOTALL,
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "Z": "\x1a"}


@dataclass(frozen=True)
class LoadStatement:
    """`LOAD LABEL`: one file into one table. `format_properties` are those of the file, `properties` those of the load."""

    database: str
    label: str
    file: str
    table: str
    format: str
    columns: tuple[str, ...]
    format_properties: Mapping[str, str]
    storage: Mapping[str, str] = field(repr=False)
    properties: Mapping[str, str]
    sequence: str = ""


@dataclass(frozen=True)
class ShowStatement:
    """`SHOW LOAD FROM db WHERE LABEL = …`."""

    database: str
    label: str


def parsed_load(statement: str) -> LoadStatement:
    """Return what a `LOAD LABEL` says.

    Raises:
        Refused: if it is no such statement.
    """
    tokens = _Tokens(statement)
    tokens.words("LOAD", "LABEL")
    database = tokens.name()
    tokens.mark(".")
    label = tokens.name()
    tokens.mark("(")
    tokens.words("DATA", "INFILE")
    tokens.mark("(")
    file = tokens.text()
    tokens.mark(")")
    tokens.words("INTO", "TABLE")
    table = tokens.name()
    kind = "csv"
    if tokens.next_is("FORMAT"):
        tokens.words("FORMAT", "AS")
        kind = tokens.text()
    columns = tokens.names() if tokens.next_is("(") else ()
    sequence = ""
    if tokens.next_is("ORDER"):
        tokens.words("ORDER", "BY")
        sequence = tokens.name()
    of_format = tokens.properties() if tokens.next_is("PROPERTIES") else {}
    tokens.mark(")")
    tokens.words("WITH", "S3")
    storage = tokens.pairs()
    properties = tokens.properties() if tokens.next_is("PROPERTIES") else {}
    tokens.end()
    return LoadStatement(database, label, file, table, kind, columns, of_format, storage, properties, sequence)


def parsed_show(statement: str) -> ShowStatement:
    """Return what a `SHOW LOAD` says.

    Raises:
        Refused: if it is no such statement.
    """
    tokens = _Tokens(statement)
    tokens.words("SHOW", "LOAD", "FROM")
    database = tokens.name()
    tokens.words("WHERE", "LABEL")
    tokens.mark("=")
    label = tokens.text()
    tokens.end()
    return ShowStatement(database, label)


class _Tokens:
    """What is left of a statement."""

    def __init__(self, statement: str) -> None:
        self._statement, self._place = statement, 0

    def words(self, *words: str) -> None:
        for word in words:
            if self._next("word").upper() != word:
                raise self._unexpected()

    def mark(self, mark: str) -> None:
        if self._next("mark") != mark:
            raise self._unexpected()

    def name(self) -> str:
        return self._next("name").replace("``", "`")

    def text(self) -> str:
        quoted = self._next("text")
        return re.sub(r"\\(.)", lambda one: _ESCAPED.get(one[1], one[1]), quoted[1:-1], flags=re.DOTALL)

    def names(self) -> tuple[str, ...]:
        self.mark("(")
        found = [self.name()]
        while self.next_is(","):
            self.mark(",")
            found.append(self.name())
        self.mark(")")
        return tuple(found)

    def properties(self) -> dict[str, str]:
        self.words("PROPERTIES")
        return self.pairs()

    def pairs(self) -> dict[str, str]:
        self.mark("(")
        found = dict([self._pair()])
        while self.next_is(","):
            self.mark(",")
            found |= dict([self._pair()])
        self.mark(")")
        return found

    def next_is(self, token: str) -> bool:
        found = _TOKEN.match(self._statement, self._place)
        return found is not None and (found["word"] or found["mark"] or "").upper() == token

    def end(self) -> None:
        if self._statement[self._place :].strip(" \n;"):
            raise self._unexpected()

    def _pair(self) -> tuple[str, str]:
        key = self.text()
        self.mark("=")
        return key, self.text()

    def _next(self, kind: str) -> str:
        found = _TOKEN.match(self._statement, self._place)
        if found is None or found[kind] is None:
            raise self._unexpected()
        self._place = found.end()
        return str(found[kind])

    def _unexpected(self) -> Refused:
        # fe/fe-core/…/nereids/parser: a ParseException shows the statement from there on.
        return Refused(f"errCode = 2, detailMessage = \nmismatched input at {self._place}\n")

"""A frontend's query port, where broker loads are submitted and asked about, by MySQL's protocol. No pyspark here.

PyMySQL sends a statement once: it opens no connection again and repeats nothing. No message has the password or a statement,
since a statement may have a login in it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pymysql
import pymysql.cursors
from pymysql.constants import CR

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.doris.answers import Unreadable
from exactlyonce.connectors.doris.broker_answers import Job, is_refused_statement, is_statement_for_later, job_of
from exactlyonce_spark.connectors.doris.client import DorisRefused, DorisUnreachable, Login
from exactlyonce_spark.connectors.doris.exchange import CONNECT_SECONDS, Node, NotTrusted
from exactlyonce_spark.sql_text import quoted

_MOST_JOBS = 100
_SECONDS = re.compile(r"([0-9]{1,12})(?:\.[0-9]{1,9})?")
"""What UNIX_TIMESTAMP() gives: a whole number, or a decimal in some releases."""
_SHORTEST_HIDDEN = 4
"""Shorter values, such as a session token that is empty or `true`, would hide half of each message."""
_MAY_SHOW_STATEMENT = re.compile(
    r"load\s+label|data\s+infile|with\s+s3|s3\.|== SQL|syntax error|mismatched|extraneous|viable", re.IGNORECASE
)
_T = TypeVar("_T")


class StatementRefused(Exception):
    """Doris makes no job of a statement; `str()` is its reason, on one line."""


class TooManyJobs(Exception):
    """Doris makes no job of a statement as long as so many others wait; `str()` is its reason, on one line."""


@dataclass(frozen=True)
class QueryClient:
    """The frontends by their query port; the first one that answers is asked, or has the master answer.

    With a `context`, nothing is said but by TLS, to a server that it trusts. `hidden` are values that are taken out of whatever
    Doris says of a load, such as a login that stands in statements.
    """

    frontends: tuple[Node, ...]
    login: Login
    database: str
    request_seconds: float = 30.0
    hidden: Sequence[str] = field(default=(), repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)

    def now_milliseconds(self) -> int:
        """Return the frontend's clock, in Unix milliseconds; it counts whole seconds.

        Raises:
            DorisUnreachable, DorisRefused: as they say.
        """

        def time(cursor: Any) -> int:
            cursor.execute("SELECT UNIX_TIMESTAMP()")
            row = cursor.fetchone()
            found = _SECONDS.fullmatch(str(next(iter(row.values()), ""))) if row else None
            if found is None:
                raise Unreadable("no time")
            return int(found[1]) * 1000

        return self._asked(time)

    def job(self, label: str) -> Job:
        """Return what has become of a label, as the master knows it.

        A frontend that is not the master may know less, and is told to ask it (`forward_to_master`).

        Raises:
            DorisUnreachable, DorisRefused: as they say.
        """

        def found(cursor: Any) -> Job:
            cursor.execute("SET forward_to_master = true")
            database = quoted(self.database).replace("%", "%%")
            cursor.execute(f"SHOW LOAD FROM {database} WHERE LABEL = %s", (label,))
            rows = cursor.fetchmany(_MOST_JOBS)
            return job_of([self._told(row) for row in rows], label)

        return self._asked(found)

    def submit(self, statement: str, values: Sequence[str]) -> None:
        """Send a statement that makes a job, once.

        Raises:
            StatementRefused, TooManyJobs: if Doris answers that it makes none.
            DorisUnreachable: if nothing was sent, or if it was sent and nothing is known of it.
        """
        with self._connected() as connection:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(statement, values)
            except pymysql.err.MySQLError as problem:
                code, said = _told(problem)
                if not _is_of_client(code) and is_statement_for_later(said):
                    raise TooManyJobs(one_line(hidden_in(said, self.hidden))) from None
                if not _is_of_client(code) and is_refused_statement(code, said):
                    raise StatementRefused(_of_statement(said, self.hidden)) from None
                raise DorisUnreachable(
                    "Doris was sent a broker load, and does not say that it has taken it "
                    f"({code} {_of_statement(said, self.hidden)}); the next driver finds out."
                ) from None

    def _asked(self, question: Callable[[Any], _T]) -> _T:
        """Return the answer of the first frontend that gives one; a question may be asked again."""
        problems = []
        for node in self.frontends:
            try:
                with closing(self._connection(node)) as one, one.cursor(pymysql.cursors.DictCursor) as cursor:
                    return question(cursor)
            except pymysql.err.MySQLError as problem:
                problems.append(f"{node}: {self._problem(node, problem)}")
            except Unreadable as problem:
                problems.append(f"{node}: it answered what Doris never does ({problem})")
        raise DorisUnreachable(
            f"No frontend of Doris answers at its query port ({'; '.join(problems)}). Check sink.doris.queryPort and frontends."
        )

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        problems = []
        for node in self.frontends:
            try:
                connection = self._connection(node)
            except pymysql.err.MySQLError as problem:
                problems.append(f"{node}: {self._problem(node, problem)}")
            else:
                with closing(connection):
                    yield connection
                return
        raise DorisUnreachable(
            f"No frontend of Doris answers at its query port ({'; '.join(problems)}). Check sink.doris.queryPort and frontends."
        )

    def _problem(self, node: Node, problem: pymysql.err.MySQLError) -> str:
        """Return what another frontend may not say.

        Raises:
            DorisRefused: if each of them would say the same, or if one is not trusted, which a person has to look at.
        """
        if isinstance(cause := getattr(problem, "original_exception", None), ssl.SSLCertVerificationError):
            raise DorisRefused(str(NotTrusted(node, cause))) from None
        code, said = _told(problem)
        if not _is_of_client(code) and is_refused_statement(code, said):
            raise self._refused(said) from None
        return _shown(code, said)

    def _connection(self, node: Node) -> Any:
        return pymysql.connect(
            host=node.host,
            port=node.port,
            user=self.login.user,
            password=self.login.password.encode(),
            charset="utf8mb4",
            autocommit=None,
            connect_timeout=int(CONNECT_SECONDS),
            read_timeout=self.request_seconds,
            write_timeout=self.request_seconds,
            ssl=self.context,
        )

    def _told(self, row: Mapping[str, object]) -> dict[str, object]:
        return {name: hidden_in(told, self.hidden) if isinstance(told, str) else told for name, told in row.items()}

    def _refused(self, said: str) -> DorisRefused:
        return DorisRefused(f"Doris refuses {self.login.user} at its query port: {one_line(said)}.")


def _told(problem: pymysql.err.MySQLError) -> tuple[int, str]:
    """Return the number and the words of an error; 0 where it has no number."""
    code = problem.args[0] if problem.args and isinstance(problem.args[0], int) else 0
    return code, str(problem.args[-1]) if problem.args else ""


def _is_of_client(code: int) -> bool:
    """Whether no server has said it: a connection that was not made, or that ended."""
    return code == 0 or CR.CR_ERROR_FIRST <= code <= CR.CR_ERROR_LAST


def hidden_in(text: str, values: Iterable[str]) -> str:
    """Return a text of a server's without values that are not to be told."""
    for value in sorted({value.strip() for value in values}, key=len, reverse=True):
        if len(value) >= _SHORTEST_HIDDEN:
            text = text.replace(value, "***")
    return text


def _of_statement(said: str, values: Iterable[str]) -> str:
    """Return what a server says of a statement, but for the statement itself, which it may show a part of."""
    if _MAY_SHOW_STATEMENT.search(said):
        return "it does not understand the statement"
    return one_line(hidden_in(said, values))


def _shown(code: int, said: str) -> str:
    return f"{code} {one_line(said, 120)}"


def literal_properties(properties: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return `("key" = %s, …)` with its values; the keys are constants of ours."""
    return f"({', '.join(f'{_key(name)} = %s' for name in properties)})", list(properties.values())


def _key(name: str) -> str:
    return f'"{name}"'

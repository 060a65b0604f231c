"""Stream load in two phases, as executors and the driver speak it. No pyspark here.

Each request goes to a frontend first, without rows: it says which backend takes them, or answers itself. No message has the
password.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar
from urllib.parse import quote

from exactlyonce.connectors.doris.answers import (
    Denied,
    LabelState,
    LoadAnswer,
    SettledAnswer,
    Unreadable,
    data_of,
    label_state,
    load_answer,
    settled_answer,
)
from exactlyonce.connectors.doris.table import DorisTable, table_of
from exactlyonce.errors import OutcomeUnknown, RefusedOutside, Unreachable
from exactlyonce_spark.connectors.doris.exchange import Answer, NoAnswer, Node, NotConnected, Request, exchange
from exactlyonce_spark.connectors.doris.redirects import (
    RedirectRefused,
    address_of,
    address_of_redirected,
    redirected,
)

_REDIRECTS = (301, 302, 303, 307, 308)
_REFUSALS = {
    401: "the login is wrong",
    403: "the login is wrong",
    404: "the server does not know this request; loads in two phases need Doris 1.0 or later",
}
_T = TypeVar("_T")

Body = Callable[[], Iterable[bytes]]
"""Gives the bytes of a load, the same ones each time it is called."""


class DorisUnreachable(Unreachable):
    """No server of Doris answered in time, and nothing was asked of it that lasts."""


class DorisRefused(RefusedOutside):
    """Doris refuses: a login, a right, a table that is not there, rows that do not fit."""


class LoadUnanswered(OutcomeUnknown):
    """A load was sent and no answer came: it may be prepared, or may be yet."""


class Operation(Enum):
    """What is asked of a transaction that is prepared."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class Login:
    """A user and its password."""

    user: str
    password: str = field(repr=False)

    @property
    def header(self) -> str:
        """The value of the header by which HTTP tells it."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class DorisClient:
    """A table of Doris, by its frontends; the first one that answers is asked.

    `computed` are the columns that Doris computes of those that are sent, each with its expression.
    """

    frontends: tuple[Node, ...]
    login: Login
    database: str
    table: str
    request_seconds: float = 30.0
    load_seconds: float = 600.0
    properties: Mapping[str, str] = field(default_factory=dict)
    computed: Sequence[tuple[str, str]] = ()

    def load(self, label: str, columns: Sequence[str], body: Body) -> LoadAnswer:
        """Send JSON lines with these columns under a label, to be prepared.

        Raises:
            DorisUnreachable: if nothing was sent.
            DorisRefused: if the frontend refuses.
            LoadUnanswered: if rows were sent, and no answer came that can be read.
        """
        path = f"/api/{quote(self.database, safe='')}/{quote(self.table, safe='')}/_stream_load"
        request = Request(
            "PUT",
            path,
            {**self._login(), **self.properties, **_load_headers(label, columns, self.computed, self.load_seconds)},
        )
        asked = self._asked_frontend(request)
        if isinstance(asked, Answer):
            return self._read(asked, lambda content: load_answer(content, label))
        node, address = asked
        try:
            answer = exchange(node, address, request, body(), self.load_seconds)
            return load_answer(answer.content, label)
        except NotConnected as problem:
            raise self._backend_is_away(node, problem) from None
        except NoAnswer as problem:
            raise LoadUnanswered(f"The backend {node} of Doris was sent rows and gave no answer ({problem}).") from None
        except (Denied, Unreadable) as problem:
            raise LoadUnanswered(
                f"The backend {node} was sent rows and answered what Doris never does ({problem})."
            ) from None

    def settle(self, operation: Operation, transaction_id: int) -> SettledAnswer:
        """Commit or abort a transaction by its id; doing so again is harmless.

        Raises:
            DorisUnreachable: if no answer came; it may be done, or may be yet.
            DorisRefused: if the frontend refuses.
        """
        path = f"/api/{quote(self.database, safe='')}/_stream_load_2pc"
        named = {"txn_id": str(transaction_id), "txn_operation": operation.value}
        request = Request("PUT", path, {**self._login(), **named})
        asked = self._asked_frontend(request)
        if isinstance(asked, Answer):
            return self._read(asked, lambda content: settled_answer(content, transaction_id))
        node, address = asked
        try:
            return self._read(
                exchange(node, address, request, None, self.request_seconds),
                lambda content: settled_answer(content, transaction_id),
            )
        except NotConnected as problem:
            raise self._backend_is_away(node, problem) from None
        except NoAnswer as problem:
            told = f"The backend {node} of Doris did not answer when it was to {operation.value} a load ({problem})."
            raise DorisUnreachable(told) from None

    def state_of(self, label: str) -> LabelState:
        """Return the state of the latest transaction of a label.

        Raises:
            DorisUnreachable, DorisRefused: as they say.
        """
        path = f"/api/{quote(self.database, safe='')}/get_load_state?label={quote(label, safe='')}"
        return self._read(self._answer_of_frontend(path), label_state)

    def schema(self) -> DorisTable:
        """Return the table.

        Raises:
            DorisUnreachable, DorisRefused: as they say.
        """
        path = f"/api/{quote(self.database, safe='')}/{quote(self.table, safe='')}/_schema"
        return table_of_answer(self._read(self._answer_of_frontend(path), data_of), f"{self.database}.{self.table}")

    def require_right_to_load(self) -> None:
        """Require that the login may load: a frontend says which backend would take a load, and nothing is sent there.

        Raises:
            DorisRefused, DorisUnreachable: as they say.
        """
        path = f"/api/{quote(self.database, safe='')}/{quote(self.table, safe='')}/_stream_load"
        request = Request("PUT", path, {**self._login(), **_load_headers("right", (), (), self.load_seconds)})
        asked = self._asked_frontend(request)
        if isinstance(asked, Answer):
            raise self._refused(self._read(asked, lambda content: load_answer(content, "right")))

    def _login(self) -> dict[str, str]:
        return {"Authorization": self.login.header}

    def _answer_of_frontend(self, path: str) -> Answer:
        """Ask a frontend; one that is not the master may send us to it."""
        request = Request("GET", path, self._login())
        asked = self._asked_frontend(request)
        if isinstance(asked, Answer):
            return asked
        node, address = asked
        try:
            return exchange(node, address, request, None, self.request_seconds)
        except (NotConnected, NoAnswer) as problem:
            raise DorisUnreachable(f"The frontend {node} of Doris does not answer ({problem}).") from None

    def _asked_frontend(self, request: Request) -> Answer | tuple[Node, str]:
        """Return the answer of the first frontend that gives one, or the node and address to which it sends us."""
        problems = []
        for node in self.frontends:
            try:
                address = address_of(node)
                answer = exchange(node, address, request, None, self.request_seconds)
            except (NotConnected, NoAnswer) as problem:
                problems.append(f"{node}: {problem}")
            else:
                return self._whereto(node, address, answer, request)
        raise DorisUnreachable(f"No frontend of Doris answers ({'; '.join(problems)}).")

    def _whereto(self, node: Node, address: str, answer: Answer, request: Request) -> Answer | tuple[Node, str]:
        if answer.status not in _REDIRECTS:
            return answer
        try:
            there = redirected(answer.location, request.path)
            return there, address_of_redirected(there, address)
        except NotConnected as problem:
            raise self._backend_is_away(there, problem) from None
        except RedirectRefused as problem:
            raise DorisRefused(
                f"The frontend {node} of Doris sends us {problem}; nothing was sent there. Let Doris name its servers "
                "by addresses that this network reaches (SHOW BACKENDS lists them)."
            ) from None

    def _backend_is_away(self, node: Node, problem: NotConnected) -> DorisUnreachable:
        return DorisUnreachable(
            f"A frontend of Doris sends loads to its backend {node}, which cannot be reached from here ({problem}): let Doris "
            "name an address that this network reaches."
        )

    def _read(self, answer: Answer, read: Callable[[bytes], _T]) -> _T:
        """Read an answer; some refusals are told by the status of HTTP alone."""
        if answer.status in _REFUSALS:
            raise self._refused(_REFUSALS[answer.status])
        try:
            return read(answer.content)
        except Denied as problem:
            raise self._refused(problem) from None
        except Unreadable as problem:
            told = f"A server of Doris answered what Doris never does ({problem}, HTTP {answer.status})."
            raise DorisUnreachable(told) from None

    def _refused(self, reason: object) -> DorisRefused:
        return DorisRefused(f"Doris refuses {self.login.user} at {self.database}.{self.table}: {reason}.")


def table_of_answer(data: object, name: str) -> DorisTable:
    """Return the table of a `_schema`'s data.

    Raises:
        DorisRefused: if it takes no loads.
    """
    try:
        return table_of(data)
    except Unreadable as problem:
        raise DorisRefused(f"{name} is no table of Doris that takes loads ({problem}).") from None


def _load_headers(
    label: str, columns: Sequence[str], computed: Sequence[tuple[str, str]], seconds: float
) -> dict[str, str]:
    """Headers of a load. What does not fit is refused: no row is filtered, and no value silently becomes NULL."""
    return {
        "Expect": "100-continue",
        "label": label,
        "two_phase_commit": "true",
        "format": "json",
        "read_json_by_line": "true",
        "num_as_string": "true",
        "strict_mode": "true",
        "max_filter_ratio": "0",
        "timezone": "+00:00",
        "timeout": str(int(seconds)),
        "columns": ",".join(
            (*(f"`{name}`" for name in columns), *(f"`{name}`={expression}" for name, expression in computed))
        ),
    }

"""Stream load in two phases, as executors and the driver speak it. No pyspark here.

Each request goes to a frontend first, without rows: it says which backend takes them, or answers itself. No message has the
password.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ssl import SSLContext
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
    why_not_now,
)
from exactlyonce.connectors.doris.table import DorisTable, table_of
from exactlyonce.errors import OutcomeUnknown, RefusedOutside, Unreachable
from exactlyonce_spark.connectors.doris.exchange import (
    Answer,
    NoAnswer,
    Node,
    NotConnected,
    NotTrusted,
    Piece,
    Request,
    TooLate,
    exchange,
)
from exactlyonce_spark.connectors.doris.load_headers import load_headers
from exactlyonce_spark.connectors.doris.redirects import (
    RedirectRefused,
    address_of,
    address_of_redirected,
    redirected,
)
from exactlyonce_spark.connectors.doris.tls import PLAIN, Trust

_SERVER_FAILED = 500
_REDIRECTS = (301, 302, 303, 307, 308)
_REFUSALS = {
    401: "the login is wrong",
    403: "the login is wrong",
    404: "the server does not know this request; loads in two phases need Doris 1.0 or later",
}
_T = TypeVar("_T")

Body = Callable[[], Iterable[Piece]]
"""Gives the bytes of a load, the same ones each time it is called."""


class DorisUnreachable(Unreachable):
    """No server of Doris answered in time, and nothing was asked of it that lasts."""


class DorisRefused(RefusedOutside):
    """Doris refuses: a login, a right, a table that is not there, rows that do not fit."""


class _NotNow(Exception):
    """A frontend answers that it cannot do what it is asked at present; another one may."""


class LoadUnanswered(OutcomeUnknown):
    """A load was sent and no answer came: it may be prepared, or may be yet."""


class LoadTooLong(LoadUnanswered):
    """A load was under way for as long as it may take."""


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
    trust: Trust = PLAIN

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
            {**self._login(), **self.properties, **load_headers(label, columns, self.computed, self.load_seconds)},
        )
        asked = self._asked_frontend(request)
        if isinstance(asked, Answer):
            return self._read(asked, lambda content: load_answer(content, label))
        node, address = asked
        try:
            answer = self._exchange(node, address, request, self.trust.backends, body())
            return load_answer(answer.content, label)
        except NotConnected as problem:
            raise self._backend_is_away(node, problem) from None
        except NoAnswer as problem:
            kind = LoadTooLong if isinstance(problem, TooLate) else LoadUnanswered
            raise kind(f"The backend {node} of Doris was sent rows and gave no answer ({problem}).") from None
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
                self._exchange(node, address, request, self.trust.backends),
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
        try:
            return table_of(self._read(self._answer_of_frontend(path), data_of))
        except Unreadable as problem:
            told = f"{self.database}.{self.table} is not a table of Doris that takes loads ({problem})."
            raise DorisRefused(told) from None

    def require_right_to_load(self) -> None:
        """Require that the login may load: a frontend says which backend would take a load, and nothing is sent there.

        Raises:
            DorisRefused, DorisUnreachable: as they say.
        """
        path = f"/api/{quote(self.database, safe='')}/{quote(self.table, safe='')}/_stream_load"
        request = Request("PUT", path, {**self._login(), **load_headers("right", (), (), self.load_seconds)})
        asked = self._asked_frontend(request)
        if isinstance(asked, Answer):
            raise self._refused(self._read(asked, lambda content: load_answer(content, "right")))

    def _login(self) -> dict[str, str]:
        return {"Authorization": self.login.header}

    def _answer_of_frontend(self, path: str) -> Answer:
        """Ask the frontends. One that is not the master sends us to it, also where it has not heard yet that it is gone."""
        request, problems = Request("GET", path, self._login()), []
        for node in self.frontends:
            who = str(node)
            try:
                asked = self._asked(node, request)
                if isinstance(asked, Answer):
                    return asked
                who = f"{asked[0]}, to which {node} sends us"
                return self._told(*asked, request)
            except (NotConnected, NoAnswer, _NotNow) as problem:
                problems.append(f"{who}: {problem}")
        raise DorisUnreachable(
            f"No frontend of Doris answers ({'; '.join(problems)}). Check sink.doris.frontends, and the network to them."
        )

    def _asked_frontend(self, request: Request) -> Answer | tuple[Node, str]:
        """Return the answer of the first frontend that gives one, or the node and address to which it sends us.

        A frontend does nothing by itself with such a request but tell where it is to be sent, so the next one may be asked it.
        """
        problems = []
        for node in self.frontends:
            try:
                return self._asked(node, request)
            except (NotConnected, NoAnswer, _NotNow) as problem:
                problems.append(f"{node}: {problem}")
        raise DorisUnreachable(
            f"No frontend of Doris answers ({'; '.join(problems)}). Check sink.doris.frontends, and the network to them."
        )

    def _asked(self, node: Node, request: Request) -> Answer | tuple[Node, str]:
        address = address_of(node)
        return self._whereto(node, address, self._told(node, address, request), request)

    def _exchange(
        self, node: Node, address: str, request: Request, tls: SSLContext | None, body: Iterable[Piece] | None = None
    ) -> Answer:
        seconds = self.request_seconds if body is None else self.load_seconds
        try:
            return exchange(node, address, request, body, seconds, tls)
        except NotTrusted as problem:
            raise DorisRefused(str(problem)) from None

    def _told(self, node: Node, address: str, request: Request) -> Answer:
        """Return the answer of a frontend that can give one at present."""
        answer = self._exchange(node, address, request, self.trust.frontends)
        reason = f"HTTP {answer.status}" if answer.status >= _SERVER_FAILED else why_not_now(answer.content)
        if reason is not None:
            raise _NotNow(reason)
        return answer

    def _whereto(self, node: Node, address: str, answer: Answer, request: Request) -> Answer | tuple[Node, str]:
        if answer.status not in _REDIRECTS:
            return answer
        try:
            there = redirected(answer.location, request.path, self.trust.schemes(request.method))
            return there, address_of_redirected(there, address)
        except NotConnected as problem:
            if request.method == "GET":
                raise
            raise self._backend_is_away(there, problem) from None
        except RedirectRefused as problem:
            told = f"The frontend {node} of Doris sends us {problem}; nothing was sent there. {problem.advice}"
            raise DorisRefused(told) from None

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

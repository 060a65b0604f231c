"""The connections of one ledger: those that are idle are kept for a while, and none that has died is ever noticed."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg2
import psycopg2.extensions
from psycopg2.sql import Composable

from exactlyonce.connectors.postgres.connection import (
    MARGIN_SECONDS,
    ONLY_ON_A_PRIMARY,
    Limits,
    PostgresAddress,
    connect,
    named_errors,
)
from exactlyonce.connectors.postgres.waits import answering_within

_IDLE_SECONDS = 60.0

Answer = TypeVar("Answer")


class ConnectionPool:
    """Connections to one address, as many as there are threads that want one at once; threads may share it.

    One that is idle for a minute is closed when the next one is taken or given back.
    """

    def __init__(self, address: PostgresAddress, limits: Limits, application: str) -> None:
        self._address = address
        self._limits = limits
        self._application = application
        self._idle: list[tuple[psycopg2.extensions.connection, float]] = []
        self._closed = False
        self._guard = threading.Lock()

    def close(self) -> None:
        """Close the idle connections now, and each of the others when it is given back."""
        with self._guard:
            self._closed = True
        self.close_idle()

    def open(self) -> psycopg2.extensions.connection:
        """Open a new connection."""
        return connect(self._address, self._limits, self._application)

    def query(self, question: Callable[[psycopg2.extensions.cursor], Answer]) -> Answer:
        """Ask outside of any transaction, each statement on its own and within its time; `question` is safe to repeat.

        A connection that was idle may have died without a sign; then it is asked once more on a fresh one.

        Raises:
            LedgerUnreachable, LedgerRefused: if the database does not answer or refuses.
        """
        with named_errors(str(self._address), own=True):
            connection = self.idle()
            if connection is not None:
                try:
                    return self._asked(connection, question)
                except psycopg2.errors.QueryCanceled:
                    raise  # it is alive, and something is in the way
                except (psycopg2.OperationalError, psycopg2.InterfaceError):
                    pass
                self.close_idle()  # what has ended one of them has most likely ended all
            return self._asked(self.open(), question)

    def idle(self) -> psycopg2.extensions.connection | None:
        """Take the connection that was used last and seems to be alive, or None where there is none."""
        with self._guard:
            self._drop_old()
            while self._idle:
                connection, _ = self._idle.pop()
                if _is_alive(connection):
                    return connection
                connection.close()
        return None

    def give_back(self, connection: psycopg2.extensions.connection) -> None:
        """Keep a connection that is outside of any transaction for the next who wants one."""
        with self._guard:
            if self._closed:
                connection.close()
                return
            self._idle.append((connection, time.monotonic()))
            self._drop_old()

    def close_idle(self) -> None:
        """Close the idle connections; the next who wants one gets a fresh one."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def _drop_old(self) -> None:
        """Close what has been idle for long; the one that waits longest is the first."""
        while self._idle and time.monotonic() - self._idle[0][1] > _IDLE_SECONDS:
            self._idle.pop(0)[0].close()

    def _asked(
        self, connection: psycopg2.extensions.connection, question: Callable[[psycopg2.extensions.cursor], Answer]
    ) -> Answer:
        seconds = self._limits.answer_seconds
        try:
            with (
                answering_within(connection, seconds + MARGIN_SECONDS),
                connection.cursor(cursor_factory=_LimitedCursor) as cursor,
            ):
                cursor.limit = f"{ONLY_ON_A_PRIMARY}set local statement_timeout = '{seconds}s'; "
                answer = question(cursor)
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)
        return answer


class _LimitedCursor(psycopg2.extensions.cursor):
    """Sends its limit along with each statement: one message is one transaction, so a transaction pooler may stand between."""

    limit = ""

    def execute(self, query: str | bytes | Composable, vars: Any = None) -> None:  # noqa: A002 - psycopg2's name
        """Execute a statement within its limit."""
        assert isinstance(query, str), "what is asked outside of transactions is plain text"
        super().execute(self.limit + query, vars)


def _is_alive(connection: psycopg2.extensions.connection) -> bool:
    """Whether an idle connection is still open, as far as can be told without asking the server.

    Between two statements a server is silent, unless it was shut down or has ended the session.
    """
    if connection.closed:
        return False
    watched = select.poll()
    watched.register(connection.fileno(), select.POLLIN)
    return not watched.poll(0)

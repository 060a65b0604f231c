"""End the sessions that keep a lock too long, so that a frozen writer cannot hold a stream for ever.

PostgreSQL lets a role end its own role's sessions (pg_terminate_backend), and names who blocks whom
(pg_blocking_pids), for the sessions of a transaction pooler too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg2
import psycopg2.extensions

from exactlyonce.connectors.postgres.waits import answering_within

_ANSWER_SECONDS = 10
_END_BLOCKERS = "select pg_terminate_backend(pid) from unnest(pg_blocking_pids(%s)) as blocker(pid)"


@contextmanager
def evicting(
    backend_pid: int, connect: Callable[[], psycopg2.extensions.connection], patience_seconds: float
) -> Iterator[None]:
    """While the block waits for a lock in the session `backend_pid`, end what blocks it once patience has run out.

    Sessions of other roles cannot be ended; the block's own lock timeout then says who holds the lock.
    """
    done = threading.Event()
    helper = threading.Thread(target=_watch, args=(done, backend_pid, connect, patience_seconds), daemon=True)
    helper.start()
    try:
        yield
    finally:
        done.set()
        helper.join()


def _watch(
    done: threading.Event,
    backend_pid: int,
    connect: Callable[[], psycopg2.extensions.connection],
    patience_seconds: float,
) -> None:
    while not done.wait(patience_seconds):
        try:
            connection = connect()
        except Exception:  # noqa: S112 - the block's own lock timeout reports what is wrong; this helper only hastens it
            continue
        try:
            with answering_within(connection, _ANSWER_SECONDS), connection.cursor() as cursor:
                cursor.execute(_END_BLOCKERS, (backend_pid,))
        except psycopg2.Error:
            pass  # not allowed to end that session: the lock timeout reports it
        finally:
            connection.close()

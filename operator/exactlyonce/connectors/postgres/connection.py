"""Connections to the ledger's Postgres: settings from a secret, sessions with limits, errors by situation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg2
import psycopg2.extensions

from exactlyonce.connectors.postgres.connecting import open_within
from exactlyonce.connectors.postgres.parameters import parameters_of
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.errors import ExactlyOnceError, LedgerRefused, LedgerUnreachable, LockHeldByOther

# What servers and poolers say to a login that a person has to mend. A refused connection has no error code for its client,
# so the words decide; whatever else is said (starting up, no free connection, in recovery) is tried again.
_LOGIN_REFUSED = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no such database",
    "no such user",
    "not permitted to log in",
    "permission denied",
    "no pg_hba.conf entry",
    "SSL was required",
    "certificate",
)


# What libpq says where no host that it reached takes writes. Source: libpq, PQconnectPoll, CONNECTION_CHECK_TARGET.
_READ_ONLY = "session is read-only"

# What a standby says to ONLY_ON_A_PRIMARY. Source: PostgreSQL, check_transaction_read_only.
_IN_RECOVERY = "during recovery"

ONLY_ON_A_PRIMARY = "set local transaction_read_only = off; "
"""Goes before a question, in the same message: a standby refuses it, also one to which a pooler has switched since."""

# What a server says of itself and not of the statement: connection lost, shut down or starting, no connection left, a
# deadlock or serialization failure, an object in use. https://www.postgresql.org/docs/current/errcodes-appendix.html
_TRANSIENT = ("08", "57P", "53300", "40", "55006")

MARGIN_SECONDS = 5
"""The server's own limits go first, since it says what it is."""

_LEAST_CONNECT_SECONDS = 2  # libpq takes less for this


@dataclass(frozen=True)
class Limits:
    """Bounds on every wait for the database, in seconds. The defaults are the operator's: a pass that waits has its worker.

    `connect_seconds` is for one server, `reach_seconds` for all of those that an address stands for. `transaction_seconds` is
    for each statement of a transaction, and within a few seconds for the whole of it where the server can bound that;
    `answer_seconds` is for what is asked outside of transactions. `patience_seconds` is how long a lock's holder is waited
    for before it is ended where that is allowed. `advice` is told of a transaction that was too long.
    """

    connect_seconds: int = 10
    lock_seconds: int = 30
    patience_seconds: float = 3.0
    transaction_seconds: int = 60
    network_seconds: int = 30
    answer_seconds: int = 30
    advice: str = "Find out what keeps the database busy; it will be retried."

    @classmethod
    def of_batches(cls, sink: PostgresSink) -> Limits:
        """Return the limits of a driver and its tasks."""
        advice = "Raise sink.postgres.transactionTimeout, or make batches smaller."
        seconds = math.ceil(sink.transaction_timeout.total_seconds())
        return cls(lock_seconds=60, transaction_seconds=seconds, advice=advice)

    @property
    def reach_seconds(self) -> int:
        """After which no server of an address is tried any more."""
        return 3 * self.connect_seconds

    @property
    def held_seconds(self) -> int:
        """After which a server that has not kept the limits of a transaction is left."""
        return self.transaction_seconds + 2 * MARGIN_SECONDS

    @property
    def longest_seconds(self) -> int:
        """How long one call may take: an idle connection that is dead, a new one, its BEGIN, the work and the COMMIT."""
        return 2 * self.answer_seconds + self.reach_seconds + 2 * self.held_seconds


@dataclass(frozen=True)
class PostgresAddress:
    """Where a database is and how to log in; its text never shows the password."""

    parameters: Mapping[str, str] = field(repr=False)
    shown: str = ""

    @classmethod
    def from_secret(cls, name: str, secret: Mapping[str, str]) -> PostgresAddress:
        """Read the address from a secret's keys (SECRET_KEYS).

        Raises:
            SecretMissing: if a key that is needed is not there.
            SecretRefused: if a key has a value that no stream may set, or the uri does not parse.
        """
        values = parameters_of(name, secret)
        shown = f"{values['user']}@{values['host']}:{values['port']}/{values['dbname']}"
        return cls(values, shown)

    def __str__(self) -> str:
        return self.shown


def connect(
    address: PostgresAddress, limits: Limits, application: str = "exactlyonce"
) -> psycopg2.extensions.connection:
    """Open a connection in autocommit mode; transactions are begun and ended by explicit statements.

    Only parameters that a transaction pooler accepts are sent at the start; the rest are set in each transaction.

    Raises:
        LedgerUnreachable, LedgerRefused: by what the server said, if anything.
    """
    hosts = address.parameters["host"].count(",") + 1
    parameters = {
        **address.parameters,
        # From here on nothing that a secret holds can change what is set.
        "connect_timeout": str(max(min(limits.connect_seconds, limits.reach_seconds // hosts), _LEAST_CONNECT_SECONDS)),
        "keepalives": "1",
        "keepalives_idle": str(max(limits.network_seconds // 3, 1)),
        "keepalives_interval": str(max(limits.network_seconds // 6, 1)),
        "keepalives_count": "3",
        "tcp_user_timeout": str(limits.network_seconds * 1000),
        "application_name": application,
        # What is copied is UTF-8 whatever the database or the role has as its default; poolers follow this one.
        "client_encoding": "UTF8",
        # A standby answers with what was true a moment ago.
        "target_session_attrs": "read-write",
    }
    with named_errors(str(address), own=True):
        connection = open_within(limits.reach_seconds, parameters)
    connection.autocommit = True
    return connection


@contextmanager
def named_errors(where: str, *, own: bool = False) -> Iterator[None]:
    """Turn psycopg2's errors into this project's: refused, unreachable, lock held.

    What else the server says about a statement of the ledger's `own` is named too. About the sink's statements it passes: a
    constraint, a value, a limit or a cancelled statement is the batch's failure.
    """
    try:
        yield
    except psycopg2.Error as problem:
        named = _locked(problem, where, own=own) or _named(problem, where)
        if named is None and own:
            named = _of_the_ledger(problem, where)
        if named is None:
            raise
        raise named from problem


def _locked(problem: psycopg2.Error, where: str, *, own: bool) -> LockHeldByOther | None:
    if not isinstance(problem, psycopg2.errors.LockNotAvailable):
        return None
    said = first_line(problem)
    if own:
        return LockHeldByOther(
            f"The ledger at {where} keeps a row of this stream locked ({said}); end the session that holds it."
        )
    return LockHeldByOther(
        f"The target table at {where}, or rows of it, are kept locked by another session ({said}), as an ALTER or a VACUUM "
        "FULL does; it will be retried. End that session if it should not be."
    )


def _of_the_ledger(problem: psycopg2.Error, where: str) -> ExactlyOnceError:
    """No rows of a batch are to blame: what passes by itself is tried again."""
    if isinstance(problem, psycopg2.OperationalError):
        return _unreachable(problem, where)
    return LedgerRefused(f"The database at {where} refuses a statement of the ledger: {first_line(problem)}.")


def _unreachable(problem: psycopg2.Error, where: str) -> LedgerUnreachable:
    return LedgerUnreachable(
        f"The database at {where} does not answer ({first_line(problem)}); nothing was decided, and it will be retried."
    )


def _read_only(problem: psycopg2.Error, where: str) -> LedgerUnreachable:
    return LedgerUnreachable(
        f"The database at {where} is read-only: a standby, or a server with default_transaction_read_only "
        f"({first_line(problem)}); nothing was read from it or written to it, and it will be retried."
    )


def _named(problem: psycopg2.Error, where: str) -> ExactlyOnceError | None:
    said = first_line(problem)
    match problem:
        case psycopg2.errors.InsufficientPrivilege():
            return LedgerRefused(
                f"The database at {where} refuses: {said}. Grant the role USAGE and CREATE on the ledger's schema (and SELECT, "
                "INSERT, UPDATE and DELETE on its tables where another role made them), and SELECT, INSERT and UPDATE on "
                "the target table."
            )
        case psycopg2.errors.InvalidSchemaName() | psycopg2.errors.UndefinedTable():
            return LedgerRefused(
                f"The database at {where} has no such thing: {said}. Create it, or correct the resource."
            )
        case psycopg2.errors.ReadOnlySqlTransaction():
            return _read_only(problem, where)
        case psycopg2.errors.FeatureNotSupported() if _IN_RECOVERY in str(problem):
            return _read_only(problem, where)
        case psycopg2.errors.DiskFull():
            return LedgerUnreachable(
                f"The disk of the database at {where} is full ({said}); make room there. It will be retried."
            )
        case psycopg2.OperationalError() | psycopg2.InterfaceError() if problem.pgcode is None:
            if any(words in str(problem) for words in _LOGIN_REFUSED):
                return LedgerRefused(
                    f"The database at {where} refuses the login: {said}. Correct the secret that the sink names."
                )
            if _READ_ONLY in str(problem):
                return _read_only(problem, where)
            return _unreachable(problem, where)
        case psycopg2.OperationalError() if str(problem.pgcode).startswith(_TRANSIENT):
            return _unreachable(problem, where)
        case _:
            return None


def first_line(problem: psycopg2.Error) -> str:
    """Return what the server said, in one line and without the client's prefixes."""
    primary = getattr(problem.diag, "message_primary", None)
    text = primary or next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
    return text.split("FATAL:")[-1].strip().rstrip(".")

"""The query port of the stand-in's frontend: MySQL's protocol, which mysql-mimic speaks, for the statements of broker load.

docs/admin-manual/config/fe-config.md, `query_port`.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from mysql_mimic import IdentityProvider, MysqlServer
from mysql_mimic.auth import NativePasswordAuthPlugin, User
from mysql_mimic.connection import Connection
from mysql_mimic.errors import ErrorCode, MysqlError
from mysql_mimic.session import BaseSession
from mysql_mimic.variables import GlobalVariables, SessionVariables

from testbed.doris.broker_loads import TITLES, BrokerFault, BrokerLoads
from testbed.doris.statements import LoadStatement, parsed_load, parsed_show
from testbed.doris.transactions import Refused

_SETTING = re.compile(r"SET\s+(NAMES\s+\w+|forward_to_master\s*=\s*true)\s*;?", re.IGNORECASE)
_CLOCK = re.compile(r"SELECT\s+UNIX_TIMESTAMP\(\)\s*;?", re.IGNORECASE)


class _Cut(MysqlError):  # type: ignore[misc]
    """The connection ends without an answer."""


class _Session(BaseSession):  # type: ignore[misc]
    """A connection of one user."""

    def __init__(self, loads: BrokerLoads, port_name: str) -> None:
        self.loads = loads
        self.port_name = port_name
        self.variables = SessionVariables(GlobalVariables())
        self.username: str | None = None
        self.database: str | None = None
        self._connection: Connection | None = None

    async def init(self, connection: Connection) -> None:
        """Keep the connection, which some faults end. mysql-mimic lets one in whose login it has refused."""
        self._connection = connection
        if self.username is None:
            connection.stream.writer.transport.abort()

    async def handle_query(self, sql: str, attrs: dict[str, str]) -> Any:
        """Answer a statement."""
        try:
            return await asyncio.to_thread(self._as_it_happens, sql)
        except _Cut:
            assert self._connection is not None, "a statement comes by one"
            self._connection.stream.writer.transport.abort()
            raise
        except Refused as problem:
            # fe/fe-core/…/common/ErrorCode.java, ERR_UNKNOWN_ERROR: what most refusals have
            raise MysqlError(str(problem), ErrorCode.UNKNOWN_ERROR) from None

    def _as_it_happens(self, sql: str) -> Any:
        if self.loads.happens(self.port_name, "before"):
            raise _Cut("gone")
        answer = self._answer(sql)
        if self.loads.happens(self.port_name, "behind"):
            raise _Cut("gone")
        return answer

    def _answer(self, sql: str) -> Any:
        statement, user = sql.strip(), self.username
        assert user is not None, "others are sent away"
        if _SETTING.fullmatch(statement):
            return [], []
        if _CLOCK.fullmatch(statement):
            seconds = str(self.loads.cluster.milliseconds // 1000)
            return [(seconds + self.loads.fraction_of_clock,)], ["unix_timestamp()"]
        if statement.upper().startswith("SHOW LOAD"):
            asked = parsed_show(statement)
            return self.loads.show(user, asked.database, asked.label), list(TITLES)
        self._load(user, parsed_load(statement))
        return [], []

    def _load(self, user: str, statement: LoadStatement) -> None:
        if self.loads.takes(BrokerFault.STATEMENT_LOST):
            raise _Cut("lost")
        if self.loads.takes(BrokerFault.STATEMENT_LATE):
            self.loads.late.append((user, statement))
            raise _Cut("late")
        self.loads.submit(user, statement)
        if self.loads.takes(BrokerFault.ANSWER_LOST):
            raise _Cut("answer lost")


class _Logins(IdentityProvider):  # type: ignore[misc]
    """The users of the cluster, with mysql_native_password, which is what Doris has."""

    def __init__(self, loads: BrokerLoads) -> None:
        self._loads = loads

    async def get_user(self, username: str) -> User | None:
        """Return a user, or None."""
        found = self._loads.cluster.logins.get(username)
        if found is None:
            return None
        return User(
            name=username,
            auth_string=NativePasswordAuthPlugin.create_auth_string(found.password) if found.password else None,
            auth_plugin=NativePasswordAuthPlugin.name,
        )


class QueryPort:
    """The server, in a thread of its own."""

    def __init__(self, loads: BrokerLoads, port: int = 0, name: str = "query") -> None:
        self._loop = asyncio.new_event_loop()
        self._server = MysqlServer(session_factory=lambda: _Session(loads, name), identity_provider=_Logins(loads))
        self._loop.run_until_complete(self._server.start_server(host="127.0.0.1", port=port))
        self._port = int(self._server.sockets()[0].getsockname()[1])

    @property
    def server_port(self) -> int:
        """Where it listens."""
        return self._port

    def serve_forever(self, poll_interval: float) -> None:
        """Serve until `shutdown`, in the thread that calls this."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def shutdown(self) -> None:
        """Stop serving: connections are refused, and those that are open end."""
        asyncio.run_coroutine_threadsafe(self._closed(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def server_close(self) -> None:
        """There is nothing left to close."""

    async def _closed(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

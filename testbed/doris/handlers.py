"""What the servers of the stand-in answer, the frontend and the backend each to a request of HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from ssl import SSLError
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from testbed.doris.bodies import received
from testbed.doris.cluster import Cluster, Fault, Login, TwoPhases
from testbed.doris.transactions import LabelUsed, Refused

if TYPE_CHECKING:
    from testbed.doris.servers import StandIn

NOT_READY = "Node catalog is not ready, please wait for a while."
"""RestBaseController.java, redirectToMaster, and fe/fe-core/…/qe/MasterOpExecutor.java."""


@dataclass(frozen=True)
class Seen:
    """A request as a server saw it."""

    server: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class _Handler(BaseHTTPRequestHandler):
    """What both servers do alike. Bodies are read by their length or in chunks."""

    protocol_version = "HTTP/1.1"
    stand_in: StandIn
    server_name = ""

    def log_message(self, format: str, *given: Any) -> None:  # noqa: A002 - the name is the base class's
        """Stay silent."""

    def handle(self) -> None:
        """Answer requests until the client is gone, which may be at any time."""
        with suppress(ConnectionError, SSLError):
            super().handle()

    def handle_expect_100(self) -> bool:
        """Ask for no body yet: whoever wants it says so."""
        return True

    @property
    def cluster(self) -> Cluster:
        return self.stand_in.cluster

    @property
    def route(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.split("/") if part]

    def named_headers(self) -> dict[str, str]:
        """Return the headers, their names in small letters."""
        return {name.lower(): value for name, value in self.headers.items()}

    def note(self, body: bytes = b"") -> None:
        """Keep the request for the test."""
        self.stand_in.seen.append(Seen(self.server_name, self.command, self.path, self.named_headers(), body))

    def login(self) -> tuple[str, Login] | None:
        """Return user and login of a request with the right password."""
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if kind != "Basic":
            return None
        user, _, password = base64.b64decode(encoded).decode().partition(":")
        found = self.cluster.logins.get(user)
        return (user, found) if found is not None and found.password == password else None

    def require_login(self) -> None:
        """Refuse a request without the right login."""
        if self.login() is None:
            raise Refused("Access denied" if "Authorization" in self.headers else "no valid Basic authorization")

    def send_document(self, document: Any, status: int = 200) -> None:
        """Answer with JSON, and end the connection."""
        content = json.dumps(document).encode() + b"\n"
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has given it up
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)
        self.close_connection = True


class Frontend(_Handler):
    """fe/fe-core/…/httpv2/rest: LoadAction, GetStreamLoadState, TableSchemaAction, RestBaseController."""

    server_name = "frontend"

    def do_PUT(self) -> None:
        """Send a load, or an operation on one, to the backend; nothing of its body is read."""
        self.as_it_happens(self.put)

    def put(self) -> None:
        """Answer a PUT."""
        self.note()
        known = self.login()
        match self.route:
            case _ if self.server_name in self.stand_in.unready:
                # LoadAction.java, executeWithoutPassword: whatever is thrown becomes the msg
                self.send_document({"status": "FAILED", "msg": NOT_READY})
            case _ if known is None:
                self.deny()
            case ["api", _, _, "_stream_load"] if self.headers.get("Expect") is None:
                self.send_document({"status": "FAILED", "msg": "There is no 100-continue header"})
            case ["api", _, _, "_stream_load"] if known is not None and "LOAD" not in known[1].rights:
                # checkTblAuth, inside of the try that makes a RestBaseResult of each error
                told = "Access denied; you need (at least one of) the LOAD privilege(s) for this operation"
                self.send_document({"status": "FAILED", "msg": told})
            case ["api", _, _, "_stream_load"]:
                self.redirect()
            case ["api", _, *_, "_stream_load_2pc"] if self.cluster.two_phases is not TwoPhases.UNKNOWN:
                self.two_phases()
            case _:
                self.send_document({"status": 404, "error": "Not Found"}, 404)

    def do_GET(self) -> None:
        """Answer what a label or a table is."""
        self.as_it_happens(self.get)

    def get(self) -> None:
        """Answer a GET."""
        self.note()
        known = self.login()
        try:
            match self.route:
                case _ if self.server_name in self.stand_in.unready:
                    self.answer(NOT_READY, 1, "Error")
                case _ if known is None:
                    self.deny()
                case ["api", _, "get_load_state"] if self.server_name != self.stand_in.master:
                    # GetLoadInfoAction.java and RestBaseController.java, redirectToMaster: the master alone knows loads
                    self.redirect(self.stand_in.address_of(self.stand_in.master))
                case ["api", database, "get_load_state"]:
                    label = parse_qs(urlsplit(self.path).query).get("label", [""])[0]
                    self.answer(self.cluster.state_of(database, label))
                case ["api", "backends"]:
                    self.answer({"backends": [self.backend_row()]})
                case ["api", database, table, "_schema"] if known is not None and "SELECT" in known[1].rights:
                    self.answer(self.cluster.table(database, table).to_document())
                case ["api", _, _, "_schema"]:
                    self.answer(
                        "Access denied; you need (at least one of) the SELECT privilege(s)", 401, "Unauthorized"
                    )
                case _:
                    self.send_document({"status": 404, "error": "Not Found"}, 404)
        except Refused as problem:
            self.answer(str(problem), 1, "Error")

    def answer(self, data: Any, code: int = 0, message: str = "success") -> None:
        """httpv2/entity/ResponseEntityBuilder.java: always HTTP 200, with a code of its own."""
        self.send_document({"msg": message, "code": code, "data": data, "count": 0})

    def backend_row(self) -> dict[str, Any]:
        """fe/fe-core/…/httpv2/rest/BackendsAction.java: it needs the password, and no right."""
        host, _, port = self.stand_in.backend.rpartition(":")
        return {"ip": host, "http_port": int(port), "is_alive": True}

    def deny(self) -> None:
        """Say that the login is wrong."""
        self.answer("Access denied for user (using password: YES)", 401, "Unauthorized")

    def two_phases(self) -> None:
        """LoadAction.java, executeStreamLoad2PC."""
        if not self.headers.get("txn_id") and not self.headers.get("label"):
            self.send_document({"status": "FAILED", "msg": "No transaction id or label selected."})
        elif not self.headers.get("txn_operation"):
            told = "No transaction operation('commit' or 'abort') selected."
            self.send_document({"status": "FAILED", "msg": told})
        else:
            self.redirect()

    def as_it_happens(self, answer: Callable[[], None]) -> None:
        """Answer, unless something happens first."""
        happens = self.stand_in.happens
        if happens(self.server_name, "before"):
            self.close_connection = True
        else:
            answer()
            happens(self.server_name, "behind")

    def redirect(self, where: str | None = None) -> None:
        """RestBaseController.java, redirectTo: 307, to a backend if no other server is named, and the login in the Location."""
        kept = self.login()
        assert kept is not None, "it was looked at before"
        user, login = kept
        scheme = "https" if self.server_name.partition("-")[0] in self.stand_in.secure else "http"
        if where is None:
            scheme = self.stand_in.backend_scheme or scheme
        location = f"{scheme}://{quote(user)}:{quote(login.password)}@{where or self.stand_in.backend}{self.path}?"
        self.send_response(307)
        self.send_header("Location", location if self.stand_in.redirects_to is None else self.stand_in.redirects_to)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True


class Backend(_Handler):
    """be/src/http/action: stream_load.cpp and stream_load_2pc.cpp."""

    server_name = "backend"

    def do_PUT(self) -> None:
        """Take a load, or an operation on one."""
        match self.route:
            case ["api", database, table, "_stream_load"]:
                self.load(database, table)
            case ["api", database, *_, "_stream_load_2pc"] if self.cluster.two_phases is not TwoPhases.UNKNOWN:
                self.operate(database)
            case _:
                self.note()
                self.send_document({"status": "FAILED", "msg": "Not Found"}, 404)

    def load(self, database: str, table: str) -> None:
        """Take the header, then ask for the body, then answer."""
        headers = self.named_headers()
        label = headers.get("label", "")
        try:
            self.require_login()
            begun = self.cluster.begin(database, table, headers)
        except Refused as problem:
            self.note()
            existing = {"ExistingJobStatus": problem.job_status} if isinstance(problem, LabelUsed) else {}
            status = "Label Already Exists" if isinstance(problem, LabelUsed) else "Fail"
            told = {
                "TxnId": -1,
                "Label": label,
                "Comment": "",
                "TwoPhaseCommit": headers.get("two_phase_commit", "false"),
            }
            self.send_document({**told, "Status": status, **existing, "Message": str(problem), **_NO_COUNTS})
            return
        dies = self.cluster.takes(Fault.BACKEND_DIES)
        body = self.body(half=dies)
        self.note(body or b"")
        if body is None:
            if not dies:
                self.cluster.sender_is_gone(begun)
            self.close_connection = True
            return
        answer = self.cluster.finish(begun, body)
        if self.cluster.takes(Fault.PREPARE_ANSWER_LOST):
            self.close_connection = True
        else:
            self.send_document(answer)

    def operate(self, database: str) -> None:
        """stream_load_2pc.cpp, handle: what went wrong is a status that is not Success, and its message."""
        self.note()
        is_commit = self.headers.get("txn_operation") == "commit"
        if is_commit and self.cluster.takes(Fault.COMMIT_LOST):
            self.close_connection = True
            return
        try:
            self.require_login()
            answer = {"status": "Success", "msg": self.cluster.operate(database, self.named_headers())}
        except Refused as problem:
            told = f"[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = {problem}"
            answer = {"status": "ANALYSIS_ERROR", "msg": told}
        if is_commit and self.cluster.takes(Fault.COMMIT_ANSWER_LOST):
            self.close_connection = True
        else:
            self.send_document(answer)

    def body(self, *, half: bool) -> bytes | None:
        """Ask for the body and return it; None where it does not arrive as a whole, or where the backend dies on half of it."""
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        return received(self.rfile, self.named_headers(), half=half)


_NO_COUNTS = {
    "NumberTotalRows": 0,
    "NumberLoadedRows": 0,
    "NumberFilteredRows": 0,
    "NumberUnselectedRows": 0,
    "LoadBytes": 0,
}

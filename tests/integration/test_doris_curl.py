"""curl, as Doris' manual has it, writes into the stand-in for Doris and reads the states of labels.

The commands are those of docs/data-operate/import/import-way/stream-load-manual.md in apache/doris-website; curl follows the
redirect, sends its login again and waits for 100 Continue by itself.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.doris.cluster import Fault
from testbed.doris.servers import StandIn
from tests.certificates import certificate
from tests.doris import DATABASE, ORDERS, doris, ids
from tests.rig import eventually

LOAD = f"api/{DATABASE}/orders/_stream_load"
SETTLE = f"api/{DATABASE}/_stream_load_2pc"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


def curl(server: StandIn, path: str, *options: str) -> Any:
    """Ask the frontend by curl, and return the JSON of what answers in the end."""
    assert shutil.which("curl") is not None, "curl is not on the PATH"
    command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "20", "--location-trusted"]
    scheme = "https" if "frontend" in server.secure else "http"
    command += ["-u", "loader:secret", *options, f"{scheme}://{server.frontend}/{path}"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def headers(**named: str) -> list[str]:
    return [word for name, value in named.items() for word in ("-H", f"{name}:{value}")]


def load(server: StandIn, file: Path, *options: str, **named: str) -> Any:
    return curl(server, LOAD, *headers(Expect="100-continue", **named), "-T", str(file), "-XPUT", *options)


def state(server: StandIn, label: str) -> str:
    return str(curl(server, f"api/{DATABASE}/get_load_state?label={label}")["data"])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"1,a\n2,b\n", {"column_separator": ",", "columns": "id,note"}),
        (gzip.compress(b"1,a\n2,b\n"), {"column_separator": ",", "columns": "id,note", "compress_type": "gz"}),
        (b'[{"id":1,"note":"a"},{"id":2}]', {"format": "json", "strip_outer_array": "true"}),
        (b'{"id":1,"note":"a"}\n{"id":2}\n', {"format": "json", "read_json_by_line": "true"}),
    ],
    ids=["csv", "gzip", "array", "lines"],
)
def test_curl_loads_each_row_once(server: StandIn, tmp_path: Path, content: bytes, named: dict[str, str]) -> None:
    file = tmp_path / "rows"
    file.write_bytes(content)
    answer = load(server, file, label="mine", **named)
    assert (answer["Status"], answer["NumberLoadedRows"]) == ("Success", 2)
    again = load(server, file, label="mine", **named)
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "FINISHED")
    assert (ids(server), state(server, "mine")) == ([1, 2], "VISIBLE")


@pytest.mark.parametrize("backend_scheme", ["https", "http"])
def test_curl_loads_by_tls_and_trusts_no_other_ca(tmp_path: Path, backend_scheme: str) -> None:
    """What tests/unit/test_doris_tls.py says of our client, by one that follows redirects by itself."""
    file, ours = tmp_path / "rows", certificate(tmp_path, "doris")
    file.write_text("1\ta\n")
    secure = frozenset({"frontend", "backend"} if backend_scheme == "https" else {"frontend"})
    with StandIn(certificate=ours, secure=secure, backend_scheme=backend_scheme) as server:
        server.cluster.create(DATABASE, ORDERS)
        assert load(server, file, "--cacert", str(ours), label="mine")["Status"] == "Success"
        assert ids(server) == [1]
        with pytest.raises(subprocess.CalledProcessError):
            load(server, file, "--cacert", str(certificate(tmp_path, "another")), label="more")
        assert ids(server) == [1]


def test_curl_commits_and_aborts_what_it_has_prepared(server: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    states = []
    for number, operation in enumerate(("commit", "abort")):
        file.write_text(f"{number}\tnote\n")
        answer = load(server, file, label=operation, two_phase_commit="true")
        states.append(state(server, operation))
        settle = headers(txn_id=str(answer["TxnId"]), txn_operation=operation)
        assert curl(server, SETTLE, "-XPUT", *settle)["status"] == "Success"
        states.append(state(server, operation))
    assert (ids(server), states) == ([0], ["PRECOMMITTED", "VISIBLE", "PRECOMMITTED", "ABORTED"])


def test_a_load_that_curl_breaks_off_is_aborted_and_its_label_may_be_used_again(
    server: StandIn, tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    file.write_text("1\tnote\n" * 100_000)
    with pytest.raises(subprocess.CalledProcessError):
        load(server, file, "--limit-rate", "10k", "--max-time", "1", label="mine")
    eventually(lambda: state(server, "mine") == "ABORTED", "the backend has noticed that curl is gone", 20)
    file.write_text("1\tnote\n")
    assert (load(server, file, label="mine")["Status"], ids(server), state(server, "mine")) == (
        "Success",
        [1],
        "VISIBLE",
    )


def test_curl_is_told_the_backends_that_are_alive(server: StandIn) -> None:
    host, port = server.backend.split(":")
    answer = curl(server, "api/backends?is_alive=true")
    assert answer["data"] == {"backends": [{"ip": host, "http_port": int(port), "is_alive": True}]}


def test_a_lost_answer_is_told_by_the_state_of_the_label(server: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("1\tnote\n")
    server.cluster.faults.append(Fault.PREPARE_ANSWER_LOST)
    with pytest.raises(subprocess.CalledProcessError):
        load(server, file, label="mine")
    assert (state(server, "mine"), ids(server)) == ("VISIBLE", [1])

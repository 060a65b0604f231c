"""`exactlyonce settle-loads`: what it lists, what it writes, and for which labels it writes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.cli import settle_loads
from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.cli.main import main
from exactlyonce.control import cluster_reader
from exactlyonce.control.cluster_reader import ClusterReader
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from tests.ledgers import P0, P1, STREAM, started
from tests.resource_documents import DORIS, document

A, B = "exactlyonce:shop_orders:0:1:7:0-a", "s3a_bucket_orders_7_1#72"
DECIDED = DecidedBatch(
    BatchNumber(7),
    (
        Committable(A, "71", 5, Ranges({P0: OffsetRange(0, 5)})),
        Committable(B.partition("#")[0], "72", 3, Ranges({P1: OffsetRange(0, 3)}), shares_label=True),
    ),
)


def of_a_cluster(annotations: dict[str, str] | None = None, loads: int = 2) -> dict[str, Any]:
    data = {"batch": 7, "rows": 8, "labels": [A, B], "loads": loads}
    evidence = [{"words": "planned", "data": {"batch": 7}}, {"words": "batch 7 is decided", "data": data}]
    metadata = {
        "namespace": "shop",
        "name": "orders",
        "uid": "u-1",
        "resourceVersion": "4",
        "annotations": annotations or {},
    }
    return {"metadata": metadata, "status": {"verdict": {"evidence": evidence}, "message": "Find out."}}


class FakeCluster:
    """A cluster with one stream; `conflicts` is how many writes find that somebody else was first."""

    def __init__(self, stream: dict[str, Any], conflicts: int = 0) -> None:
        self.kept, self.conflicts = stream, conflicts
        self.written: list[tuple[str, str]] = []

    def stream(self, namespace: str, name: str) -> dict[str, Any]:
        return self.kept

    def annotate(self, stream: dict[str, Any], key: str, value: str, what: str) -> dict[str, Any] | None:
        if self.conflicts:
            self.conflicts -= 1
            return None
        self.written.append((key, value))
        return stream


def asked(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, *arguments: str) -> Result:
    monkeypatch.setattr(settle_loads, "cluster_of", lambda options: (cluster, "shop"))
    return CliRunner().invoke(main, ["settle-loads", "orders", "-n", "shop", *arguments])


def test_the_loads_that_wait_are_listed_and_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(of_a_cluster(loads=25))
    result = asked(monkeypatch, cluster)
    assert (result.exit_code, cluster.written) == (0, [])
    for words in ("Batch 7 of shop/orders is decided; 25 loads", A, B, "and 23 more", "Find out."):
        assert words in result.stdout


def test_answers_become_the_annotation_beside_those_that_were_given_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {SETTLE_LOADS: f"{A}=Aborted of-another-batch=Committed"}
    cluster = FakeCluster(of_a_cluster(before), conflicts=1)
    result = asked(monkeypatch, cluster, "--committed", B)
    assert result.exit_code == 0, result.output
    assert cluster.written == [(SETTLE_LOADS, f"{A}=Aborted {B}=Committed")]
    assert f"{B}: Committed; where the sink does not know it, it counts as landed" in result.stdout


def test_a_new_answer_takes_the_place_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(of_a_cluster({SETTLE_LOADS: f"{A}=Aborted"}))
    result = asked(monkeypatch, cluster, "--committed", A)
    assert cluster.written == [(SETTLE_LOADS, f"{A}=Committed")]
    assert f"Without an answer: {B}." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("--aborted", "mine"),
            1,
            f"mine: the decided batch 7 of shop/orders has no such load, so nothing was written; it has {A}",
        ),
        (("--aborted", B.partition("#")[0]), 1, "has no such load"),
        (("--aborted", A, "--committed", A), 2, "cannot be committed and aborted"),
    ],
)
def test_answers_that_cannot_be_right_are_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, said: str
) -> None:
    cluster = FakeCluster(of_a_cluster())
    result = asked(monkeypatch, cluster, *arguments)
    assert (result.exit_code, cluster.written) == (code, [])
    assert said in " ".join(result.stderr.split())


def test_a_stream_without_a_decided_batch_has_nothing_to_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster({**of_a_cluster(), "status": {}})
    result = asked(monkeypatch, cluster, "--committed", A)
    assert (result.exit_code, cluster.written) == (1, [])
    assert "has no batch that is decided" in result.stderr


def test_a_dry_run_says_what_would_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(of_a_cluster())
    result = asked(monkeypatch, cluster, "--aborted", A, "--dry-run")
    assert (result.exit_code, cluster.written) == (0, [])
    assert f"This would be written to the annotation {SETTLE_LOADS} of shop/orders." in result.stdout


def test_who_is_always_overtaken_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    result = asked(monkeypatch, FakeCluster(of_a_cluster(), conflicts=9), "--aborted", A)
    assert result.exit_code == 1
    assert "nothing was written: try again" in result.stderr


@pytest.mark.parametrize("annotations", [{}, {"a": "b"}])
def test_an_annotation_is_set_on_the_very_version_that_was_read(
    monkeypatch: pytest.MonkeyPatch, annotations: dict[str, str]
) -> None:
    sent: list[Any] = []

    def patched(api: object, method: str, path: str, *, body: Any, content: str) -> dict[str, Any]:
        sent.append((method, body))
        return {}

    monkeypatch.setattr(cluster_reader, "asked", patched)
    nobody: Any = None
    ClusterReader(nobody, "shop").annotate(of_a_cluster(annotations), SETTLE_LOADS, "a=Aborted", "answer for")
    ((method, body),) = sent
    made = [] if annotations else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    assert (method, body) == (
        "PATCH",
        [
            {"op": "test", "path": "/metadata/uid", "value": "u-1"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "4"},
            *made,
            {"op": "add", "path": "/metadata/annotations/exactlyonce.dev~1settle-loads", "value": "a=Aborted"},
        ],
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A stream of a file, whose ledger has decided a batch."""
    changes = {"spec.sink": {"doris": DORIS}, "spec.checkpoint": {"local": {"path": str(tmp_path / "checkpoint")}}}
    made = document({**changes, "metadata.annotations": {"of": "another", SETTLE_LOADS: "left=Aborted"}})
    made["spec"]["streamId"] = STREAM
    written = tmp_path / "orders.yaml"
    written.write_text(yaml.safe_dump(made))
    return written


def of_file(file: Path, *arguments: str) -> Result:
    state = ["--state", str(file.parent / "state"), "--secrets", str(file.parent)]
    return CliRunner().invoke(main, ["settle-loads", str(file), *state, *arguments])


def test_answers_for_a_stream_of_a_file_are_kept_beside_its_status_and_the_next_run_has_them(file: Path) -> None:
    state = file.parent / "state"
    opened = open_stream(choose_stream(file, None), state, file.parent)
    opened.ledger.prepare()
    permit = started(opened.ledger)
    assert "has no batch that is decided" in of_file(file, "--committed", A).stderr
    with opened.ledger.transaction() as transaction:
        transaction.write_decided(permit.stream_id, DECIDED)
    listed = of_file(file)
    assert f"{A}  5 rows of" in listed.stdout, listed.output
    assert of_file(file, "--committed", A, "--dry-run").exit_code == 0
    assert not opened.answers.file.exists()
    assert of_file(file, "--committed", A, "--aborted", B).exit_code == 0
    assert of_file(file, "--aborted", "other").exit_code == 1
    again = open_stream(choose_stream(file, None), state, file.parent)
    asked_for = again.stream.metadata.annotations[SETTLE_LOADS]
    assert asked_for == f"left=Aborted {A}=Committed {B}=Aborted"
    assert again.stream.metadata.annotations["of"] == "another"


def test_answers_that_cannot_be_kept_are_told(file: Path) -> None:
    opened = open_stream(choose_stream(file, None), file.parent / "state", file.parent)
    (file.parent / "state").write_text("a file in the place of the folder")
    with pytest.raises(Exception, match=r"settle-loads cannot be written"):
        replace(opened.answers).write("a=Aborted")


def test_answers_that_cannot_be_read_are_told_in_one_sentence(file: Path) -> None:
    kept = open_stream(choose_stream(file, None), file.parent / "state", file.parent).answers.file
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b"\xff\xfe")
    result = of_file(file)
    assert result.exit_code == 1
    assert f"The answers for loads in {kept} cannot be read" in result.stderr
    assert "delete the file, and answer again with `exactlyonce settle-loads`" in result.stderr


def test_a_state_folder_that_is_none_holds_no_answers_and_is_refused_as_such_by_what_uses_it(file: Path) -> None:
    opened = open_stream(choose_stream(file, None), file, file.parent)  # --state names a file
    assert opened.answers.read() is None

"""StreamReplays on the API server: listed page by page, and what keeps them from being listed keeps no stream from running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.control import replay_cluster
from exactlyonce.control.cluster import Cluster, ClusterRefused, ClusterUnreachable
from exactlyonce.control.replay_cluster import ReplayCluster
from exactlyonce.control.replay_keys import is_of_replays, replays_of, stream_of
from exactlyonce.control.replay_resource import replay_status_of
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.launch.api_server import Answered, ApiServerUnreachable
from exactlyonce.reconcile.loop import StatusConflict
from tests.resource_documents import changed
from tests.unit.replay_documents import replay
from tests.unit.replays_in_memory import World

CLUSTER = ReplayCluster(Cluster(None, "cluster-1"))  # type: ignore[arg-type] # nothing is asked of it


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Let the API server give these answers, one after the other; return what it is asked."""
    seen: list[tuple[str, str, Mapping[str, Any]]] = []
    left = list(answers)

    def asked(api: Any, method: str, path: str, query: Mapping[str, Any] | None = None, **_: Any) -> Any:
        seen.append((method, path, dict(query or {})))
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(replay_cluster, "asked", asked)
    return seen


def page(*items: dict[str, Any], more: str = "") -> dict[str, Any]:
    """Return a page of a list, whose items have no kind."""
    bare = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
    return {"metadata": {"continue": more}, "items": bare}


def test_all_pages_are_read_and_only_the_streams_own_replays_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answering(monkeypatch, page(replay("a"), more="2"), page(replay("b", stream="others"), replay("c")))
    found = CLUSTER.replays(Key("shop", "orders"))
    assert [(it["metadata"]["name"], it["kind"]) for it in found] == [("a", "StreamReplay"), ("c", "StreamReplay")]
    assert {path for _, path, _ in seen} == {"/apis/exactlyonce.dev/v1alpha1/namespaces/shop/streamreplays"}
    assert seen[1][2]["continue"] == "2"


def test_what_ended_replays_have_asked_and_shown_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"phase": "Failed", "endedAt": "2026-03-01T12:30:00Z", "problems": ["x" * 1000], "records": {"putBack": 7}}
    ended = changed(replay("a", transform={"sql": "x" * 1000}), {"status": status})
    seen = answering(monkeypatch, page(ended, replay("b", transform={"sql": "select 1"})))
    first, second = CLUSTER.replays(Key("shop", "orders"))
    assert len(str(first)) < 700
    known = replay_status_of(first)
    assert (known.phase, known.records and known.records.put_back) == (ReplayPhase.FAILED, 7)
    assert second["spec"]["transform"] == {"sql": "select 1"}, "one that is yet to run is whole"
    assert seen[0][2]["limit"] == 10


def test_a_name_that_is_taken_is_told_to_whoever_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, replay("a"), Answered(409, "already exists"), Answered(403, "no"))
    assert CLUSTER.create(replay("a"))
    assert not CLUSTER.create(replay("a"))
    with pytest.raises(ClusterRefused):
        CLUSTER.create(replay("a"))


def test_streams_with_a_replay_that_is_not_finished_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    done = changed(replay("done", stream="finished"), {"status": {"phase": "Succeeded"}})
    leaving = changed(replay("leaving", stream="left"), {"metadata.deletionTimestamp": "2026-03-01T12:05:00Z"})
    answering(monkeypatch, page(replay("a"), replay("b"), done, leaving))
    assert CLUSTER.keys(()) == [replays_of(Key("shop", "orders"))]


@pytest.mark.parametrize(
    "refusal",
    [
        Answered(403, "streamreplays is forbidden"),
        Answered(404, "the server could not find the requested resource"),
        ApiServerUnreachable("The API server did not answer (JSONDecodeError)."),
    ],
)
def test_an_operator_without_the_right_or_the_definition_has_no_replays_and_watches_none(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    answering(monkeypatch, refusal, refusal)
    assert CLUSTER.keys(()) == []
    assert not CLUSTER.can_be_watched(())


def test_a_server_that_does_not_answer_a_pass_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ApiServerUnreachable("no answer"), page())
    with pytest.raises(ClusterUnreachable):
        CLUSTER.replays(Key("shop", "orders"))
    assert CLUSTER.can_be_watched(())


@pytest.mark.parametrize(("status", "error"), [(409, StatusConflict), (404, StatusConflict), (403, ClusterRefused)])
def test_a_status_of_a_version_that_is_no_more_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    seen = answering(monkeypatch, Answered(status, "no"))
    with pytest.raises(error):
        CLUSTER.put_status(replay("a"))
    assert seen[0][:2] == ("PUT", "/apis/exactlyonce.dev/v1alpha1/namespaces/shop/streamreplays/a/status")


def test_a_key_of_replays_is_never_that_of_a_stream() -> None:
    key = Key("shop", "orders")
    assert (is_of_replays(key), is_of_replays(replays_of(key))) == (False, True)
    assert stream_of(replays_of(key)) == key


def test_a_pass_that_the_api_server_does_not_answer_is_run_again_and_one_that_it_refuses_somewhat_later() -> None:
    made = World([], {"mend": replay()})
    made.problem = LedgerUnreachable("The API server does not answer.")
    assert made.run_pass().after_seconds == 5.0
    made.problem = ClusterRefused("The operator may not use it.")
    assert made.run_pass().after_seconds == 30.0, "no sweep finds a stream that only has a schedule"
    assert made.effects == []

"""Where an administrator lists what a namespace may name, a stream names nothing else; where nothing is listed, anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exactlyonce.api.resource import ResourceInvalid, Stream, parse_stream
from exactlyonce.control.allowlists import (
    NO_ALLOWLISTS,
    Allowlists,
    admitted_stream,
    parse_allowlists,
)
from exactlyonce.control.namespace_lists import ListUnusable
from exactlyonce.control.settings import read_settings
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.pod_settings import PodDefaults
from tests.resource_documents import document

DEFAULTS = PodDefaults("exactlyonce-driver", Image("registry.example/exactlyonce-spark:1"))

NAMES: list[tuple[str, dict[str, Any], str, str]] = [
    ("images", {"spec.image": "other.example/spark:1"}, "spec.image", "other.example/spark:1"),
    ("serviceAccounts", {"spec.driver.serviceAccountName": "admin"}, "spec.driver.serviceAccountName", "admin"),
    *(
        (kind, {f"spec.{role}.podTemplate.spec": pod}, f"spec.{role}.podTemplate.spec.{field}", name)
        for role in ("driver", "executor")
        for kind, pod, field, name in (
            ("serviceAccounts", {"serviceAccountName": "admin"}, "serviceAccountName", "admin"),
            ("serviceAccounts", {"serviceAccountName": ""}, "serviceAccountName", ""),
            ("serviceAccounts", {"serviceAccount": "admin"}, "serviceAccount", "admin"),
            ("priorityClasses", {"priorityClassName": "urgent"}, "priorityClassName", "urgent"),
            ("nodeNames", {"nodeName": "node7"}, "nodeName", "node7"),
            ("images", {"initContainers": [{"name": "a", "image": "x:1"}]}, "initContainers[a].image", "x:1"),
            ("images", {"containers": [{"name": "b", "image": "x:1"}]}, "containers[b].image", "x:1"),
            ("images", {"ephemeralContainers": [{"name": "c", "image": "x:1"}]}, "ephemeralContainers[c].image", "x:1"),
            ("images", {"volumes": [{"name": "v", "image": {"reference": "x:1"}}]}, "volumes[v].image.reference", "x:1"),
        )
    ),
]  # fmt: skip


def lists(*entries: dict[str, Any]) -> Allowlists:
    """Return the allowlists that the operator is started with."""
    return parse_allowlists(json.dumps(entries))


def stream(changes: dict[str, Any], namespace: str = "shop") -> Stream:
    """Return a valid stream with changes."""
    return parse_stream(document({**changes, "metadata.namespace": namespace}), "the test")


@pytest.mark.parametrize(("kind", "changes", "field", "name"), NAMES, ids=[f"{it[0]} {it[2]} {it[3]}" for it in NAMES])
def test_what_is_not_listed_is_refused_wherever_a_stream_names_it(
    kind: str, changes: dict[str, Any], field: str, name: str
) -> None:
    asked = stream(changes)
    (told,) = lists({"namespaces": ["shop"], kind: ["allowed-one"]}).refusals(asked, DEFAULTS)
    assert told.startswith(f"{field}: {name!r} is not allowed; in namespace shop allowed-one is allowed as ")
    assert told.endswith(
        "Use that, or ask the administrator of the operator, who sets drivers.allowlists of its chart."
    )
    (told,) = lists({"namespaces": ["shop"], kind: []}).refusals(asked, DEFAULTS)
    assert "in namespace shop no " in told
    assert " may be named. Leave the field out, or ask" in told
    others: dict[str, list[str]] = {
        other: [] for other in ("images", "serviceAccounts", "priorityClasses", "nodeNames") if other != kind
    }
    for allowing in (
        NO_ALLOWLISTS,
        lists({"namespaces": ["shop"], **others}),
        lists({"namespaces": ["other"], kind: []}),
    ):
        assert allowing.refusals(asked, DEFAULTS) == []
    if name:
        assert lists({"namespaces": ["shop"], kind: [name]}).refusals(asked, DEFAULTS) == []


def test_a_stream_that_names_nothing_is_allowed_and_may_name_the_operators_own_defaults() -> None:
    nothing = lists({"namespaces": ["*"], "images": [], "serviceAccounts": [], "priorityClasses": [], "nodeNames": []})
    named = {
        "spec.image": "registry.example/exactlyonce-spark:1",
        "spec.driver.serviceAccountName": "exactlyonce-driver",
    }
    for changes in ({}, named, {"spec.driver.podTemplate.spec": {"nodeName": "", "priorityClassName": None}}):
        assert nothing.refusals(stream(changes), DEFAULTS) == []
    assert len(nothing.refusals(stream(named), PodDefaults("another"))) == 2


@pytest.mark.parametrize(
    ("pattern", "image", "is_allowed"),
    [
        ("registry.example/streams/*", "registry.example/streams/spark:1", True),
        ("registry.example/streams/*", "registry.example/streams/team/spark:1", True),
        ("registry.example/streams/*", "registry.example/streams-of-mine/spark:1", False),
        ("registry.example/streams/*", "registry.example/streams", False),
        ("registry.example/spark:*", "registry.example/spark:1.0", True),
        ("registry.example/spark:*", "registry.example/spark-of-mine:1.0", False),
        ("registry.example/spark@*", "registry.example/spark@sha256:00", True),
        ("registry.example:*", "registry.example:5000/anything", False),
        ("registry.example/spark:1", "registry.example/spark:1", True),
        ("registry.example/spark:1", "registry.example/spark:10", False),
        ("registry.example/spark:1", "REGISTRY.example/spark:1", False),
        ("*", "anything:1", True),
    ],
)
def test_images_are_compared_up_to_a_border_of_their_names(pattern: str, image: str, is_allowed: bool) -> None:
    told = lists({"namespaces": ["shop"], "images": [pattern]}).refusals(stream({"spec.image": image}), DEFAULTS)
    assert (told == []) is is_allowed


def test_entries_that_match_a_namespace_are_taken_together() -> None:
    both = lists(
        {"namespaces": ["*"], "images": ["base.example/*"], "nodeNames": []},
        {"namespaces": ["team-*"], "images": ["team.example/*"]},
    )
    for namespace, image, is_allowed in (
        ("team-a", "team.example/x", True),
        ("team-a", "base.example/x", True),
        ("shop", "team.example/x", False),
    ):
        assert (both.refusals(stream({"spec.image": image}, namespace), DEFAULTS) == []) is is_allowed
    assert both.refusals(stream({"spec.executor.podTemplate.spec": {"nodeName": "n"}}, "team-a"), DEFAULTS) != []


def test_everything_that_is_refused_is_told_with_the_resource() -> None:
    asked = document({"spec.image": "a:1", "spec.driver.podTemplate.spec": {"nodeName": "n", "containers": "nonsense"}})
    with pytest.raises(ResourceInvalid) as refused:
        admitted_stream(asked, lists({"namespaces": ["*"], "images": [], "nodeNames": []}), DEFAULTS)
    assert [problem.partition(": '")[0] for problem in refused.value.problems] == [
        "the resource: spec.image",
        "the resource: spec.driver.podTemplate.spec.nodeName",
    ]
    assert admitted_stream(asked, NO_ALLOWLISTS, DEFAULTS).spec.image == "a:1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "drivers.allowlists (an administrator sets it): "),
        ('[{"namespaces": []}]', "drivers.allowlists (an administrator sets it): 0.namespaces: "),
        ('[{"namespaces": ["shop"], "image": []}]', "0.image: "),
        (
            '[{"namespaces": ["shop"], "images": ["registry.example*"]}]',
            "0.images.0: 'registry.example*' will not do; write an image, or how images begin",
        ),
        ('[{"namespaces": ["shop"], "images": ["a*/b"]}]', "0.images.0: 'a*/b' will not do; write an image"),
        (
            '[{"namespaces": ["shop"], "nodeNames": ["*-a"]}]',
            "0.nodeNames.0: '*-a' will not do; write a name, or how names begin",
        ),
        ('[{"namespaces": ["sh*p"]}]', "0.namespaces.0: 'sh*p' will not do; write a namespace's name"),
    ],
)
def test_an_allowlist_that_cannot_be_read_ends_the_operator_with_a_sentence(
    text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ListUnusable) as refused:
        parse_allowlists(text)
    assert told in str(refused.value)
    with pytest.raises(SystemExit):
        read_settings([f"--allowlists={text}"])
    assert "drivers.allowlists (an administrator sets it): " in capsys.readouterr().err


def test_nothing_given_restricts_nothing() -> None:
    assert parse_allowlists(" ") == parse_allowlists("[]") == read_settings([]).allowlists == NO_ALLOWLISTS

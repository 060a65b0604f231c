"""The operator's own login serves what an administrator allowed a namespace, and nothing that only looks like it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exactlyonce.control.namespace_lists import ListUnusable
from exactlyonce.control.operator_locations import (
    NO_LOCATIONS,
    OperatorLocations,
    parse_locations,
)
from exactlyonce.control.settings import read_settings
from exactlyonce.schema.places import S3Place

PREFIX = "s3a://lake/checkpoints/a"


def allowing(*prefixes: str, namespaces: tuple[str, ...] = ("*",), endpoint: str | None = None) -> OperatorLocations:
    """Return what is allowed, from the text that the operator is started with."""
    entry: dict[str, Any] = {"namespaces": namespaces, "prefixes": prefixes}
    return parse_locations(json.dumps([entry if endpoint is None else {**entry, "endpoint": endpoint}]))


def at(location: str, **also: Any) -> S3Place:
    """Return a place on S3; what the resource's own rules refuse is let through, so that this rule stands by itself."""
    return S3Place.model_construct(
        location=location,
        endpoint=also.get("endpoint"),
        region=also.get("region"),
        path_style=also.get("path_style", False),
        secret_ref=None,
    )


def test_nothing_is_allowed_by_default() -> None:
    for locations in (NO_LOCATIONS, parse_locations(""), parse_locations(" "), parse_locations("[]")):
        assert not locations.allow("shop", at(PREFIX))


@pytest.mark.parametrize("prefix", [PREFIX, f"{PREFIX}/", PREFIX.replace("s3a:", "s3:"), "s3a://lake", "s3a://lake/"])
@pytest.mark.parametrize(
    "location", [PREFIX, f"{PREFIX}/orders", f"{PREFIX}/b/c", f"{PREFIX}/...", f"{PREFIX}/=x,y(z)"]
)
def test_a_prefix_allows_its_folder_and_all_below_it(prefix: str, location: str) -> None:
    assert allowing(prefix).allow("shop", at(location))


@pytest.mark.parametrize(
    "location",
    [
        "s3a://lake/checkpoints/ab",
        "s3a://lake/checkpoints/a-b/orders",
        "s3a://lake/checkpoints",
        "s3a://lake/checkpoints/b/a",
        "s3a://lake/a",
        "s3a://lake",
        "s3a://lake/",
        "s3a://lakes/checkpoints/a",
        "s3a://other/checkpoints/a",
        "s3a://lake.checkpoints/a",
        # What another program may read as something else is nowhere at all.
        "s3a://lake/checkpoints/a/../b",
        "s3a://lake/checkpoints/a/..",
        "s3a://lake/checkpoints/./a",
        "s3a://lake/checkpoints/a/.",
        "s3a://lake/checkpoints//a",
        "s3a://lake//checkpoints/a",
        "s3a://lake/checkpoints/a//b",
        "s3a://lake/checkpoints/a/",
        "s3a://lake/checkpoints/a/%2e%2e/b",
        "s3a://lake/checkpoints/%61",
        "s3a://lake/checkpoints%2Fa",
        "s3a://lake/checkpoints/A",
        "s3a://Lake/checkpoints/a",
        "s3a://lake/Checkpoints/a",
        "s3a://lake/checkpoints/a\n",
        "s3a://lake/checkpoints/a/x\x00y",
        "s3a://lake/checkpoints/a?versionId=1",
        "s3a://lake/checkpoints/a#b",
        "s3a://lake\\checkpoints/a",
        "s3a://user@lake/checkpoints/a",
        "s3a://lake:443/checkpoints/a",
        "s3://lake/checkpoints/a",
        "s3n://lake/checkpoints/a",
        "S3A://lake/checkpoints/a",
        "https://lake/checkpoints/a",
        "file:///lake/checkpoints/a",
        "/lake/checkpoints/a",
        "lake/checkpoints/a",
        "",
    ],
)
def test_a_prefix_does_not_allow(location: str) -> None:
    assert not allowing(PREFIX).allow("shop", at(location))


def test_a_location_without_a_folder_is_allowed_by_nothing() -> None:
    assert not allowing("s3a://lake").allow("shop", at("s3a://lake"))


@pytest.mark.parametrize(
    ("pattern", "namespace", "allowed"),
    [
        ("shop", "shop", True),
        ("shop", "shop-b", False),
        ("shop", "sho", False),
        ("shop", "SHOP", False),
        ("team-*", "team-a", True),
        ("team-*", "team-", False),  # no name of a namespace
        ("team-*", "team", False),
        ("team-*", "a-team-b", False),
        ("*", "anything", True),
        ("*", "", False),
        ("*", "a/b", False),
        ("*", "..", False),
        ("*", "a.b", False),
        ("*", "a\n", False),
    ],
)
def test_a_namespace_is_meant_by_its_name_or_by_how_it_begins(pattern: str, namespace: str, allowed: bool) -> None:
    assert allowing("s3a://lake", namespaces=(pattern,)).allow(namespace, at("s3a://lake/x")) is allowed


def test_the_placeholder_stands_for_a_folder_with_the_very_name_of_the_namespace() -> None:
    locations = allowing("s3a://lake/{namespace}/checkpoints")
    assert locations.allow("shop", at("s3a://lake/shop/checkpoints/orders"))
    for namespace, location in [
        ("shop", "s3a://lake/billing/checkpoints/orders"),
        ("shop", "s3a://lake/shop-b/checkpoints/orders"),
        ("shop", "s3a://lake/shop/other"),
        ("shop", "s3a://lake/{namespace}/checkpoints/orders"),
        ("shop/checkpoints", "s3a://lake/shop/checkpoints/checkpoints"),
        ("shop/../billing", "s3a://lake/shop/../billing/checkpoints/orders"),
        ("..", "s3a://lake/../checkpoints/orders"),
        ("{namespace}", "s3a://lake/{namespace}/checkpoints/orders"),
        ("*", "s3a://lake/billing/checkpoints/orders"),
    ]:
        assert not locations.allow(namespace, at(location)), (namespace, location)


@pytest.mark.parametrize(
    ("allowed", "named", "same"),
    [
        (None, None, True),
        ("", None, True),
        (None, "https://minio:9000", False),
        ("https://minio:9000", None, False),
        ("https://minio:9000", "https://minio:9000", True),
        ("https://minio:9000/", "HTTPS://MinIO:9000", True),
        ("https://minio:9000", "http://minio:9000", False),
        ("https://minio:9000", "https://minio", False),
        ("https://minio:9000", "https://minio:9000.thief.example", False),
        ("https://minio", "https://minio.thief.example", False),
    ],
)
def test_a_bucket_of_another_service_is_another_bucket(allowed: str | None, named: str | None, same: bool) -> None:
    assert allowing(PREFIX, endpoint=allowed).allow("shop", at(PREFIX, endpoint=named)) is same


def test_the_region_and_how_a_bucket_is_addressed_have_no_say() -> None:
    assert allowing(PREFIX).allow("shop", at(PREFIX, region="eu-central-1", path_style=True))


def test_each_entry_is_for_its_own_namespaces_alone() -> None:
    entries = [
        {"namespaces": ["shop"], "prefixes": ["s3a://lake/shop"]},
        {"namespaces": ["billing", "team-*"], "prefixes": ["s3a://lake/billing", "s3a://archive"]},
    ]
    locations = parse_locations(json.dumps(entries))
    assert locations.allow("shop", at("s3a://lake/shop/x"))
    assert locations.allow("team-a", at("s3a://archive/x"))
    assert not locations.allow("shop", at("s3a://archive/x"))
    assert not locations.allow("billing", at("s3a://lake/shop/x"))


@pytest.mark.parametrize(
    ("entry", "at_field", "said"),
    [
        ({"prefixes": [PREFIX]}, "0.namespaces", "this field is required"),
        ({"namespaces": ["shop"]}, "0.prefixes", "this field is required"),
        ({"namespaces": [], "prefixes": [PREFIX]}, "0.namespaces", "give at least 1"),
        ({"namespaces": ["shop"], "prefix": [PREFIX], "prefixes": [PREFIX]}, "0.prefix", "there is no such field"),
        ({"namespaces": ["a*b"], "prefixes": [PREFIX]}, "0.namespaces.0", "followed by a *, such as team-*"),
        ({"namespaces": ["Shop"], "prefixes": [PREFIX]}, "0.namespaces.0", "write a namespace's name"),
        *(
            ({"namespaces": ["shop"], "prefixes": [prefix]}, "0.prefixes.0", said)
            for prefix, said in [
                ("lake/x", "write s3a://bucket"),
                ("s3a://lake/*", "there are no wildcards"),
                ("s3a://lake//x", "write s3a://bucket"),
                ("s3a://lake/x%2Fy", "write s3a://bucket"),
                ("s3a://{namespace}/x", "may stand for a whole folder and for nothing else"),
                ("s3a://{namespace}", "may stand for a whole folder and for nothing else"),
                ("s3a://lake/team-{namespace}", "may stand for a whole folder and for nothing else"),
                ("s3a://lake/{Namespace}", "may stand for a whole folder and for nothing else"),
                ("s3a://lake/../x", "without . and .."),
                ("s3a://lake/x/.", "without . and .."),
            ]
        ),
        ({"namespaces": ["shop"], "prefixes": [PREFIX], "endpoint": "minio:9000"}, "0.endpoint", "https://host:port"),
    ],
)
def test_what_an_administrator_wrote_wrong_is_refused_with_the_field_and_what_to_write(
    entry: dict[str, Any], at_field: str, said: str
) -> None:
    with pytest.raises(ListUnusable) as refused:
        parse_locations(json.dumps([entry]))
    told = str(refused.value)
    assert told.startswith("checkpoints.locations (an administrator sets it): ")
    assert f"{at_field}: " in told
    assert said in told
    assert "\n" not in told


@pytest.mark.parametrize("text", ["{}", "[", "[1]", '"s3a://lake"', "s3a://lake"])
def test_what_is_no_list_of_entries_is_refused(text: str) -> None:
    with pytest.raises(ListUnusable):
        parse_locations(text)


def test_the_operator_is_started_with_them_and_does_not_start_with_wrong_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = "EXACTLYONCE_OPERATOR_CHECKPOINT_LOCATIONS"
    monkeypatch.setenv(variable, json.dumps([{"namespaces": ["shop"], "prefixes": [PREFIX]}]))
    assert read_settings([]).locations.allow("shop", at(PREFIX))
    monkeypatch.setenv(variable, json.dumps([{"namespaces": ["shop"], "prefixes": ["s3a://lake/*"]}]))
    with pytest.raises(SystemExit):
        read_settings([])
    assert "checkpoints.locations (an administrator sets it): 0.prefixes.0: " in capsys.readouterr().err
    monkeypatch.delenv(variable)
    assert read_settings([]).locations == NO_LOCATIONS

"""The API server and `exactlyonce validate` agree on odd values of every field: two implementations, each the other's oracle.

The server reads OpenAPI and CEL, in Go; the models check themselves, in Python. Every field gets odd values drawn by a seed, in
a small and in a full resource. AGREEMENT_SEED repeats a run, AGREEMENT_DRAWS=0 takes every value.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from exactlyonce.api.resource import ResourceInvalid, parse_stream
from scripts import generate_crd
from tests.cluster.streams import ServerRefused, Streams, install, make_namespace
from tests.resource_documents import FULL, changed, document

NAMESPACE = f"agreement-tests-{uuid.uuid4().hex[:8]}"
SEED = int(os.environ.get("AGREEMENT_SEED", "4"))
DRAWS = int(os.environ.get("AGREEMENT_DRAWS", "8"))

TEXTS = (
    "", " ", "x", "X", "1", "a\n", "5m\n", "\n", "x y", "ä", "\u0665m", "😀", "0", "-1", "1.5", "5m", "1h", "0s", "25h", "1e3",
    "true", "/", "//", "/a/../b", "/a\n", "s3a://lake/x\n", "s3a://lake/x/", "a.b", "a..b", ".", "-", "a-", "_a", "a/b", "$x",
    "'", '"a"', '"', "\\", "\x00", "\x7f", "512m", "2g", "2Gi", "0m", "1000m", "0.5", "0.0", "00.5",
    "2026-01-31T00:00:00Z", "2026-01-31t00:00:00z", "2026-01-31 00:00:00Z", "2026-01-31T00:00:00", "2026-01-31T24:00:00Z",
    "2026-01-31T23:59:60Z", "0000-01-31T00:00:00Z", "2026-01-31T00:00:00+25:00", "2026-01-31T00:00:00.1234567891Z",
    49 * "a", 63 * "a", 64 * "a", 253 * "a", 254 * "a", 5000 * "a", 63 * "ä", 64 * "ä",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 10**18, 10**18 + 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, -0.5, 1e18, 1e300,
)  # fmt: skip # no 1.0: kubectl sends it as 1, and a server that gets it otherwise takes it in some places only
OTHERS: tuple[Any, ...] = (
    None, True, False, [], [None], ["x"], ["x", "x"], ["x", 1], [{}], [[]], {}, {"x": None}, {"x": "y"}, {"x": 1},
    {"name": "x"}, {"spark.x": "y"}, {"": "x"}, {"exactlyonce.dev/x": "y"},
)  # fmt: skip
ODD = (*TEXTS, *NUMBERS, *OTHERS)


def fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of all fields; not of what is in a pod template, which the server takes as it is."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from fields(field, f"{path}.{name}")


SPEC = generate_crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
FIELDS = [path for path in fields(SPEC, "spec") if not path.endswith("podTemplate.spec")]


@pytest.fixture(scope="module")
def streams(kubeconfig: Path) -> Iterator[Streams]:
    connect: Any = config.new_client_from_config
    with connect(str(kubeconfig)) as api:
        install(api, generate_crd.definition())
        make_namespace(api, NAMESPACE)
        yield Streams(api, NAMESPACE)
        core: Any = client.CoreV1Api(api)
        core.delete_namespace(NAMESPACE)


def server_says(streams: Streams, resource: dict[str, Any]) -> str | None:
    try:
        streams.create(resource, dry=True)
    except ServerRefused as refused:
        return str(refused)
    return None


def validate_says(resource: dict[str, Any]) -> str | None:
    try:
        parse_stream(resource, "the test")
    except ResourceInvalid as invalid:
        return str(invalid)
    return None


def resources(path: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield odd values of a field and the resources that have them."""
    dice = random.Random(f"{SEED} {path}")
    for base in (document(namespace=NAMESPACE), changed(FULL, {"metadata.namespace": NAMESPACE})):
        for value in ODD if DRAWS == 0 else dice.sample(ODD, DRAWS):
            yield value, changed(base, {path: value})


@pytest.mark.parametrize("path", FIELDS)
def test_the_api_server_and_validate_agree_on_odd_values(streams: Streams, path: str) -> None:
    for value, resource in resources(path):
        there, here = server_says(streams, resource), validate_says(resource)
        assert (there is None) == (here is None), f"{path}: {value!r} (AGREEMENT_SEED={SEED}): {there} / {here}"

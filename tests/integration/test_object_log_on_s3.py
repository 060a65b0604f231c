"""The object log of a stream on S3, opened as the operator opens it: over moto's server, with the stream's login or its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.ledger import ledger_of
from exactlyonce.api.resource import parse_stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import ledger_address, ledger_fleet, ledger_key
from exactlyonce.checkpoint.s3_conditions import PROBE, ConditionsIgnored
from exactlyonce.connectors.object_log.tenancy import LocationNotEmpty, LogOfAnother
from exactlyonce.control.checkpoint_stores import LocationOutOfReach, require_ledger_in_reach
from exactlyonce.control.operator_locations import NO_LOCATIONS, parse_locations
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.ledger.connector import LedgerAddress
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.positions.ranges import Epoch
from testbed.s3 import S3
from tests.ledgers import STREAM, new_stream, started
from tests.object_logs import land, records, visible
from tests.resource_documents import document
from tests.s3_stores import BUCKET


def spec_on(s3: S3, name: str) -> StreamSpec:
    """A stream of files whose ledger is in a folder of the test."""
    place = {"location": f"s3a://{BUCKET}/{name}", "endpoint": s3.endpoint, "pathStyle": True}
    ledger = {"objectLog": {**place, "secretRef": {"name": "lake"}}}
    return parse_stream(document({"spec.sink": {"files": {"path": "/out"}}, "spec.ledger": ledger}), "the test").spec


def address_on(s3: S3, name: str, secret: dict[str, str] | None = None) -> LedgerAddress:
    return ledger_address(spec_on(s3, name), lambda reference: s3.secret() if secret is None else secret)


def keys(s3: S3, prefix: str) -> list[str]:
    pages = s3.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [item["Key"] for page in pages for item in page.get("Contents", ())]


def test_a_ledger_on_s3_is_shared_by_processes_and_measured_and_nothing_is_written_beside_its_folder(
    s3: S3, name: str
) -> None:
    before = set(keys(s3, ""))
    address = address_on(s3, name)
    ledger = address.open()
    ledger.prepare()
    permit = started(ledger)
    driver = address_on(s3, name).open("a driver")
    for number in (1, 2, 3):
        land(driver, permit, number)
    assert visible(address_on(s3, name).open()) == records(3)
    fleet = ledger_fleet(ledger_key(spec_on(s3, name), address))
    assert fleet.landed(address.space, {STREAM: None})[STREAM].landed_batch == 3
    written = set(keys(s3, "")) - before
    assert {key.split("/")[0] for key in written} == {name}
    entries = [key for key in written if key.endswith(".entry")]
    sizes = [s3.client().head_object(Bucket=BUCKET, Key=key)["ContentLength"] for key in entries]
    assert [(size.table, size.table_bytes) for size in fleet.sizes(address.space)] == [("entries", sum(sizes))]


def test_a_bucket_without_conditional_writes_is_refused_and_holds_no_ledger(tmp_path: Path, name: str) -> None:
    with S3(tmp_path / "older", ignores_conditions=True) as older:
        older.create_bucket(BUCKET)
        with pytest.raises(ConditionsIgnored, match=rf"ignores If-None-Match .* s3a://{BUCKET}/{name}; use a service"):
            address_on(older, name).open().prepare()
        assert keys(older, "") == [f"{name}/{PROBE}"]


def test_a_folder_of_others_is_refused_and_nothing_is_written(s3: S3, name: str) -> None:
    s3.client().put_object(Bucket=BUCKET, Key=f"{name}/deep/er/report.csv", Body=b"of somebody else")
    with pytest.raises(LocationNotEmpty, match=r"has no log\.json and is not empty \(deep\)"):
        address_on(s3, name).open().prepare()
    assert keys(s3, f"{name}/") == [f"{name}/deep/er/report.csv"]


def test_a_ledger_of_another_stream_is_refused_and_nothing_is_written(s3: S3, name: str) -> None:
    ledger = address_on(s3, name).open()
    ledger.prepare()
    started(ledger)
    before = keys(s3, name)
    other = address_on(s3, name).open()
    other.prepare()
    with pytest.raises(LogOfAnother, match="is that of another stream, so shop/refunds cannot keep its own there"):
        raise_epoch(other, replace(new_stream(other), stream_id="shop/refunds"), Epoch(1), "ticket")
    assert keys(s3, name) == before


def test_a_bucket_that_is_not_there_is_told_in_one_sentence(s3: S3) -> None:
    spec = spec_on(s3, "x")
    assert spec.ledger is not None
    nowhere = {**spec.ledger.to_document()["objectLog"], "location": "s3a://nowhere/orders"}
    changed = document({"spec.sink": {"files": {"path": "/out"}}, "spec.ledger": {"objectLog": nowhere}})
    address = ledger_address(parse_stream(changed, "the test").spec, lambda reference: s3.secret())
    with pytest.raises(
        LedgerUnreachable,
        match=r"^The ledger at s3a://nowhere/orders cannot be reached: .*there is no bucket nowhere; make",
    ):
        address.open().prepare()


@pytest.mark.parametrize("allowed", [False, True])
def test_the_operators_own_login_opens_a_ledger_only_where_an_administrator_allows_it(
    s3: S3, name: str, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """The tenant names no login; the operator's process has one that is good for every bucket."""
    for key, value in s3.secret().items():
        monkeypatch.setenv(key, value)
    prefix = f'[{{"namespaces": ["shop"], "prefixes": ["s3a://{BUCKET}"], "endpoint": "{s3.endpoint}"}}]'
    locations = parse_locations(prefix) if allowed else NO_LOCATIONS

    def reach(namespace: str) -> None:
        require_ledger_in_reach(ledger_of(spec_on(s3, name)), namespace, {}, locations)

    refused: list[Callable[[], Any]] = [lambda: reach("billing")]
    if allowed:
        reach("shop")
        address_on(s3, name, {}).open().prepare()
    else:
        refused.append(lambda: reach("shop"))
    for act in refused:
        with pytest.raises(LocationOutOfReach, match=r"spec\.ledger\.objectLog names no login in a secretRef"):
            act()

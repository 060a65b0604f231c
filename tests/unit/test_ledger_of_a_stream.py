"""Where a stream's ledger is: in its sink, where the resource says, or beside its checkpoint; and who may reach it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, cast

import pytest

from exactlyonce.api import immutable
from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.ledger import Ledger, has_other_sinks, ledger_of, ledger_rules, sink_holds_ledger_cel
from exactlyonce.api.resource import parse_stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import LedgerKey, LedgerNotBuilt, ledger_address, ledger_fleet, ledger_key, secrets_of
from exactlyonce.connectors.postgres.connector import PostgresLedgerAddress
from exactlyonce.connectors.registry import LEDGERS, SINKS
from exactlyonce.connectors.specs import Commit, SinkSpec
from exactlyonce.control.checkpoint_stores import LocationOutOfReach, require_ledger_in_reach
from exactlyonce.control.operator_locations import NO_LOCATIONS, OperatorLocations, parse_locations
from exactlyonce.errors import SecretMissing
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import SecretRef
from exactlyonce.schema.places import S3Place
from tests.resource_documents import document

LOGIN = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hidden"}
DATABASE = {"host": "db", "dbname": "ledgers", "user": "me", "password": "hidden"}
ON_S3 = {"s3": {"location": "s3a://lake/orders", "endpoint": "https://s3:9000", "secretRef": {"name": "lake"}}}
ON_A_VOLUME = {"volume": {"claimName": "lake", "path": "/c/orders"}}


@dataclass(frozen=True)
class Shelf:
    """A sink that holds no ledger, as Manifest and two-phase sinks are."""

    stream_rules: ClassVar[tuple[Rule, ...]] = ()
    fixed_fields: ClassVar[tuple[str, ...]] = ()
    holds_ledger: ClassVar[bool] = False
    two_phases: ClassVar[bool] = False
    tells_latest_load: ClassVar[bool] = False
    folder_field: ClassVar[str | None] = None
    secret_ref: SecretRef | None = None
    further_secrets: tuple[SecretRef, ...] = ()
    place_on_s3: None = None
    commit: Commit = Commit.BATCH
    transaction_timeout: timedelta = timedelta(minutes=15)


@dataclass(frozen=True)
class ShelfUnion:
    """`spec.sink` of a stream that writes to a shelf."""

    spec: Shelf = Shelf()
    connector: str = "shelf"


SINKS_WITH_A_SHELF: dict[str, type[SinkSpec]] = {**SINKS, "shelf": Shelf}


def spec_of(checkpoint: dict[str, Any] | None = None, ledger: dict[str, Any] | None = None) -> StreamSpec:
    """Return the spec of a stream that writes to a shelf."""
    spec = parse_stream(document(), "the test").spec
    changes: dict[str, object] = {"sink": ShelfUnion()}
    if checkpoint is not None:
        changes["checkpoint"] = Checkpoint.model_validate(checkpoint)
    if ledger is not None:
        changes["ledger"] = Ledger.model_validate(ledger)
    return spec.model_copy(update=changes)


def broken(spec: StreamSpec) -> list[str]:
    return [sentence for rule in ledger_rules(SINKS_WITH_A_SHELF) if (sentence := rule.broken_by(spec)) is not None]


def test_a_sink_that_holds_the_ledger_has_it_in_its_own_database() -> None:
    spec = parse_stream(document(), "the test").spec
    found = ledger_of(spec)
    assert (found.connector, found.spec, found.named_at, found.folder) == (
        "postgres", spec.sink.spec, "spec.sink.postgres", None,
    )  # fmt: skip


def test_where_nothing_is_said_the_ledger_is_beside_the_checkpoint_on_the_same_service_with_the_same_login() -> None:
    found = ledger_of(spec_of(ON_S3))
    assert (found.connector, found.named_at) == ("object_log", "spec.checkpoint")
    assert isinstance(found.folder, S3Place)
    assert found.folder.to_document() == {
        "location": "s3a://lake/orders/ledger",
        "endpoint": "https://s3:9000",
        "pathStyle": False,
        "secretRef": {"name": "lake"},
    }
    assert cast("Any", found.spec).to_document() == found.folder.to_document()
    for path in ("/c/orders", "/c/orders/", "file:///c/orders"):
        assert ledger_of(spec_of({"local": {"path": path}})).folder == f"{path.rstrip('/')}/ledger"


def test_a_ledger_beside_a_checkpoint_with_the_longest_name_is_found_too() -> None:
    location = f"s3a://lake/{'x' * (1024 - len('s3a://lake/'))}"
    folder = ledger_of(spec_of({"s3": {"location": location}})).folder
    assert isinstance(folder, S3Place)
    assert folder.location == f"{location}/ledger"


def test_a_ledger_that_the_resource_names_is_used_wherever_the_checkpoint_is() -> None:
    log = ledger_of(
        spec_of(ON_A_VOLUME, {"objectLog": {"location": "s3a://ledgers/orders", "secretRef": {"name": "l"}}})
    )
    assert (log.connector, log.named_at) == ("object_log", "spec.ledger.objectLog")
    assert isinstance(log.folder, S3Place)
    assert (log.folder.location, log.folder.bucket, log.spec.secret_ref) == (
        "s3a://ledgers/orders", "ledgers", SecretRef(name="l"),
    )  # fmt: skip
    assert ledger_of(spec_of(None, {"objectLog": {"location": "/ledger"}})).folder == "/ledger"


def test_a_ledger_in_postgres_of_a_stream_whose_rows_go_elsewhere_is_opened_in_its_schema() -> None:
    spec = spec_of(ON_S3, {"postgres": {"secretRef": {"name": "ledgers"}, "schema": "shop"}})
    asked: list[SecretRef | None] = []

    def secrets(reference: SecretRef | None) -> dict[str, str]:
        asked.append(reference)
        return DATABASE

    address = ledger_address(spec, secrets)
    assert isinstance(address, PostgresLedgerAddress)
    assert (address.space, ledger_of(spec).folder, asked) == ("shop", None, [SecretRef(name="ledgers")])
    assert ledger_key(spec, address).connector == "postgres"
    other = ledger_address(spec_of(ON_S3, {"postgres": {"secretRef": {"name": "ledgers"}}}), secrets)
    assert other.space == "exactlyonce"


def test_a_ledger_that_this_release_cannot_open_is_refused_by_its_name_in_the_resource() -> None:
    with pytest.raises(LedgerNotBuilt, match=r"opens no ledger of the kind notBuilt; keep the ledger elsewhere"):
        ledger_fleet(LedgerKey("not_built", (), "anywhere"))


def test_pods_are_given_the_secret_of_the_ledger_once() -> None:
    def names(spec: StreamSpec) -> list[str]:
        return [reference.name for reference in secrets_of(spec)]

    assert names(spec_of(ON_S3)) == ["lake"]
    assert names(spec_of(ON_S3, {"postgres": {"secretRef": {"name": "ledgers"}}})) == ["lake", "ledgers"]
    assert names(parse_stream(document(), "the test").spec) == ["warehouse"]


def test_a_ledger_is_left_out_with_a_sink_that_holds_it_and_may_be_given_with_any_other() -> None:
    ledger = {"objectLog": {"location": "s3a://ledgers/orders"}}
    assert broken(spec_of(ON_S3)) == broken(spec_of(ON_S3, ledger)) == []
    held = parse_stream(document(), "the test").spec
    assert broken(held) == []
    (sentence,) = broken(held.model_copy(update={"ledger": Ledger.model_validate(ledger)}))
    assert sentence.startswith("leave ledger out with sink.postgres: ")


def test_a_ledger_is_not_put_on_a_volume_that_the_operator_does_not_reach() -> None:
    (sentence,) = broken(spec_of(ON_A_VOLUME))
    assert sentence.startswith("give ledger where the checkpoint is on a volume: ")
    assert broken(spec_of(ON_A_VOLUME, {"objectLog": {"location": "s3a://ledgers/orders"}})) == []
    held = parse_stream(document({"spec.checkpoint": ON_A_VOLUME}), "the test").spec
    assert broken(held) == []


def test_the_api_server_is_told_the_same_rules() -> None:
    """No sink of the definition leaves its ledger to another place yet, so no cluster can show that the two agree."""
    assert [rule.cel for rule in ledger_rules(SINKS_WITH_A_SHELF)] == [
        "!has(self.ledger) || !(has(self.sink.postgres))",
        "(has(self.sink.postgres)) || has(self.ledger) || !has(self.checkpoint.volume)",
    ]


def test_the_rules_name_every_sink_that_holds_the_ledger_and_no_other() -> None:
    assert sink_holds_ledger_cel("self", SINKS_WITH_A_SHELF) == "(has(self.sink.postgres))"
    assert sink_holds_ledger_cel("self", {"shelf": Shelf}) == "(false)"
    two = {**SINKS_WITH_A_SHELF, "other_base": SINKS["postgres"]}
    assert sink_holds_ledger_cel("self.spec", two) == "(has(self.spec.sink.postgres) || has(self.spec.sink.otherBase))"
    assert has_other_sinks(SINKS_WITH_A_SHELF)
    assert not has_other_sinks({"postgres": SINKS["postgres"]})
    assert len(ledger_rules({"postgres": SINKS["postgres"]})) == 1, "no rule that nothing can break"


def test_every_field_that_says_where_a_ledger_is_changes_only_while_the_stream_rests() -> None:
    (rule,) = [rule for rule in immutable.update_rules() if rule["fieldPath"] == ".spec.ledger"]
    fields = {
        f"{field.alias}.{part.alias}"
        for name, field in Ledger.model_fields.items()
        for part in LEDGERS[name].model_fields.values()
    }
    assert "objectLog.location" in fields
    for field in fields:
        told = f"self.spec.ledger.{field} == oldSelf.spec.ledger.{field}" in rule["rule"]
        assert told != field.endswith("secretRef"), field


def test_a_checkpoint_with_the_ledger_beside_it_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would be gone at once, and the stream would begin at its start again."""
    monkeypatch.setattr(immutable, "has_other_sinks", lambda: True)
    (rule,) = immutable.ledgers_stay()
    assert rule["rule"].startswith(
        "(has(self.spec.sink.postgres)) || has(self.spec.ledger) || has(oldSelf.spec.ledger) || !has(oldSelf.status)"
    )
    assert "Suspended" not in rule["rule"], "resting is not enough"
    for field in immutable.WHILE_SUSPENDED["spec.checkpoint"]:
        assert f"self.{field} == oldSelf.{field}" in rule["rule"]


ALLOWED = parse_locations('[{"namespaces": ["shop"], "prefixes": ["s3a://lake"], "endpoint": "https://s3:9000"}]')


@pytest.mark.parametrize(
    ("secret", "allowed"), [(LOGIN, NO_LOCATIONS), ({}, ALLOWED)], ids=["by its secret", "by an administrator"]
)
def test_the_operator_reads_a_ledger_with_the_streams_login_or_where_an_administrator_allows_its_own(
    secret: dict[str, str], allowed: OperatorLocations
) -> None:
    require_ledger_in_reach(ledger_of(spec_of(ON_S3)), "shop", secret, allowed)


def test_the_operators_own_login_reads_no_ledger_that_nobody_allowed() -> None:
    for namespace, allowed in (("shop", NO_LOCATIONS), ("billing", ALLOWED)):
        with pytest.raises(LocationOutOfReach, match="spec.checkpoint names no login in a secretRef") as caught:  # noqa: RUF043
            require_ledger_in_reach(ledger_of(spec_of(ON_S3)), namespace, {"ca.crt": "PEM"}, allowed)
        assert f"does not allow namespace {namespace} that location" in str(caught.value)
    with pytest.raises(SecretMissing):
        require_ledger_in_reach(ledger_of(spec_of(ON_S3)), "shop", {"AWS_ACCESS_KEY_ID": "me"}, ALLOWED)


def test_a_ledger_in_a_folder_of_this_machine_is_none_for_a_cluster_and_one_in_a_database_is() -> None:
    with pytest.raises(LocationOutOfReach, match="/c/orders/ledger is in a folder, which the operator cannot see"):
        require_ledger_in_reach(ledger_of(spec_of({"local": {"path": "/c/orders"}})), "shop", {}, ALLOWED)
    in_database = ledger_of(spec_of(ON_S3, {"postgres": {"secretRef": {"name": "ledgers"}}}))
    require_ledger_in_reach(in_database, "shop", {}, NO_LOCATIONS)

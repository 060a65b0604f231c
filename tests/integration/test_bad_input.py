"""Bad input, as a user meets it: one sentence that says what, where and what to do; nothing written, nothing lost.

Every test runs `exactlyonce run`, reads what it prints, then mends the cause and counts ids. The stream logs in with a role
of its own, whose password must turn up nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import EVERY_MODE
from tests.command import Command, completing, files_that_hold, halting, verdict_now, watching_command_lines
from tests.conftest import SASL_PASSWORD, SASL_USER
from tests.rig import Rig
from tests.snapshot import LEDGER, ledger_tables, snapshot

PASSWORD = "canary-5f0c-of-postgres"


@pytest.fixture
def rig(kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str) -> Rig:
    """A stream whose role has what the documentation asks for and no more."""
    made = Rig(kafka, postgres_18, tmp_path, name, user=f"writer_{name}", password=PASSWORD)
    made.sql(f"create role {made.user} login password '{PASSWORD}'")
    made.sql(f"create schema exactlyonce authorization {made.user}")
    made.sql(f"grant select, insert, update on orders to {made.user}")
    return made


def assert_nothing_landed(rig: Rig) -> None:
    """No row is in the table, and the ledger says so too."""
    assert rig.landed() == 0
    if rig.sql("select to_regclass('exactlyonce.batches')")[0][0] is not None:
        assert rig.sql("select * from exactlyonce.batches where status not in ('Seeded', 'InProgress', 'Failed')") == []
        assert rig.sql("select * from exactlyonce.offsets where next_offset > 0") == []


def assert_no_secret_is_left(rig: Rig, *outputs: str, secrets: tuple[str, ...] = (PASSWORD,)) -> None:
    """No secret is in what was printed, the state folder, the drivers' logs, the checkpoint or the ledger."""
    ledger = [str(rig.sql(f"select * from {LEDGER}.{table}")) for table in ledger_tables(rig)]
    for secret in secrets:
        assert files_that_hold(secret, rig.secrets), "the search finds it where it belongs"
        assert files_that_hold(secret, rig.folder / "state", *([rig.location] if rig.location.is_dir() else [])) == []
        assert not [text for text in (*outputs, *ledger) if secret in text]


@contextmanager
def away(kafka: Kafka) -> Iterator[None]:
    """The broker is down while the block runs."""
    kafka.stop()
    try:
        yield
    finally:
        kafka.start()


def test_a_broker_that_does_not_answer_is_waited_for(rig: Rig, kafka: Kafka) -> None:
    """It is away when the stream starts, and once more while it runs, where every mode is tested."""
    rig.overrides["spec.source.kafka.properties"] = {"request.timeout.ms": "3000"}
    rig.produce(400)
    with ExitStack() as stack:
        with away(kafka):
            command = stack.enter_context(Command(rig))
            told = command.wait_for("BackingOff")
            assert told.startswith(f"Kafka at {kafka.bootstrap_servers} does not answer (")
            assert told.endswith("); nothing was decided, and it will be retried.")
            assert command.status()["message"] == told
            assert_nothing_landed(rig)
            assert not rig.location.exists()
        command.wait_until_landed()
        if EVERY_MODE:  # by default it goes away under a driver in tests/integration/test_monitor.py
            before = len(command.told("BackingOff"))
            with away(kafka):
                assert "does not answer" in command.wait_for("Unreachable")
                assert command.wait_for("BackingOff", times=before + 1).startswith(
                    f"Kafka at {kafka.bootstrap_servers} does not"
                )
        rig.produce(400)
        command.wait_until_landed()
        assert command.interrupt() == 0
        assert_no_secret_is_left(rig, command.output)
    rig.assert_exactly_once()


def test_a_topic_that_does_not_exist_halts_the_stream(rig: Rig, kafka: Kafka) -> None:
    rig.overrides["spec.source.kafka.topics"] = [rig.name, f"{rig.name}-more"]
    rig.produce(400)
    sentence = halting(rig)
    assert sentence == (
        f"Kafka at {kafka.bootstrap_servers} has no topic {rig.name}-more; create it, or correct source.kafka."
    )
    assert_nothing_landed(rig)
    assert not rig.location.exists()
    kafka.create_topic(f"{rig.name}-more", 1)
    assert verdict_now(rig) == "FirstStart"


def test_a_batch_that_never_fits_into_its_transactions_time_halts_the_stream(rig: Rig) -> None:
    rig.overrides["spec.sink.postgres.transactionTimeout"] = "2s"
    rig.overrides["spec.recovery"] = {
        "maxFailuresPerBatch": 2,
        "onBatchTooLarge": "Retry",
        "backoff": {"initial": "0s", "max": "0s"},
    }
    rig.sql(
        "create function slowly() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$"
    )
    rig.sql("create trigger slowly before insert on orders for each row execute function slowly()")
    rig.produce(4)
    sentence = halting(rig)
    assert sentence.startswith("Batch 1 has failed 2 times; the last error: A transaction at ")
    assert "took longer than 2 seconds and was ended" in sentence
    assert "Raise sink.postgres.transactionTimeout, or make batches smaller" in sentence
    assert_nothing_landed(rig)
    rig.sql("drop trigger slowly on orders")
    completing(rig)
    rig.assert_exactly_once()


def test_a_marker_that_is_damaged_halts_the_stream_and_is_left_as_it_is(rig: Rig) -> None:
    rig.produce(400)
    rig.location.mkdir()
    marker = rig.location / "stream.json"
    marker.write_text('{"streamId": ')
    sentence = halting(rig)
    assert sentence == (
        f"{rig.location}/stream.json is not readable as this project's marker; restore it or choose another location."
    )
    assert marker.read_text() == '{"streamId": '
    assert_nothing_landed(rig)
    marker.unlink()
    assert verdict_now(rig) == "FirstStart"


def test_a_table_that_is_missing_or_does_not_fit_halts_the_stream(rig: Rig) -> None:
    rig.sql("alter table orders rename to others")
    rig.produce(400)
    sentence = halting(rig)
    assert sentence == (
        f"There is no table public.orders at {rig.user}@127.0.0.1:{rig.postgres.port}/{rig.name} that this role can see; "
        "create it, or correct sink.postgres.table (names are case-sensitive)."
    )

    rig.sql("alter table others rename to orders")
    rig.sql("alter table orders rename column customer to buyer")
    rig.sql("alter table orders alter column amount type numeric(12,1)")
    sentence = halting(rig)
    assert sentence.startswith("What the query yields does not fit the table public.orders: ")
    assert "the table has no column customer (it has id, buyer, amount, ts); " in sentence
    assert (
        "column amount is decimal(12,2) in the query and numeric(12,1) in the table; cast it in the transform"
        in sentence
    )
    assert_nothing_landed(rig)

    rig.sql("alter table orders rename column buyer to customer")
    rig.sql("alter table orders alter column amount type numeric(12,2)")
    completing(rig)
    rig.assert_exactly_once()


def test_a_wrong_password_halts_the_stream_and_is_not_shown(rig: Rig) -> None:
    rig.produce(400)
    wrong = "canary-77aa-of-nobody"
    rig.write_secret(password=wrong)
    sentence = halting(rig)
    assert sentence == (
        f"The database at {rig.user}@127.0.0.1:{rig.postgres.port}/{rig.name} refuses the login: password authentication "
        f'failed for user "{rig.user}". Correct the secret that the sink names.'
    )
    assert_nothing_landed(rig)
    assert not rig.location.exists()
    assert_no_secret_is_left(rig, sentence, secrets=(wrong,))
    rig.write_secret()
    assert verdict_now(rig) == "FirstStart"


def test_a_right_that_is_missing_on_the_ledgers_schema_halts_the_stream(rig: Rig) -> None:
    rig.sql("drop schema exactlyonce")
    rig.produce(400)
    sentence = halting(rig)
    assert "schema exactlyonce is missing at" in sentence
    assert f'let an administrator run: create schema "exactlyonce" authorization "{rig.user}";' in sentence
    assert_nothing_landed(rig)

    rig.sql("create schema exactlyonce")
    sentence = halting(rig)
    assert "permission denied for schema exactlyonce" in sentence
    assert "Grant the role USAGE and CREATE on the ledger's schema" in sentence
    assert_nothing_landed(rig)
    assert not rig.location.exists()

    rig.sql(f"grant usage, create on schema exactlyonce to {rig.user}")
    rig.sql(f"revoke insert on orders from {rig.user}")
    sentence = halting(rig)
    assert "permission denied for table orders" in sentence
    assert "SELECT, INSERT and UPDATE on the target table" in sentence
    assert_nothing_landed(rig)

    rig.sql(f"grant insert on orders to {rig.user}")
    completing(rig)
    rig.assert_exactly_once()


def test_a_malformed_record_halts_the_stream_and_names_itself(rig: Rig, kafka: Kafka) -> None:
    """The brokers ask for a login here, and Spark tells at length what has failed: neither shows a password."""
    rig.cold = True
    rig.overrides["spec.source.kafka"] = {
        "bootstrapServers": f"127.0.0.1:{kafka.sasl_port}",
        "topics": [rig.name],
        "properties": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
        "secretRef": {"name": "kafka-client"},
    }
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 1  # more: a transaction that takes too long, above
    login = rig.secrets / "kafka-client"
    login.mkdir()
    (login / "username").write_text(SASL_USER)
    (login / "password").write_text(SASL_PASSWORD)
    rig.produce(400)
    rig.send([(2, b'{"id": "not a number", "customer": "of-a-canary"}')])
    rig.produce(40)

    with watching_command_lines() as command_lines:
        sentence = halting(rig)
    assert (
        f"Malformed record in topic {rig.name} partition 2 offset 100: column id: not a number is not a whole number. "
        in sentence
    )
    assert "set source.format.onMalformed to DeadLetter" in sentence
    assert sentence.startswith("Batch 1 has failed 1 times")
    assert_nothing_landed(rig)
    failed = rig.sql("select partition, from_offset, until_offset, status from exactlyonce.failures order by 1")
    assert failed == [(0, 0, 110, "Open"), (1, 0, 110, "Open"), (2, 0, 111, "Open"), (3, 0, 110, "Open")]

    completed = completing(rig, {"spec.source.format.onMalformed": "DeadLetter"})
    rig.assert_exactly_once()
    letters = rig.sql(
        "select topic, partition, record_offset, convert_from(value, 'UTF8') from exactlyonce.dead_letters"
    )
    assert letters == [(rig.name, 2, 100, '{"id": "not a number", "customer": "of-a-canary"}')]
    assert {status for (status,) in rig.sql("select status from exactlyonce.failures")} == {"Superseded"}

    both = (PASSWORD, SASL_PASSWORD)
    assert_no_secret_is_left(rig, sentence, completed.output, secrets=both)
    for part in (str(rig.folder / "state").encode(), b"pyspark-shell"):
        assert any(part in line for line in command_lines), "the driver's own, and its JVM's, were seen"
    assert [line for line in command_lines if any(secret.encode() in line for secret in both)] == []


def test_sql_that_cannot_be_used_halts_the_stream(rig: Rig) -> None:
    rig.produce(400)
    sentence = halting(rig, {"spec.transform": {"sql": "SELEC id FROM source"}})
    assert "transform.sql does not parse" in sentence
    assert "SELEC" in sentence
    assert "Correct the statement" in sentence
    sentence = halting(rig, {"spec.transform": {"sql": "SELECT id, customer FROM source DISTRIBUTE BY rand()"}})
    assert "into a shuffle, which gives other rows when a task is run again" in sentence
    assert_nothing_landed(rig)
    completing(rig, {"spec.transform": {"sql": "SELECT id, customer FROM source"}})
    rig.assert_exactly_once()


def test_a_checkpoint_location_that_cannot_be_written_is_waited_for(rig: Rig) -> None:
    """A file stands where the folder is to be, which stops root too: when the stream starts, and once while it runs."""
    rig.overrides["spec.recovery.backoff"] = {"initial": "1s", "max": "2s"}
    rig.produce(400)
    with Command(rig, {"spec.checkpoint.local.path": "/proc/checkpoint"}) as command:
        assert "The location /proc/checkpoint could not be created (" in command.wait_for("BackingOff")
        assert command.interrupt() == 0
    assert_nothing_landed(rig)

    rig.location.write_text("not a folder")
    with Command(rig) as command:
        told = command.wait_for("BackingOff")
        assert f"The location {rig.location} could not be listed" in told
        assert "Not a directory" in told
        assert "make it a folder that this user may read and write" in told
        assert_nothing_landed(rig)
        assert rig.location.read_text() == "not a folder"
        rig.location.unlink()
        command.wait_until_landed()

        before = len(command.told("BackingOff"))
        kept = rig.location.rename(rig.folder / "kept")
        rig.location.write_text("not a folder")
        rig.produce(400)
        assert "could not be listed" in command.wait_for("BackingOff", times=before + 1)
        assert rig.landed() == 400
        rig.location.unlink()
        kept.rename(rig.location)
        command.wait_until_landed()
        assert command.interrupt() == 0
    rig.assert_exactly_once()


def test_two_resources_on_one_checkpoint_are_told_apart(rig: Rig) -> None:
    rig.produce(400)
    completing(rig)
    before = snapshot(rig)
    other = {"metadata.name": "another", "spec.sink.postgres.table": "public.others"}
    rig.sql("create table others (like orders)")
    rig.sql(f"grant select, insert, update on others to {rig.user}")
    sentence = halting(rig, other, file="other.yaml")
    assert f"{rig.location} belongs to stream tests/{rig.name}, and tests/another names it too" in sentence
    assert f"read the token in {rig.location}/stream.json with access of your own" in sentence
    assert json.loads((rig.location / "stream.json").read_text())["token"] not in sentence
    after = snapshot(rig)
    after["ledger"]["streams"] = [row for row in after["ledger"]["streams"] if row[0] != "tests/another"]
    assert after == before
    assert rig.sql("select count(*) from others") == [(0,)]

    completing(rig, {**other, "spec.checkpoint.local.path": str(rig.folder / "elsewhere")}, file="other.yaml")
    assert rig.counts("others") == rig.counts()


def test_a_ledger_with_a_newer_epoch_is_told_and_nothing_older_lands(rig: Rig) -> None:
    """A second state folder stands for a second machine, which halts and fences nobody; then the first one's status is lost."""
    rig.produce(400)
    with Command(rig) as first:
        first.wait_until_landed()
        sentence = halting(rig, state="elsewhere")
        assert f"The ledger's tests/{rig.name} belongs to the resource" in sentence
        assert str(rig.folder / "state") in sentence
        assert str(rig.folder / "elsewhere") in sentence
        assert "annotate it exactlyonce.dev/adopt=" in sentence

        rig.produce(400)
        first.wait_until_landed()
        assert first.interrupt() == 0
        assert first.told("Fenced") == []
        assert rig.sql(f"select epoch from {LEDGER}.streams") == [(1,)], "the second one has raised nothing"
    rig.assert_exactly_once()

    rig.produce(40)
    (status,) = (rig.folder / "state").rglob("status.json")
    status.unlink()
    (told,) = completing(rig).told("NewerEpoch")
    assert f"The ledger holds epoch 1 of tests/{rig.name} and this status knows attempt 0" in told
    assert "This one takes attempt 2 and nothing older can land" in told
    assert "stop one of the two" in told
    rig.assert_exactly_once()

    rig.produce(40)
    (token,) = re.findall(r"exactlyonce.dev/adopt=([-0-9a-f]+)", sentence)
    completing(rig, {"metadata.annotations": {"exactlyonce.dev/adopt": token}}, state="elsewhere")
    rig.assert_exactly_once()
    assert "belongs to the resource" in halting(rig), "the stream has moved to the other one"

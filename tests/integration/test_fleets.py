"""One question for many streams, against real servers: what Kafka and a ledger answer, and what when they do not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from exactlyonce.connectors.kafka.fleet import KafkaFleet
from exactlyonce.connectors.kafka.names import KAFKAS_OWN
from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.fleet import PostgresFleet
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.errors import LedgerUnreachable, SourceUnreachable
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.source.port import Bounds
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.processes import free_port
from tests.rig import eventually
from tests.topics import made, open_transaction, produced

NOON = 1_790_000_000_000
SCHEMA = "exactlyonce"


@contextmanager
def fleet(kafka: Kafka, timeout: float = 30.0) -> Iterator[KafkaFleet]:
    asked = KafkaFleet({"bootstrap.servers": kafka.bootstrap_servers}, timeout)
    try:
        yield asked
    finally:
        asked.close()


def test_bounds_of_many_topics_come_in_one_answer(kafka: Kafka, name: str) -> None:
    for number, count in enumerate((3, 0, 5)):
        made(kafka, f"{name}-{number}", 2)
        if count:
            produced(kafka, f"{name}-{number}", count, partition=1)
    kafka.delete_records_before(f"{name}-2", 1, 2)
    wanted = [Partition(f"{name}-{number}", part) for number in range(3) for part in range(2)]
    with fleet(kafka) as asked:
        assert {topic: keys for topic, keys in asked.origins().items() if topic.startswith(name)} == {
            f"{name}-{number}": {0, 1} for number in range(3)
        }
        answer = asked.bounds(wanted, committed_only=True)
    assert answer.problems == {}
    assert answer.bounds == dict(
        zip(wanted, [Bounds(0, 0), Bounds(0, 3), Bounds(0, 0), Bounds(0, 0), Bounds(0, 0), Bounds(2, 5)], strict=True)
    )


def test_a_topic_that_is_not_there_does_not_stand_in_the_way_of_others(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    produced(kafka, name, 4)
    there, missing = Partition(name, 0), Partition(f"{name}-missing", 0)
    with fleet(kafka) as asked:
        answer = asked.bounds([there, missing], committed_only=True)
        assert answer.bounds == {there: Bounds(0, 4)}
        assert list(answer.problems) == [missing]
        assert asked.origins().keys() >= {name}


def test_the_timestamp_is_that_of_the_first_record_at_or_after_the_position(kafka: Kafka, name: str) -> None:
    made(kafka, name, 3)
    for partition in range(3):
        for number in range(4):
            produced(kafka, name, 1, partition=partition, at=NOON + partition * 1000 + number)
    kafka.delete_records_before(name, 2, 3)
    positions = {Partition(name, 0): 0, Partition(name, 1): 2, Partition(name, 2): 1}
    with fleet(kafka) as asked:
        found = asked.timestamps(positions, committed_only=True)
    assert {key.key: round(at * 1000) - NOON for key, at in found.items() if at is not None} == {
        0: 0,
        1: 1002,
        2: 2003,
    }, "the record that retention took is not there any more: the oldest one is"


def test_records_of_large_batches_and_of_many_partitions_come_in_one_fetch(kafka: Kafka, name: str) -> None:
    """A batch larger than what is asked for of a partition is sent all the same."""
    many = 120
    made(kafka, name, many)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 200, "batch.size": 1_000_000})
    for partition in range(many):
        for number in range(8):
            producer.produce(name, os.urandom(20_000), partition=partition, timestamp=NOON + partition * 10 + number)
    assert producer.flush(60) == 0
    positions = {Partition(name, partition): 3 for partition in range(many)}
    with fleet(kafka, timeout=60) as asked:
        found = asked.timestamps(positions, committed_only=True)
        again = asked.timestamps(positions, committed_only=True)
    assert {key.key: round((at or 0) * 1000) - NOON for key, at in found.items()} == {
        partition: partition * 10 + 3 for partition in range(many)
    }
    assert again == found, "the same client answers again"


def test_what_an_open_transaction_holds_back_is_no_lag_of_nothing_and_is_as_old_as_its_first_record(
    kafka: Kafka, name: str
) -> None:
    made(kafka, name)
    partition = Partition(name, 0)
    with fleet(kafka) as asked, open_transaction(kafka, name, 3) as producer:
        produced(kafka, name, 2, at=1_000_000)
        assert asked.bounds([partition], committed_only=True).bounds == {partition: Bounds(0, 5, held_back=5)}
        assert asked.bounds([partition], committed_only=False).bounds == {partition: Bounds(0, 5)}
        since = asked.timestamps({partition: 0}, committed_only=True)[partition]
        assert since is not None
        assert since > 1_000_000, "the first record of the transaction, and not one that waits behind it"
        producer.commit_transaction(60)
        eventually(
            lambda: asked.bounds([partition], committed_only=True).bounds == {partition: Bounds(0, 6)},
            "5 records and the marker can be read",
        )
        assert asked.timestamps({partition: 5}, committed_only=True) == {partition: None}, "a marker is no record"
        assert asked.timestamps({partition: 0}, committed_only=True)[partition] is not None


def test_records_of_a_transaction_that_was_aborted_have_no_age(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    partition = Partition(name, 0)
    with fleet(kafka) as asked, open_transaction(kafka, name, 3) as producer:
        producer.abort_transaction(60)
        eventually(
            lambda: asked.bounds([partition], committed_only=True).bounds == {partition: Bounds(0, 4)},
            "the transaction has ended",
        )
        assert asked.timestamps({partition: 0}, committed_only=True) == {partition: None}


def test_kafkas_own_topics_are_those_that_a_pattern_passes_over(kafka: Kafka, name: str) -> None:
    """The broker names its own; the list in the code is written by hand."""
    from confluent_kafka import TopicCollection

    made(kafka, name)
    with open_transaction(kafka, name, 1), fleet(kafka) as asked:
        names, admin = sorted(asked.origins()), kafka.admin()
        described = admin.describe_topics(TopicCollection(names))
        own = {topic for topic, future in described.items() if future.result(30).is_internal}
    assert own
    assert own <= KAFKAS_OWN


def test_brokers_that_are_not_there_are_told_in_bounded_time() -> None:
    asked = KafkaFleet({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, timeout_seconds=2)
    with pytest.raises(SourceUnreachable, match="does not answer"):
        asked.origins()
    asked.close()


@pytest.fixture
def ledger(postgres_18: Postgres, address: PostgresAddress) -> Iterator[PostgresLedger]:
    made_ledger = PostgresLedger(address, SCHEMA)
    made_ledger.prepare()
    yield made_ledger
    made_ledger.close()


def add_stream(server: Postgres, name: str, stream: str, landed: int | None, positions: Mapping[int, int]) -> None:
    server.execute(
        f"insert into {SCHEMA}.streams (stream_id, token, owner_cluster, owner_uid, system_identifier, database_oid, epoch, "
        "ticket, landed_batch) values (%s, 't', 'c', 'u', 's', 1, 1, 't', %s)",
        name,
        (stream, landed),
    )
    for partition, offset in positions.items():
        server.execute(
            f"insert into {SCHEMA}.offsets (stream_id, topic, partition, next_offset) values (%s, 'orders', %s, %s)",
            name,
            (stream, partition, offset),
        )


def add_batch(server: Postgres, name: str, stream: str, batch: int, status: str, records: int | None = None) -> None:
    server.execute(
        f"insert into {SCHEMA}.batches (stream_id, batch, epoch, status, ranges, records_read, rows_written, dead_letters, "
        "landed_at) values (%s, %s, 1, %s, %s, %s, %s, 1, to_timestamp(%s))",
        name,
        (stream, batch, status, json.dumps({}), records, records, 1_790_000_000 + batch),
    )


def test_all_streams_of_a_database_are_read_in_one_question(
    postgres_18: Postgres, ledger: PostgresLedger, address: PostgresAddress, name: str
) -> None:
    postgres_18.execute(
        f"insert into {SCHEMA}.streams (stream_id, token, owner_cluster, owner_uid, system_identifier, database_oid, epoch, "
        "ticket, landed_batch) select 'shop/' || number, 't', 'c', 'u', 's', 1, 1, 't', 1 from generate_series(0, 299) number",
        name,
    )
    postgres_18.execute(
        f"insert into {SCHEMA}.offsets (stream_id, topic, partition, next_offset) "
        "select 'shop/' || number, 'orders', part, case part when 0 then number else 5 end "
        "from generate_series(0, 299) as number, generate_series(0, 1) as part",
        name,
    )
    asked = PostgresFleet(address)
    found = asked.landed(SCHEMA, {f"shop/{number}": None for number in range(301)})
    asked.close()
    assert len(found) == 300, "the last one has no row"
    assert all(
        view.positions == {Partition("orders", 0): number, Partition("orders", 1): 5}
        for number, view in ((number, found[f"shop/{number}"]) for number in range(300))
    )


def test_the_sizes_of_a_ledger_are_those_of_its_tables_with_what_is_staged_as_one(
    postgres_18: Postgres, ledger: PostgresLedger, address: PostgresAddress, name: str
) -> None:
    add_stream(postgres_18, name, "shop/orders", 0, {0: 0})
    rows = "select n, repeat('x', 100) from generate_series(1, 1000) n"
    for number in (1, 2):
        postgres_18.execute(f"create unlogged table {SCHEMA}.staging_0123456789abcdef_{number} as {rows}", name)
    for other in ("public.batches", f"{SCHEMA}.orders"):
        postgres_18.execute(f"create table {other} as select generate_series(1, 100000)", name)
    asked = PostgresFleet(address)
    found = {size.table: size for size in asked.sizes(SCHEMA)}
    assert asked.sizes("no such schema") == ()
    asked.close()

    relations = (
        f"select relname, pg_total_relation_size(oid) from pg_class where relnamespace = '{SCHEMA}'::regnamespace"
    )
    expected: dict[Any, Any] = {row[0]: row[1] for row in postgres_18.execute(f"{relations} and relkind = 'r'", name)}
    assert expected.pop("orders") > 1_000_000, "a table of the user's in the same schema does not count"
    staged = sum(expected.pop(f"staging_0123456789abcdef_{number}") for number in (1, 2))
    assert {name: size.table_bytes + size.index_bytes for name, size in found.items()} == {
        **expected,
        "staging": staged,
    }
    assert found["staging"].table_bytes > 200_000
    assert (found["staging"].index_bytes, found["batches"].index_bytes > 0) == (0, True)


def test_batches_are_counted_once_and_a_taken_one_when_its_rows_are_in(
    postgres_18: Postgres, ledger: PostgresLedger, address: PostgresAddress, name: str
) -> None:
    add_stream(postgres_18, name, "shop/orders", 0, {0: 0})
    add_batch(postgres_18, name, "shop/orders", 0, "Seeded")
    asked = PostgresFleet(address)

    def observed(since: int | None) -> tuple[int | None, int, int]:
        view = asked.landed(SCHEMA, {"shop/orders": None if since is None else BatchNumber(since)})["shop/orders"]
        return view.counted_until, view.batches, view.records

    def move(landed: int) -> None:
        postgres_18.execute(f"update {SCHEMA}.streams set landed_batch = %s", name, (landed,))

    assert observed(None) == (0, 0, 0)
    add_batch(postgres_18, name, "shop/orders", 1, "Landed", 10)
    add_batch(postgres_18, name, "shop/orders", 2, "InProgress", 10)
    move(1)
    assert observed(0) == (1, 1, 10)
    assert observed(1) == (1, 0, 0)
    postgres_18.execute(f"update {SCHEMA}.batches set status = 'Taken' where batch = 2", name)
    move(2)
    assert observed(1) == (1, 0, 0), "its rows may be missing"
    postgres_18.execute(f"update {SCHEMA}.batches set status = 'Landed' where batch = 2", name)
    assert observed(1) == (2, 1, 10)
    add_batch(postgres_18, name, "shop/orders", 3, "Seeded")
    move(3)
    assert observed(2) == (3, 0, 0), "a seed lands nothing"
    landed = asked.landed(SCHEMA, {"shop/orders": None})["shop/orders"]
    assert (landed.landed_batch, landed.last_landed_at) == (3, 1_790_000_002.0), "nor is it when something landed last"
    asked.close()


def test_failed_lost_and_quarantined_ranges_are_counted(
    postgres_18: Postgres, ledger: PostgresLedger, address: PostgresAddress, name: str
) -> None:
    add_stream(postgres_18, name, "shop/orders", 0, {0: 0})
    statuses = (("Open", 5), ("Lost", 7), ("Closed", 9), ("Quarantined", 4), ("Replaying", 6), ("Replayed", 8))
    of_a_later_release = ("Unheard", 2)
    for batch, (status, end) in enumerate((*statuses, ("GivenUp", 3), of_a_later_release)):
        postgres_18.execute(
            f"insert into {SCHEMA}.failures (stream_id, batch, topic, partition, from_offset, until_offset, status, brokers, "
            "error) values ('shop/orders', %s, 'orders', 0, 0, %s, %s, 'kafka', 'x')",
            name,
            (batch, end, status),
        )
    postgres_18.execute(
        f"update {SCHEMA}.failures set created_at = case status when 'Quarantined' then to_timestamp(1790000500) "
        "when 'Replaying' then to_timestamp(1790000400) else to_timestamp(1790000000) end",
        name,
    )
    asked = PostgresFleet(address)
    view = asked.landed(SCHEMA, {"shop/orders": None})["shop/orders"]
    assert view.replay_decided_ranges == 0
    postgres_18.execute(f"update {SCHEMA}.failures set replay = 'token decided'", name)
    view = asked.landed(SCHEMA, {"shop/orders": None})["shop/orders"]
    assert view.replay_decided_ranges == 1, "of those that a replay holds"
    asked.close()
    assert (view.open_ranges, view.failed_records, view.lost_ranges, view.lost_records) == (1, 5, 1, 7)
    assert (view.quarantined_ranges, view.quarantined_records) == (2, 10), "what a replay has taken has not landed"
    assert (view.replayed_ranges, view.replayed_records, view.quarantined_since) == (1, 8, 1_790_000_400.0)


def test_dead_letters_count_while_no_replay_has_landed_them_and_the_stream_does_not_read_them_again(
    postgres_18: Postgres, ledger: PostgresLedger, address: PostgresAddress, name: str
) -> None:
    add_stream(postgres_18, name, "shop/orders", 0, {0: 0})
    for offset, status in enumerate((None, "Replaying", "Replayed")):
        postgres_18.execute(
            f"insert into {SCHEMA}.dead_letters (stream_id, topic, topic_id, partition, record_offset, batch, error, status, "
            "life) values ('shop/orders', 'orders', 't-1', 0, %s, 5, 'x', %s, 'life')",
            name,
            (offset, status),
        )
    asked = PostgresFleet(address)

    def held() -> int:
        return asked.landed(SCHEMA, {"shop/orders": None})["shop/orders"].letters_held

    assert held() == 2
    postgres_18.execute(
        f"insert into {SCHEMA}.set_backs (stream_id, topic, partition, origin_id, batch, position) "
        "values ('shop/orders', 'orders', 0, 't-1', 5, 1), ('shop/orders', 'orders', 0, 't-2', 5, 0)",
        name,
    )
    assert held() == 1, "the stream reads the others again itself; of another topic it reads other records"
    asked.close()


def test_a_database_without_a_ledger_has_no_streams(address: PostgresAddress) -> None:
    asked = PostgresFleet(address)
    assert asked.landed(SCHEMA, {"shop/orders": None}) == {}
    asked.close()


def test_a_connection_that_died_while_it_was_idle_is_made_again(
    postgres_18: Postgres, ledger: PostgresLedger, address: PostgresAddress, name: str
) -> None:
    add_stream(postgres_18, name, "shop/orders", 0, {0: 3})
    asked = PostgresFleet(address)
    asked.landed(SCHEMA, {"shop/orders": None})
    ended = postgres_18.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'exactlyonce-monitor' and "
        "datname = %s",
        name,
        (name,),
    )
    assert len(ended) == 1
    assert asked.landed(SCHEMA, {"shop/orders": None})["shop/orders"].positions == {Partition("orders", 0): 3}
    asked.close()


def test_a_session_that_is_frozen_is_left_after_the_time_limit(
    postgres_18: Postgres, ledger: PostgresLedger, address: PostgresAddress, name: str
) -> None:
    """Its kernel continues answering for it, so neither keepalives nor a statement timeout would end the wait."""
    add_stream(postgres_18, name, "shop/orders", 0, {0: 3})
    asked = PostgresFleet(address, timeout_seconds=1)
    asked.landed(SCHEMA, {"shop/orders": None})
    (row,) = postgres_18.execute(
        "select pid from pg_stat_activity where application_name = 'exactlyonce-monitor' and datname = %s",
        name,
        (name,),
    )
    backend = int(str(row[0]))
    os.kill(backend, signal.SIGSTOP)
    try:
        assert asked.landed(SCHEMA, {"shop/orders": None})["shop/orders"].landed_batch == 0, "by a fresh session"
    finally:
        os.kill(backend, signal.SIGCONT)
    asked.close()


def test_a_database_that_is_frozen_as_a_whole_is_told_after_the_time_limit(servers: Path) -> None:
    with Postgres(servers / "postgres-frozen") as server:
        server.create_database("frozen")
        secret = {"host": server.host, "port": str(server.port), "dbname": "frozen", "user": "postgres"}
        asked = PostgresFleet(PostgresAddress.from_secret("warehouse", {**secret, "password": server.password}), 2)
        asked.landed(SCHEMA, {"shop/orders": None})
        frozen = [server.pid, *_children(server.pid)]
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(LedgerUnreachable, match="does not answer"):
                asked.landed(SCHEMA, {"shop/orders": None})
        finally:
            for process in frozen:
                os.kill(process, signal.SIGCONT)
        assert asked.landed(SCHEMA, {"shop/orders": None}) == {}, "and it is asked again when it continues"
        asked.close()


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]

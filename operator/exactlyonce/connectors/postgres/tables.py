"""The ledger's tables in Postgres, and their migrations.

A migration only adds, so that drivers of the previous release go on working while a newer operator has migrated; each
version names the oldest release that can still use it. `{schema}` is the ledger's schema, quoted by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.connectors.postgres.letter_tables import MARKED_LETTERS, NAMED_LETTERS
from exactlyonce.connectors.postgres.replay_tables import BACKFILLS, REPLAYED, SINKS

NAMES_SINCE = 7
"""The version from which on partitions may have names, and positions may be beyond 64 bits."""

WITNESSES_SINCE = 5
"""The version from which on tasks can leave witnesses, without which only ExactlyOnce can land."""

COMMITTABLES_SINCE = 8
"""The version from which on the ledger can be that of a sink whose rows are elsewhere."""

DECIDED_SINCE = 10
"""The version from which on the ledger can be that of a sink that commits in two phases."""


@dataclass(frozen=True)
class Migration:
    """One step: the version it leads to, the oldest version whose code can use the result, and its statements."""

    version: int
    oldest_reader: int
    sql: str


MIGRATIONS = (
    Migration(
        version=1,
        oldest_reader=1,
        sql="""
create table {schema}.streams (
    stream_id text primary key,
    token text not null,
    owner_cluster text not null,
    owner_uid text not null,
    system_identifier text not null,
    database_oid bigint not null,
    epoch bigint not null check (epoch > 0),
    claim text,
    writer bigint,
    writer_released boolean not null default false,
    landed_batch bigint check (landed_batch >= 0),
    generation integer,
    checkpoint_path text,
    stateful boolean not null default false,
    created_at timestamptz not null default now(),
    changed_at timestamptz not null default now()
);
comment on table {schema}.streams is 'One row a stream: whose it is, who may land (epoch, claim), how far it has landed.';

create table {schema}.offsets (
    position_id bigint generated always as identity unique,
    stream_id text not null references {schema}.streams on delete cascade,
    topic text not null,
    partition integer not null check (partition >= 0),
    topic_id text not null default '',
    next_offset bigint not null check (next_offset >= 0),
    retired boolean not null default false,
    primary key (stream_id, topic, partition)
);
comment on table {schema}.offsets is 'The offset of the next record to land, a partition. Retired: no longer read.';

create table {schema}.batches (
    stream_id text not null references {schema}.streams on delete cascade,
    batch bigint not null check (batch >= 0),
    epoch bigint not null,
    status text not null,
    ranges jsonb not null,
    records_read bigint,
    rows_written bigint,
    dead_letters bigint,
    note text not null default '',
    created_at timestamptz not null default now(),
    landed_at timestamptz,
    primary key (stream_id, batch)
);
comment on table {schema}.batches is 'Every batch with all of its ranges ({{"topic": {{"partition": [from, until]}}}}).';

create table {schema}.failures (
    id bigint generated always as identity primary key,
    stream_id text not null references {schema}.streams on delete cascade,
    batch bigint not null,
    topic text not null,
    partition integer not null,
    from_offset bigint not null check (from_offset >= 0),
    until_offset bigint not null check (until_offset > from_offset),
    status text not null,
    brokers text not null,
    error text not null,
    -- Ranges that were given up never overlap within a partition: each partition gets its own stretch of one number
    -- line, so that the built-in range index does it without the btree_gist extension.
    given_up numrange,
    created_at timestamptz not null default now(),
    changed_at timestamptz not null default now(),
    unique (stream_id, batch, topic, partition, from_offset),
    exclude using gist (given_up with &&)
);
comment on table {schema}.failures is 'Ranges whose batch failed, or whose records take no effect (Lost).';

create table {schema}.dead_letters (
    stream_id text not null references {schema}.streams on delete cascade,
    topic text not null,
    partition integer not null,
    record_offset bigint not null,
    batch bigint not null,
    record_timestamp timestamptz,
    key bytea,
    value bytea,
    error text not null,
    created_at timestamptz not null default now(),
    primary key (stream_id, topic, partition, record_offset)
);
comment on table {schema}.dead_letters is 'Malformed records, landed in the transaction of their batch.';
""",
    ),
    Migration(
        version=2,
        oldest_reader=1,
        sql="""
alter table {schema}.streams add column query text;
comment on column {schema}.streams.query is 'What the latest driver was started to do: its source set, a hash of the rest.';
""",
    ),
    Migration(
        version=3,
        oldest_reader=1,
        # The first lock waits for every landing, so that nothing below meets one halfway. A release before this one could
        # not start a partition's stretch of given_up anew, so each gets a new one here. Older drivers name no topic id.
        sql="""
lock table {schema}.streams in exclusive mode;
update {schema}.offsets set position_id = default;
comment on column {schema}.offsets.position_id is 'A stretch of given_up; another one where the stream reads records anew.';
alter table {schema}.dead_letters add column topic_id text not null default '';
alter table {schema}.dead_letters drop constraint dead_letters_pkey;
alter table {schema}.dead_letters add primary key (stream_id, topic, topic_id, partition, record_offset);
""",
    ),
    Migration(
        version=4,
        oldest_reader=1,
        sql="""
alter table {schema}.streams add column ticket text;
alter table {schema}.streams add column ticket_epoch bigint;
comment on column {schema}.streams.ticket is 'What the raise of ticket_epoch drew; a driver of that epoch claims with it.';
""",
    ),
    Migration(
        version=5,
        oldest_reader=1,
        sql="""
create table {schema}.witnesses (
    stream_id text not null references {schema}.streams on delete cascade,
    batch bigint not null,
    tag bigint not null,
    primary key (stream_id, batch, tag)
);
comment on table {schema}.witnesses is 'AtLeastOnce, AtMostOnce: a task wrote its rows; removed when its batch has landed.';
""",
    ),
    Migration(
        version=6,
        oldest_reader=1,
        # Older drivers move a position and leave the fingerprint: it names the position that it belongs to.
        sql="""
alter table {schema}.offsets add column fingerprint text;
comment on column {schema}.offsets.fingerprint is 'Of the last record before next_offset: a hash, nothing of its content.';
""",
    ),
    Migration(
        version=7,
        oldest_reader=1,
        # Only partitions with names and positions beyond bigint use these; an older driver reads and moves the others.
        sql="""
alter table {schema}.offsets add column partition_name text;
alter table {schema}.offsets add column position numeric;
comment on column {schema}.offsets.partition_name is 'The name of a partition that has no number; topic then ends with it.';
comment on column {schema}.offsets.position is 'The next position where it is beyond bigint; next_offset is then the largest.';
alter table {schema}.failures add column partition_name text;
alter table {schema}.failures add column from_position numeric;
alter table {schema}.failures add column until_position numeric;
comment on column {schema}.failures.from_position is 'The range, with until_position, where it is beyond bigint.';
""",
    ),
    Migration(
        version=8,
        oldest_reader=1,
        sql="""
create table {schema}.committables (
    stream_id text not null references {schema}.streams on delete cascade,
    batch bigint not null,
    committable text not null,
    primary key (stream_id, batch)
);
comment on table {schema}.committables is 'What a batch made visible where rows are not in this database, such as its files.';
""",
    ),
    Migration(
        version=9,
        oldest_reader=1,
        sql=NAMED_LETTERS,
    ),
    Migration(
        version=10,
        oldest_reader=1,
        # A driver of before this leaves the column alone, and no stream of its has a sink of two phases.
        sql="""
alter table {schema}.streams add column decided text;
comment on column {schema}.streams.decided is 'What is yet to be committed of a batch that is Decided: a sink of two phases.';
""",
    ),
    Migration(
        version=11,
        oldest_reader=1,
        # An older driver leaves the columns empty: a replay then asks the source without them. The views are for people; where
        # somebody has made something else under their names, be it a type, that is left alone.
        sql="""
alter table {schema}.failures add column origin_id text;
alter table {schema}.failures add column fingerprint text;
alter table {schema}.failures add column life text;
alter table {schema}.failures add column replay text;
comment on column {schema}.failures.origin_id is 'Which topic or data stream the records are of: one made anew has another.';
comment on column {schema}.failures.fingerprint is 'Of the last record of the range: a hash, nothing of its content.';
comment on column {schema}.failures.life is 'Of the stream; one that starts over has another.';
comment on column {schema}.failures.replay is 'Which replay reads the range, or has landed it.';
do $$
begin
    begin
        create view {schema}.control as
        select b.stream_id || '/' || b.batch as id,
            (select coalesce(jsonb_object_agg(t.key,
                (select jsonb_object_agg(p.key, p.value -> 0) from jsonb_each(t.value) p)), '{{}}')
             from jsonb_each(b.ranges) t) as start,
            (select coalesce(jsonb_object_agg(t.key,
                (select jsonb_object_agg(p.key, p.value -> 1) from jsonb_each(t.value) p)), '{{}}')
             from jsonb_each(b.ranges) t) as "end",
            case when b.status in ('InProgress', 'Taken', 'Decided') then 'in progress'
                when b.status in ('Landed', 'Seeded') then 'succeeded' else 'failed' end as status,
            b.created_at as created
        from {schema}.batches b;
        comment on view {schema}.control is 'Every batch: where it starts and ends, and how it ended.';
    exception when duplicate_table or duplicate_object then null;
    end;
    begin
        create view {schema}.failure as
        select f.stream_id || '/' || f.batch as id,
            case when f.partition_name is null then f.topic else left(f.topic, - length(f.partition_name) - 1) end as source,
            coalesce(f.partition_name, f.topic) as topic_or_shard,
            case when f.partition_name is null then f.partition end as partition,
            coalesce(f.from_position, f.from_offset) as "from",
            coalesce(f.until_position, f.until_offset) as until,
            f.brokers, f.error, f.status from {schema}.failures f;
        comment on view {schema}.failure is 'Every range that failed; its id is the one of its batch in control.';
    exception when duplicate_table or duplicate_object then null;
    end;
end
$$;
""",
    ),
    Migration(
        version=12,
        oldest_reader=1,
        sql=MARKED_LETTERS,
    ),
    Migration(
        version=13,
        oldest_reader=1,
        sql=SINKS,
    ),
    Migration(
        version=14,
        oldest_reader=1,
        sql=BACKFILLS,
    ),
    Migration(
        version=15,
        oldest_reader=1,
        sql=REPLAYED,
    ),
    Migration(
        version=16,
        oldest_reader=1,
        sql="""
alter table {schema}.streams add column loads text;
comment on column {schema}.streams.loads is 'The latest decided loads, by label, and one that the sink has and nobody decided.';
""",
    ),
)

SCHEMA_VERSION = MIGRATIONS[-1].version
"""The version this release makes and needs."""

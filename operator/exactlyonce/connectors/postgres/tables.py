"""The ledger's tables in Postgres. `{schema}` is the ledger's schema, quoted by the caller."""

from __future__ import annotations

SCHEMA_VERSION = 1
"""The version that `SCHEMA` makes: a ledger of any other version is refused."""

SCHEMA = """
create table {schema}.schema_versions (
    version integer primary key,
    applied_at timestamptz not null default now()
);
comment on table {schema}.schema_versions is 'Which version of these tables this is: one row.';

create table {schema}.streams (
    stream_id text primary key,
    token text not null,
    owner_cluster text not null,
    owner_uid text not null,
    system_identifier text not null,
    database_oid bigint not null,
    epoch bigint not null check (epoch > 0),
    ticket text not null,
    claim text,
    writer bigint,
    writer_released boolean not null default false,
    landed_batch bigint check (landed_batch >= 0),
    generation integer,
    checkpoint_path text,
    stateful boolean not null default false,
    created_at timestamptz not null default now(),
    changed_at timestamptz not null default now(),
    query text,
    decided text,
    sink text,
    sink_epoch bigint,
    loads text
);
comment on table {schema}.streams is 'One row a stream: whose it is, who may land (epoch, claim), how far it has landed.';
comment on column {schema}.streams.query is 'What the latest driver was started to do: its source set, a hash of the rest.';
comment on column {schema}.streams.ticket is 'What the raise of the epoch drew; a driver of that epoch claims with it.';
comment on column {schema}.streams.decided is 'What is yet to be committed of a batch that is Decided: a sink of two phases.';
comment on column {schema}.streams.sink is 'What the driver of sink_epoch lands into; a replay of another sink lands nothing.';
comment on column {schema}.streams.loads is 'The latest decided loads, by label, and one that the sink has and nobody decided.';

create table {schema}.offsets (
    position_id bigint generated always as identity unique,
    stream_id text not null references {schema}.streams on delete cascade,
    topic text not null,
    partition integer not null check (partition >= 0),
    topic_id text not null default '',
    next_offset bigint not null check (next_offset >= 0),
    retired boolean not null default false,
    fingerprint text,
    partition_name text,
    position numeric,
    primary key (stream_id, topic, partition)
);
comment on table {schema}.offsets is 'The offset of the next record to land, per partition. Retired: no longer read.';
comment on column {schema}.offsets.position_id is 'A stretch of given_up; another one where the stream reads records again.';
comment on column {schema}.offsets.fingerprint is 'Of the last record before next_offset: a hash, nothing of its content.';
comment on column {schema}.offsets.partition_name is 'The name of a partition that has no number; topic then ends with it.';
comment on column {schema}.offsets.position is 'The next position where it is beyond bigint; next_offset is then the largest.';

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
    partition_name text,
    from_position numeric,
    until_position numeric,
    origin_id text,
    fingerprint text,
    life text,
    replay text,
    unique (stream_id, batch, topic, partition, from_offset),
    exclude using gist (given_up with &&)
);
comment on table {schema}.failures is 'Ranges whose batch failed, or whose records take no effect (Lost).';
comment on column {schema}.failures.from_position is 'The range, with until_position, where it is beyond bigint.';
comment on column {schema}.failures.origin_id is 'Which topic or data stream the records are of: a recreated one has another.';
comment on column {schema}.failures.fingerprint is 'Of the last record of the range: a hash, nothing of its content.';
comment on column {schema}.failures.life is 'Of the stream; one that starts over has another.';
comment on column {schema}.failures.replay is 'Which replay reads the range, or has landed it.';

create table {schema}.dead_letters (
    stream_id text not null references {schema}.streams on delete cascade,
    topic text not null,
    topic_id text not null,
    partition integer not null,
    -- Of a partition with a name it is drawn: the letters of such a partition are told apart by their position.
    record_offset bigint not null generated by default as identity,
    batch bigint not null,
    record_timestamp timestamptz,
    key bytea,
    value bytea,
    error text not null,
    created_at timestamptz not null default now(),
    partition_name text,
    position numeric,
    place jsonb,
    status text,
    replay text,
    life text not null,
    primary key (stream_id, topic, topic_id, partition, record_offset)
);
create unique index dead_letters_position on {schema}.dead_letters (stream_id, topic, topic_id, partition, position)
    where position is not null;
comment on table {schema}.dead_letters is 'Malformed records, landed in the transaction of their batch.';
comment on column {schema}.dead_letters.partition_name is 'The name of a partition without a number; topic ends with it.';
comment on column {schema}.dead_letters.position is 'The position of a named partition; record_offset is then drawn.';
comment on column {schema}.dead_letters.place is 'Where the record is, in the words of its source: a sequence number.';
comment on column {schema}.dead_letters.status is 'Null: kept. Replaying, Replayed: by the replay that is named beside.';
comment on column {schema}.dead_letters.life is 'Of the stream; one that starts over has another.';

-- A row for each partition of each setting back, so that a reset writes to no letter, of which there may be millions.
create table {schema}.set_backs (
    stream_id text not null references {schema}.streams on delete cascade,
    topic text not null,
    partition integer not null,
    partition_name text,
    origin_id text not null,
    batch bigint not null,
    position numeric not null,
    primary key (stream_id, topic, partition, origin_id, batch)
);
comment on table {schema}.set_backs is 'From this position on, records of batches up to this one were read again.';

create table {schema}.witnesses (
    stream_id text not null references {schema}.streams on delete cascade,
    batch bigint not null,
    tag bigint not null,
    primary key (stream_id, batch, tag)
);
comment on table {schema}.witnesses is 'AtLeastOnce, AtMostOnce: a task wrote its rows; removed when its batch has landed.';

create table {schema}.committables (
    stream_id text not null references {schema}.streams on delete cascade,
    batch bigint not null,
    committable text not null,
    primary key (stream_id, batch)
);
comment on table {schema}.committables is 'What a batch made visible where rows are not in this database, such as its files.';

create table {schema}.backfills (
    stream_id text not null references {schema}.streams on delete cascade,
    name text not null,
    into_sink text not null,
    definition text not null,
    parts text not null,
    created_at timestamptz not null default now(),
    changed_at timestamptz not null default now(),
    primary key (stream_id, name)
);
comment on table {schema}.backfills is 'What was landed into another table than the stream''s own, by name.';
comment on column {schema}.backfills.parts is 'Its ranges as JSON, each with its status; Replayed: landed.';

create table {schema}.replayed (
    stream_id text not null references {schema}.streams on delete cascade,
    name text not null,
    committable text not null,
    created_at timestamptz not null default now(),
    primary key (stream_id, name)
);
comment on table {schema}.replayed is 'What replays made visible, such as files, until the next batch takes it over.';

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

create view {schema}.failure as
select f.stream_id || '/' || f.batch as id,
    case when f.partition_name is null then f.topic else left(f.topic, - length(f.partition_name) - 1) end as source,
    coalesce(f.partition_name, f.topic) as topic_or_shard,
    case when f.partition_name is null then f.partition end as partition,
    coalesce(f.from_position, f.from_offset) as "from",
    coalesce(f.until_position, f.until_offset) as until,
    f.brokers, f.error, f.status from {schema}.failures f;
comment on view {schema}.failure is 'Every range that failed; its id is the one of its batch in control.';
"""
"""Run once, in one transaction. The views are for people."""

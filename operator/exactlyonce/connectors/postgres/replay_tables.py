"""What the ledger keeps for replays beside failed ranges and dead letters: statements of migrations; `{schema}` is quoted."""

from __future__ import annotations

BACKFILLS_SINCE = 14
"""The version from which on a backfill into another table can be recorded."""

REPLAYED_SINCE = 15
"""The version from which on a replay can land into a sink whose rows are elsewhere."""

# An older driver claims and leaves sink and sink_epoch as they are: they count while sink_epoch is that of the latest claim.
SINKS = """
alter table {schema}.streams add column sink text;
alter table {schema}.streams add column sink_epoch bigint;
comment on column {schema}.streams.sink is 'What the driver of sink_epoch lands into; a replay of another sink lands nothing.';
"""

BACKFILLS = """
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
"""

# An older driver leaves them where they are: they count, and its batches do not take them over.
REPLAYED = """
create table {schema}.replayed (
    stream_id text not null references {schema}.streams on delete cascade,
    name text not null,
    committable text not null,
    created_at timestamptz not null default now(),
    primary key (stream_id, name)
);
comment on table {schema}.replayed is 'What replays made visible, such as files, until the next batch takes it over.';
"""

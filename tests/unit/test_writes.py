"""The statements that write staged rows: each name is quoted, each value a parameter, each write what its name says."""

from __future__ import annotations

import pytest
from psycopg2 import sql

from exactlyonce.connectors.postgres.spec import Combine, MergedColumn, PostgresSink, Write
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.connectors.postgres.writes import Staged, count_staged, write_staged

APPEND = PostgresSink(secret_ref=SecretRef(name="warehouse"), table="public.orders")
UPSERT = APPEND.model_copy(update={"write": Write.UPSERT, "keys": ("id",)})
CHOSEN = "_batch = %(batch)s and _tag = any(%(tags)s::bigint[])"
LAST = "array_position(%(tags)s::bigint[], _tag) desc, _row desc"
FIRST = "array_position(%(tags)s::bigint[], _tag), _row"


def staged(*columns: str, schema: str = "public") -> Staged:
    """Return rows with these columns."""
    return Staged(sql.Identifier("exactlyonce", "staging_1"), sql.Identifier(schema, "orders"), columns)


def text(statement: sql.Composable) -> str:
    """Render a statement as psycopg2 does; without a connection it cannot, so identifiers are quoted here as libpq does."""
    if isinstance(statement, sql.Composed):
        return "".join(text(part) for part in statement)
    if isinstance(statement, sql.Identifier):
        return ".".join('"' + name.replace('"', '""') + '"' for name in statement.strings)
    assert isinstance(statement, sql.SQL), f"nothing but text and identifiers is in a statement: {statement!r}"
    return statement.string


FROM = f'from "exactlyonce"."staging_1" where {CHOSEN}'
INTO = 'insert into "public"."orders"'


@pytest.mark.parametrize(
    ("sink", "columns", "statement"),
    [
        pytest.param(APPEND, ("id", "a"), f'{INTO} ("id", "a") select "id", "a" {FROM}', id="append"),
        pytest.param(
            UPSERT, ("id", "a"),
            f'{INTO} as old ("id", "a") select distinct on ("id") "id", "a" {FROM} order by "id", {LAST} '
            'on conflict ("id") do update set "a" = excluded."a"',
            id="upsert",
        ),
        pytest.param(
            UPSERT.model_copy(update={"version": "v"}), ("id", "v"),
            f'{INTO} as old ("id", "v") select distinct on ("id") "id", "v" {FROM} order by "id", "v" desc nulls last, '
            f'{LAST} on conflict ("id") do update set "v" = excluded."v" '
            'where old."v" is null or old."v" <= excluded."v"',
            id="upsert by version",
        ),
        pytest.param(
            UPSERT.model_copy(update={"keys": ("b", "a")}), ("a", "b"),
            f'{INTO} as old ("a", "b") select distinct on ("b", "a") "a", "b" {FROM} order by "b", "a", {LAST} '
            'on conflict ("b", "a") do nothing',
            id="upsert of nothing but keys",
        ),
    ],
)  # fmt: skip
def test_append_and_upsert(sink: PostgresSink, columns: tuple[str, ...], statement: str) -> None:
    assert text(write_staged(staged(*columns), sink)) == statement


@pytest.mark.parametrize(
    ("combine", "within", "with_old"),
    [
        (Combine.SUM, 'sum("a")', 'coalesce(old."a" + excluded."a", old."a", excluded."a")'),
        (Combine.MIN, 'min("a")', 'least(old."a", excluded."a")'),
        (Combine.MAX, 'max("a")', 'greatest(old."a", excluded."a")'),
        (Combine.LAST, f'(array_agg("a" order by {LAST}))[1]', 'excluded."a"'),
        (Combine.FIRST, f'(array_agg("a" order by {FIRST}))[1]', 'old."a"'),
    ],
)
def test_merge_combines_the_rows_of_one_key_first_and_then_with_the_old_row(
    combine: Combine, within: str, with_old: str
) -> None:
    sink = APPEND.model_copy(
        update={"write": Write.MERGE, "keys": ("id",), "merge": (MergedColumn(column="a", combine=combine),)}
    )
    assert text(write_staged(staged("a", "id"), sink)) == (
        f'{INTO} as old ("a", "id") select {within}, "id" {FROM} group by "id" order by "id" '
        f'on conflict ("id") do update set "a" = {with_old}'
    )


def test_every_way_of_combining_is_known_to_merge() -> None:
    merge = tuple(MergedColumn(column=str(combine), combine=combine) for combine in Combine)
    sink = APPEND.model_copy(update={"write": Write.MERGE, "keys": ("id",), "merge": merge})
    assert text(write_staged(staged("id", *Combine), sink)).count("excluded.") >= len(Combine) - 1


def test_rows_are_counted_by_batch_and_tags() -> None:
    assert text(count_staged(staged("id"))) == f"select count(*) {FROM}"


NASTY = ('a"; drop table orders; --', "{}", "a.b", "Ä b", "per cent %", "%s", "%(batch)s")


@pytest.mark.parametrize("write", list(Write))
@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_only_ever_an_identifier(write: Write, name: str) -> None:
    merge = (MergedColumn(column="b", combine=Combine.SUM),) if write is Write.MERGE else ()
    keys = () if write is Write.APPEND else (name,)
    sink = APPEND.model_copy(update={"write": write, "keys": keys, "merge": merge})
    plain = sink.model_copy(update={"keys": () if write is Write.APPEND else ("plain",)})
    quoted = '"' + name.replace('"', '""').replace("%", "%%") + '"'  # psycopg2 takes %% for % beside parameters
    expected = text(write_staged(staged("plain", "b", schema="plain"), plain)).replace('"plain"', quoted)
    assert text(write_staged(staged(name, "b", schema=name), sink)) == expected

"""Lint finds every module that names a connector in whose folder it is not, in code and in words."""

from __future__ import annotations

import pytest

from scripts.check_connector_names import problems, problems_in


@pytest.mark.parametrize(
    ("line", "connector"),
    [
        ('advice = "make batches smaller: source.kafka.maxOffsetsPerTrigger"', "kafka"),
        ("if spec.source.connector == 'kinesis':", "kinesis"),
        ("class PostgresTarget:", "postgres"),
        ("import psycopg2", "postgres"),
        ("# Doris forgets its labels", "doris"),
        ("spec.ledger.objectLog.location", "object_log"),
        ("open_object_log(spec)", "object_log"),
        ("has(self.sink.files)", "files"),
        ("connectors.from_here.spec", "from_here"),
    ],
)
def test_a_line_that_names_a_connector_is_found_in_whatever_form(line: str, connector: str) -> None:
    known = ("kafka", "kinesis", "postgres", "files", "doris", "object_log", "from_here")

    (problem,) = problems_in("operator/exactlyonce/reconcile/new.py", f"fine\n{line}\n", known)

    assert problem.startswith("operator/exactlyonce/reconcile/new.py:2: ")
    assert f"names the connector {connector};" in problem


@pytest.mark.parametrize(
    "line", ["from exactlyonce.sink.files import Orphan", "an object log in a folder", "two files"]
)
def test_ordinary_words_are_no_names(line: str) -> None:
    assert list(problems_in("operator/exactlyonce/reconcile/new.py", line)) == []


def test_a_connector_names_itself_in_both_halves_and_no_other_one() -> None:
    for half in ("operator/exactlyonce", "spark_apps/exactlyonce_spark"):
        assert list(problems_in(f"{half}/connectors/kafka/spec.py", "kafka, Kafka, KAFKA")) == []
        assert len(list(problems_in(f"{half}/connectors/kafka/spec.py", "Postgres"))) == 1


def test_what_connectors_share_names_none_of_them() -> None:
    assert len(list(problems_in("operator/exactlyonce/connectors/specs.py", "kafka"))) == 1
    assert len(list(problems_in("spark_apps/exactlyonce_spark/connectors/ports.py", "kafka"))) == 1


def test_an_allowance_is_for_one_connector() -> None:
    assert list(problems_in("operator/exactlyonce/schema/places.py", "kinesis")) == []
    assert len(list(problems_in("operator/exactlyonce/schema/places.py", "postgres"))) == 1


def test_the_product_names_no_connector_elsewhere() -> None:
    assert list(problems()) == []

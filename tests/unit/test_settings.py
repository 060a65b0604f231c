"""What the launcher writes for a driver is what the driver reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.cli.local_stream import driver_document
from exactlyonce_spark.settings import DriverSpec
from tests.resource_documents import FULL, VALID, document

RESOURCES = {**{name: document(changes) for name, changes in VALID.items()}, "nearly every field": FULL}


@pytest.mark.parametrize("name", RESOURCES)
def test_a_driver_reads_the_spec_that_the_resource_has(name: str, tmp_path: Path) -> None:
    stream = parse_stream(RESOURCES[name], "the test")
    file = tmp_path / "spec.json"
    file.write_text(driver_document(stream).render())
    read = DriverSpec.read(file)
    assert (read.stream_id, read.spec) == (stream.stream_id, stream.spec)


@pytest.mark.parametrize(("delivery", "tries"), [("ExactlyOnce", 4), ("AtLeastOnce", 4), ("AtMostOnce", 1)])
def test_a_task_of_a_local_driver_is_tried_again_unless_it_may_write_at_most_once(delivery: str, tries: int) -> None:
    stream = parse_stream(document({"spec.delivery": delivery, "spec.driver.cores": 3}), "the test")
    assert json.loads(driver_document(stream).render())["master"] == f"local[3,{tries}]"


def test_what_a_driver_reads_holds_no_secret(tmp_path: Path) -> None:
    """Secrets are read from their folder by each process that needs them, so a rotated one is picked up."""
    stream = parse_stream(FULL, "the test")
    assert {"secretRef": {"name": "warehouse"}}.items() <= json.loads(driver_document(stream).render())["spec"]["sink"][
        "postgres"
    ].items()
    assert "password" not in driver_document(stream).render()

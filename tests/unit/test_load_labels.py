"""Labels of loads: one for each run of a task, of the characters that servers take, and read back by whose they are."""

from __future__ import annotations

import re

import pytest

from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels

LABELS = LoadLabels("shop/orders", "token-1")
OF_DORIS = re.compile(r"[-_A-Za-z0-9:]{1,128}")
"""Source: Doris' FeNameFormat.LABEL_REGEX, as its documentation has it."""


@pytest.mark.parametrize("stream_id", ["a", "shop/orders", "x" * 253 + "/" + "y" * 253, "ü/é", "a/b:c"])
def test_a_label_has_the_characters_and_the_length_that_servers_take(stream_id: str) -> None:
    label = LoadLabels(stream_id, "token").label(Epoch(1 << 31), BatchNumber((1 << 63) - 1), f"99999-{(1 << 63) - 1:x}")
    assert OF_DORIS.fullmatch(label)


def test_the_epoch_of_a_label_is_read_from_it() -> None:
    assert LABELS.epoch_of(LABELS.label(Epoch(17), BatchNumber(4), "0-ab")) == 17


@pytest.mark.parametrize(
    "other",
    [
        LoadLabels("shop/orders", "token-2").label(Epoch(1), BatchNumber(1), "0-a"),
        LoadLabels("shop/orders2", "token-1").label(Epoch(1), BatchNumber(1), "0-a"),
        LoadLabels("shop_orders", "token-1").label(Epoch(1), BatchNumber(1), "0-a"),
        "somebody_elses_label",
        LABELS.prefix,
        f"{LABELS.prefix}1:2:3:4",
        f"{LABELS.prefix}one:2:0-a",
        pytest.param(f"{LABELS.prefix}{'1' * 5_000}:2:0-a", id="a number that is too long to be one"),
        f"{LABELS.prefix}\u0661:2:0-a",
    ],
)
def test_a_label_of_another_stream_life_or_program_is_nobodys(other: str) -> None:
    assert LABELS.epoch_of(other) is None


def test_another_epoch_batch_or_run_of_a_task_has_another_label() -> None:
    whose = [(1, 1, "0-a"), (2, 1, "0-a"), (1, 2, "0-a"), (1, 1, "0-b"), (1, 1, "1-a"), (11, 1, "0-a"), (1, 11, "0-a")]
    labels = [LABELS.label(Epoch(epoch), BatchNumber(batch), part) for epoch, batch, part in whose]
    assert len(set(labels)) == len(whose)

"""Labels as Doris takes them, and those of the published rule."""

from __future__ import annotations

import re

import pytest

from exactlyonce.connectors.doris.labels import LabelUnfit, as_label, compatible_label, may_meet
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels

OF_DORIS = re.compile(r"^[-_A-Za-z0-9:]{1,128}$")
"""Source: apache/doris, FeNameFormat.LABEL_REGEX."""


def test_the_protocols_own_labels_stay_as_they_are() -> None:
    label = LoadLabels("shop/orders", "token").label(Epoch(3), BatchNumber(4), "0-ab")
    assert as_label(label) == label


@pytest.mark.parametrize("text", ["", "a/b", "ü", "x" * 129, "x" * 10_000, "a b\n", "_sha256-0123456789abcdef"])
def test_any_other_text_becomes_a_label_that_doris_takes(text: str) -> None:
    assert OF_DORIS.match(as_label(text))
    assert as_label(text) != text


def test_texts_that_differ_where_they_are_cut_or_replaced_have_other_labels() -> None:
    texts = ["a/b", "a.b", "a_b", "x" * 200, "x" * 201, "x" * 200 + "/", "x" * 128, as_label("a/b")]
    assert len({as_label(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("location", "label"),
    [
        ("checkpoints", "checkpoints_12_3"),
        ("/data/check-points/a.b", "_data_check_points_a_b_12_3"),
        ("s3a://bucket/a|b", "s3a_bucket_a_b_12_3"),
        ("hdfs://nn:8020//x--y__z/", "hdfs_nn_8020_x_y_z_12_3"),
        ("file:///tmp/c_", "file_tmp_c_12_3"),
    ],
)
def test_a_compatible_label_follows_the_published_rule(location: str, label: str) -> None:
    assert compatible_label(location, 12, 3) == label


def test_a_compatible_label_is_the_last_128_characters() -> None:
    label = compatible_label("/".join(["abcdefghi"] * 20), 12, 3)
    assert len(label) == 128
    assert label == ("abcdefghi_" * 20 + "12_3")[-128:]


def test_runs_are_shrunk_before_the_text_is_cut() -> None:
    assert compatible_label("a" * 100 + "/" * 100, 1, 2) == "a" * 100 + "_1_2"


@pytest.mark.parametrize("location", ["/tmp/a b", "/tmp/ü", "/tmp/key=1"])
def test_a_location_of_other_characters_has_no_compatible_label(location: str) -> None:
    with pytest.raises(LabelUnfit, match="labelFormat: Default"):
        compatible_label(location, 0, 0)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("/c/a-b", "/c/a.b", True),
        ("/c/a", "/c/a/", True),
        ("/c/a", "/c/a/1", False),
        ("/c/a", "/c/b", False),
        ("/c/a", "/c/a/b", False),
        ("/x" * 80, "/y" + "/x" * 79, True),
        ("/x" * 80, "/x" * 79 + "/y", False),
    ],
)
def test_locations_whose_labels_can_be_the_same_are_told(one: str, other: str, meet: bool) -> None:
    assert may_meet(one, other) is meet
    assert may_meet(other, one) is meet


def test_locations_that_are_not_told_never_share_a_label() -> None:
    locations = ["/c/a", "/c/a/b", "/c/b", "/c/a1", "/c/1/a"]
    labels = [compatible_label(one, batch, part) for one in locations for batch in range(12) for part in range(12)]
    assert not any(may_meet(one, other) for one in locations for other in locations if one != other)
    assert len(set(labels)) == len(labels)

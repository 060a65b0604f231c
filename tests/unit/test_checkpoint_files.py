"""The single files of a checkpoint, read as real Spark wrote them and rendered as real Spark writes them."""

from __future__ import annotations

import json

import pytest

from exactlyonce.checkpoint import files
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.positions.ranges import Positions
from testbed.golden import ENDS, START, TOPIC, positions
from tests.checkpoints import golden

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def end_of(file: files.OffsetFile) -> Positions | None:
    """The positions in the entry of the only source."""
    entry = file.only_end
    return None if entry is None else CODEC.parse_entry(entry)


@pytest.mark.parametrize("batch", range(4))
def test_an_offset_log_of_version_1_gives_the_batchs_end(batch: int) -> None:
    file = files.parse_offsets(golden("planned", f"offsets/{batch}"))
    assert (file.version, end_of(file)) == (1, ENDS[batch])
    assert file.conf[SHUFFLE_PARTITIONS] == "2"


@pytest.mark.parametrize("batch", range(4))
def test_an_offset_log_of_version_2_gives_the_batchs_end(batch: int) -> None:
    content = golden("offsets-version-2", f"offsets/{batch}")
    assert content.startswith(b"v2\n")
    file = files.parse_offsets(content)
    assert (file.version, end_of(file)) == (2, ENDS[batch])


def test_kafkas_own_log_gives_where_batch_0_started() -> None:
    assert CODEC.parse_start(golden("first-batch-planned", "sources/0/0")) == START


@pytest.mark.parametrize(("state", "version"), [("checkpointed", 1), ("commits-version-2", 2), ("stateful", 2)])
def test_a_commit_log_gives_its_version(state: str, version: int) -> None:
    assert files.parse_commit(golden(state, "commits/1")) == version


def test_the_query_id_is_read_from_metadata() -> None:
    content = golden("checkpointed", "metadata")
    assert files.parse_metadata(content) == json.loads(content)["id"]


def test_a_batch_without_an_offset_has_none() -> None:
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
    assert end_of(files.parse_offsets(f"v1\n{metadata}\n-".encode())) is None
    assert end_of(files.parse_offsets(f"v2\n{metadata}\n0:-".encode())) is None


def test_a_rendered_commit_is_byte_for_byte_what_spark_writes() -> None:
    assert files.render_commit() == golden("checkpointed", "commits/0")


def test_rendered_metadata_is_byte_for_byte_what_spark_writes() -> None:
    content = golden("checkpointed", "metadata")
    assert files.render_metadata(files.parse_metadata(content)) == content


def test_a_rendered_kafka_start_is_what_spark_would_write() -> None:
    assert f"\0v1\n{START.to_json()}".encode() == golden("first-batch-planned", "sources/0/0")


@pytest.mark.parametrize("batch", range(4))
def test_rendered_offsets_differ_from_sparks_in_time_other_settings_and_spaces_only(batch: int) -> None:
    """The spaces are those that Spark writes for a source in Python, which it compares with what that source says next."""
    version, metadata, end = golden("planned", f"offsets/{batch}").decode().split("\n")
    written = json.loads(metadata)
    written["batchTimestampMs"] = 0
    written["conf"] = {SHUFFLE_PARTITIONS: written["conf"][SHUFFLE_PARTITIONS]}
    expected = "\n".join([version, json.dumps(written, separators=(",", ":")), json.dumps(json.loads(end))]).encode()
    assert files.render_offsets(CODEC.render_entry(ENDS[batch]), 2) == expected


@pytest.mark.parametrize("end", [None, START, positions(0, 0, 0), positions(2**63 - 1, 0, 1)])
def test_what_is_rendered_is_read_back(end: Positions | None) -> None:
    file = files.parse_offsets(files.render_offsets(None if end is None else CODEC.render_entry(end), 7))
    assert (end_of(file), file.conf) == (end, {SHUFFLE_PARTITIONS: "7"})


def test_a_commit_log_that_a_newer_spark_wrote_is_refused_by_name() -> None:
    content = golden("commits-version-3", "commits/1")
    assert content.startswith(b"v3\n"), "Spark 4.2.0 itself writes version 3 when sinks may change"
    with pytest.raises(files.VersionUnsupported, match=r"^its commit log version is v3; this release reads v1 and v2$"):
        files.parse_commit(content)


def test_an_offset_log_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(files.VersionUnsupported, match=r"^its offset log version is v3; this release reads v1 and v2$"):
        files.parse_offsets(golden("offsets-version-later", "offsets/3"))


def test_a_kafka_start_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(files.VersionUnsupported, match=r"^its Kafka source log version is v2; this release reads v1$"):
        CODEC.parse_start(b"\0v2\n" + START.to_json().encode())


def test_what_follows_a_version_that_is_not_known_is_not_looked_at() -> None:
    with pytest.raises(files.VersionUnsupported):
        files.parse_offsets(b"v12\nno one knows what this is")


@pytest.mark.parametrize("line", ["", "v", "1", "v-1", "v 1", "vx", "V1", "v\u0663", '{"id":"x"}'])
def test_a_first_line_that_is_no_version_is_torn(line: str) -> None:
    with pytest.raises(files.FileTorn, match="not a version"):
        files.parse_commit(f'{line}\n{{"nextBatchWatermarkMs":0}}'.encode())


def test_a_commit_of_which_only_the_version_was_written_is_torn_though_spark_accepts_it() -> None:
    with pytest.raises(files.FileTorn, match="its metadata line is missing"):
        files.parse_commit(b"v1")


@pytest.mark.parametrize("parse", [files.parse_metadata, files.parse_offsets, files.parse_commit, CODEC.parse_start])
def test_a_file_without_bytes_is_empty_and_one_with_other_bytes_is_torn(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(files.FileEmpty, match="it has no bytes"):
        parse(b"")
    for content in (b"\xff\xfe", b"\0", b"\0\xff", b"[]", b"null", b"v1\n[]\n[]"):
        with pytest.raises(files.FileTorn):
            parse(content)


def test_a_query_with_two_sources_is_no_stream_of_this_project() -> None:
    file = files.parse_offsets(golden("two-sources", "offsets/0"))
    with pytest.raises(files.FileTorn, match="it names 2 sources where a stream has one"):
        end_of(file)


def test_the_offset_of_another_source_is_no_kafka_position() -> None:
    file = files.parse_offsets(golden("file-source", "offsets/0"))
    with pytest.raises(files.FileTorn, match="topic 'logOffset' has 0 where a map of partitions belongs"):
        end_of(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"golden":{"0":-1}}', "offsets start at 0"),
        ('{"golden":{"0":"5"}}', "where an offset belongs"),
        ('{"golden":{"0":1.5}}', "where an offset belongs"),
        ('{"golden":{"0":true}}', "where an offset belongs"),
        ('{"golden":{"0":null}}', "where an offset belongs"),
        ('{"golden":{"a":5}}', "a partition named 'a'"),
        ('{"golden":{"-1":5}}', "a partition named '-1'"),
        ('{"golden":[5]}', "where a map of partitions belongs"),
        ("[5]", "not a map of topics"),
        ("", "not JSON"),
    ],
)
def test_positions_that_spark_never_writes_are_torn(text: str, words: str) -> None:
    content = golden("planned", "offsets/3").replace(ENDS[3].to_json().encode(), text.encode())
    with pytest.raises(files.FileTorn, match=words):
        end_of(files.parse_offsets(content))


def test_the_topic_of_the_golden_files_is_the_one_the_tests_know() -> None:
    assert f'{{"{TOPIC}":'.encode() in golden("planned", "offsets/3")

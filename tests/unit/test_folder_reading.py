"""The files of a folder on a disk: which are listed, and that each read proves that a file is the one that was listed."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from exactlyonce.connectors.files import source_lines
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_lines import FileUnreadable, FileVanished, NameFilter, NameUnreadable
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.errors import OriginMissing, SourceRefused, SourceUnreachable
from exactlyonce_spark.connectors.files.source_rows import Taken


def paths(folder: LocalFolder) -> set[str]:
    return {file.path for file in folder.files()}


EVERY_LINE = Taken(blank_lines=True)


def values(folder: LocalFolder, taken: Taken = EVERY_LINE) -> list[bytes]:
    return [line.value for file in folder.files() for line in folder.lines(file) if taken.takes(line)]


def test_files_are_listed_by_name_and_hidden_ones_left_out_as_spark_does(tmp_path: Path) -> None:
    for name in ("a.json", "b.csv", ".hidden.json", "_temporary.json", "below/c.json", "_log/d.json", ".git/e.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")

    (tmp_path / "below" / "again").symlink_to(tmp_path)
    (tmp_path / "linked.csv").symlink_to(tmp_path / "b.csv")

    assert paths(LocalFolder(str(tmp_path))) == {"a.json", "b.csv", "linked.csv"}
    assert paths(LocalFolder(f"file://{tmp_path}", NameFilter("*.json"))) == {"a.json"}
    assert paths(LocalFolder(str(tmp_path), NameFilter("*.json", recursive=True))) == {"a.json", "below/c.json"}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OriginMissing, match=f"There is no folder {tmp_path}/none; create it"):
        LocalFolder(f"{tmp_path}/none").files()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\n\r\nb\r\n", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"\xff\x00\n", [b"\xff\x00"]),
    ],
)
def test_lines_are_read_with_or_without_a_break_at_the_end_and_out_of_gzip(
    tmp_path: Path, content: bytes, expected: list[bytes]
) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder in (plain, packed):
        folder.mkdir()
    (plain / "a.txt").write_bytes(content)
    (packed / "a.txt.gz").write_bytes(gzip.compress(content))

    assert values(LocalFolder(str(plain))) == expected
    assert values(LocalFolder(str(packed))) == expected


def test_headers_and_blank_lines_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n\n1,a\n  \n2,b\n")

    assert values(LocalFolder(str(tmp_path)), Taken(header_lines=1)) == [b"1,a", b"2,b"]


def _append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more\n")


def _touch(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize(
    ("change", "expected", "sentence"),
    [
        (_append, FileChanged, r"a.txt \(9 bytes, was 4\)"),
        (_touch, FileChanged, r"a.txt \(of 4 bytes as before, but written to since\)"),
        (Path.unlink, FileVanished, r"a.txt was planned into a batch and is gone"),
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_that_is_not_the_one_that_was_listed_is_named_before_or_while_it_is_read(
    tmp_path: Path, change: Callable[[Path], None], expected: type[Exception], sentence: str, is_open: bool
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n")
    folder = LocalFolder(str(tmp_path))
    (listed,) = folder.files()
    reading = folder.lines(listed)
    if is_open:
        assert next(reading).value == b"a"
        if expected is FileVanished:
            path.unlink()
            assert [line.value for line in reading] == [b"b"], "what was opened is read to its end"
            return

    change(path)

    with pytest.raises(expected, match=f"{sentence}.*change maxFilesPerTrigger"):
        list(reading)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"plain text\n", id="plain text"),
        pytest.param(gzip.compress(b"a\nb\n" * 100)[:-9], id="cut short"),
        pytest.param(gzip.compress(b"a\n")[:12] + b"\xff" * 20, id="other bytes at its end"),
    ],
)
def test_a_file_that_is_not_whole_gzip_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gz").write_bytes(content)

    with pytest.raises(FileUnreadable, match=r"a\.gz is not a whole gzip file"):
        values(LocalFolder(str(tmp_path)))


def test_a_line_that_no_task_could_hold_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_lines, "MOST_LINE_BYTES", 10)
    (tmp_path / "a.txt").write_bytes(b"0123456789\n01234567890\n")

    with pytest.raises(FileUnreadable, match=r"Line 1 of .*a.txt has more than 10 bytes"):
        values(LocalFolder(str(tmp_path)))


def test_a_name_that_is_no_text_is_named(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")).write_text("{}")

    with pytest.raises(NameUnreadable, match=r"whose name is not UTF-8 \(\?.json\); rename it"):
        LocalFolder(str(tmp_path)).files()


def test_what_has_landed_is_removed_or_archived_only_as_it_was_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    incoming, archive = tmp_path / "incoming", tmp_path / "archive"
    (incoming / "below").mkdir(parents=True)
    for name in ("a", "below/b", "changed", "gone", "taken"):
        (incoming / name).write_text(name)
    folder = LocalFolder(str(incoming), NameFilter(recursive=True))
    files = sorted(folder.files(), key=lambda file: file.path)
    _append(incoming / "changed")
    (incoming / "gone").unlink()
    archive.mkdir()
    (archive / "taken").write_text("of another")

    folder.archive(files, f"file://{archive}")

    assert {
        path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    } == {
        "archive/a": "a",
        "archive/below/b": "below/b",
        "archive/taken": "of another",
        "incoming/changed": "changedmore\n",
        "incoming/taken": "taken",
    }
    assert [record.getMessage() for record in caplog.records] == [
        f"{incoming}/taken has landed and stays where it is: {archive}/taken exists already."
    ]
    folder.remove(files)
    assert paths(folder) == {"changed"}


def test_an_archive_that_was_cut_short_behind_the_link_is_finished(tmp_path: Path) -> None:
    incoming, archive = tmp_path / "incoming", tmp_path / "archive"
    incoming.mkdir()
    archive.mkdir()
    (incoming / "a").write_text("a")
    folder = LocalFolder(str(incoming))
    os.link(incoming / "a", archive / "a")

    folder.archive(folder.files(), str(archive))

    assert (folder.files(), (archive / "a").read_text()) == ((), "a")


def test_a_file_that_may_not_go_is_told_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a").write_text("a")
    (tmp_path / "archive").write_text("no folder")
    folder = LocalFolder(str(tmp_path / "incoming"))

    with pytest.raises(SourceUnreachable, match=r"a has landed and could not be taken away"):
        folder.archive(folder.files(), str(tmp_path / "archive"))


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.EPERM, "a has landed .*protected_hardlinks.* or set cleanSource: Delete or Off"),
        (errno.EXDEV, "a has landed .* archivePath is on another volume"),
    ],
)
def test_a_file_that_the_system_does_not_let_link_halts_the_stream_which_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, sentence: str
) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a").write_text("a")
    folder = LocalFolder(str(tmp_path / "incoming"))

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(SourceRefused, match=sentence):
        folder.archive(folder.files(), str(tmp_path / "archive"))
    assert paths(folder) == {"a"}

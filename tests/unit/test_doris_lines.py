"""Arrow batches as lines of JSON: what a reader of JSON finds in each line is what the row had."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from exactlyonce_spark.connectors.doris.rows import lines_of_batches

NAMES = ("id", 'na"me', "document")
ODD = ["", "a", None, 'q"uote', "back\\slash", "line\nbreak\r\t\x00\x1f\x7f", "é\u2028😀", "}\n{", "null"]


def batch(ids: Sequence[str | None], texts: Sequence[str | None], documents: Sequence[str | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.string()) for values in (ids, texts, documents)], list("xyz"))


def read(batches: Sequence[pa.RecordBatch]) -> list[tuple[object, ...]]:
    body = b"".join(lines_of_batches(batches, NAMES, {"document"}))
    assert body.endswith(b"\n")
    found = [json.loads(line) for line in body.decode().removesuffix("\n").split("\n")]
    assert all(tuple(one) == NAMES for one in found)
    return [tuple(one.values()) for one in found]


@pytest.mark.parametrize("texts", [ODD, ["plain", None, "é😀"], [None, None]])
def test_a_line_has_the_values_of_its_row(texts: list[str | None]) -> None:
    ids, documents = [str(number) for number in range(len(texts))], ['{"a":\n[1.50]}'] * len(texts)
    expected = list(zip(ids, texts, [{"a": [1.5]}] * len(texts), strict=True))
    assert read([batch(ids, texts, documents)] * 2) == expected * 2


@pytest.mark.parametrize("text", [*ODD, *map(chr, range(33))], ids=ascii)
def test_each_odd_text_is_escaped_where_it_is_the_only_one(text: str | None) -> None:
    assert read([batch(["1"], [text], ["1"])]) == [("1", text, 1)]


def test_a_part_of_a_batch_has_its_own_rows_alone() -> None:
    whole = batch(list("0123"), ["a", "b", 'c"', None], ["1", None, "[]", "2"])
    assert read([whole.slice(1, 2)]) == [("1", "b", None), ("2", 'c"', [])]


def test_an_empty_batch_has_no_lines() -> None:
    assert b"".join(lines_of_batches([batch([], [], [])], NAMES, {"document"})) == b""


def test_numbers_keep_their_digits_and_truth_values_are_no_texts() -> None:
    rows = pa.record_batch([pa.array([1, None]), pa.array([True, False]), pa.array(["1.10", None])], list("xyz"))
    body = b"".join(lines_of_batches([rows], NAMES, {"document"}))
    assert body == b'{"id":1,"na\\"me":true,"document":1.10}\n{"id":null,"na\\"me":false,"document":null}\n'


def test_a_document_that_is_none_is_no_row_of_its_own() -> None:
    with pytest.raises(ValueError, match="Extra data"):
        list(lines_of_batches([batch(["1"], ["a"], ['1}\n{"id":2'])], NAMES, {"document"}))


def test_a_text_that_is_no_utf8_is_refused() -> None:
    texts = pa.StringArray.from_buffers(1, pa.py_buffer(b"\x00\0\0\0\x01\0\0\0"), pa.py_buffer(b"\xff"))
    rows = pa.record_batch([pa.array(["1"]), texts, pa.array(["1"])], list("xyz"))
    with pytest.raises(ValueError, match="UTF8"):
        list(lines_of_batches([rows], NAMES, {"document"}))


def test_rows_whose_names_alone_would_not_fit_into_one_array_are_written_row_by_row() -> None:
    """Texts that are NULL take next to no bytes in Arrow, and a million long names do in JSON."""
    names, rows = [letter * 800 for letter in "abc"], 1_000_000
    first = bytes(next(lines_of_batches([pa.record_batch([pa.nulls(rows, pa.string())] * 3, list("xyz"))], names, ())))
    assert json.loads(first.split(b"\n")[0]) == dict.fromkeys(names)


KINDS: dict[str, list[str | None]] = {
    "plain": ["a", "", "é😀"],
    "with a NULL": ["a", None, "b"],
    "to be escaped": ['"', "\\", "\x1f"],
    "documents": ['{"a": 1}', "2", "null"],
    "of numbers": ["1", "-2.50", "2026-01-02 03:04:05"],
    "of numbers with a NULL": [None, "true", "1.0E10"],
}


@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, repeat=3)), ids=", ".join)
def test_columns_of_each_kind_stand_beside_each_other(kinds: tuple[str, str, str]) -> None:
    """How a column is written depends on what is in it, and its neighbours have the quotes of plain ones."""
    names = list("xyz")
    documents = {name for name, kind in zip(names, kinds, strict=True) if kind == "documents"}
    plain = {name for name, kind in zip(names, kinds, strict=True) if kind.startswith("of numbers")}
    rows = pa.record_batch([pa.array(KINDS[kind], pa.string()) for kind in kinds], names)
    body = b"".join(lines_of_batches([rows], names, documents, plain)).decode()
    expected = [
        {
            name: json.loads(KINDS[kind][at] or "") if kind == "documents" else KINDS[kind][at]
            for name, kind in zip(names, kinds, strict=True)
        }
        for at in range(3)
    ]
    assert [json.loads(line) for line in body.removesuffix("\n").split("\n")] == expected


@pytest.mark.parametrize("text", ['"', "\\", "\x00", "\x1f"])
def test_a_text_beside_the_part_of_a_batch_that_is_written_has_no_say(text: str) -> None:
    """All texts of a column lie one behind the other; only those of the part are looked at."""
    whole = batch(list("0123"), [text, "b", "c", text], ["1"] * 4)
    assert read([whole.slice(1, 2)]) == [("1", "b", 1), ("2", "c", 1)]
    assert read([whole.slice(2, 2)]) == [("2", "c", 1), ("3", text, 1)]

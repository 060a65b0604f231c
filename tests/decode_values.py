"""Values as records write them, right and wrong ones, for hypothesis: literals of JSON and fields of CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import strategies as st

from exactlyonce.api import columns as types

DIGITS = st.text("0123456789", min_size=1, max_size=25)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.text('ab":,\\{}[] \n\u0000\u00e4\u65e5\U0001f600', max_size=12),
    st.sampled_from(["", ":", " :", '":', '\\":', "null", "true", "1", "customer", 'a":1,"b']),
)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-300, 300).map(str),
    st.sampled_from(
        [str(sign * (1 << bits) + more) for bits in (7, 15, 31, 63) for sign in (1, -1) for more in (-1, 0, 1)]
    ),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), DIGITS.map(lambda it: it.lstrip("0") or "0"), DIGITS),
    st.builds("{}e{}".format, DIGITS.map(lambda it: it.lstrip("0") or "0"), st.integers(-420, 420)),
    st.builds("{}.{}E{:+d}".format, st.integers(-9, 9), DIGITS, st.integers(-50, 50)),
    st.sampled_from(
        [
            "-0",
            "-0.0",
            "0E-7",
            "1E-7",
            "1e400",
            "1e-400",
            "1.005",
            "1.500",
            "0.0000",
            "16777217.0000000000001",
            "1e99999999999",
        ]
    ),
    st.sampled_from(
        [
            "16777217",
            "16777219",
            "3.4028235677973366e38",
            "3.4028235677973367e38",
            "1.1754943508222875e-38",
            "7.006492321624085e-46",
        ]
    ),
    st.builds(
        "{}.{}".format,
        st.integers(2**24, 2**26),
        st.sampled_from(["5", "50000000000000000001", "4999999999999999999", "0"]),
    ),
)
NOT_NUMBERS = st.sampled_from(
    [
        "1,50",
        "+1",
        ".5",
        "5.",
        "007",
        "0x10",
        " 1",
        "1 ",
        "",
        "NaN",
        "Infinity",
        "-Infinity",
        "inf",
        "1e",
        "--1",
        "1_000",
        "\u0661",
        "1.5\n",
        "nan",
    ]
)
DAYS = st.one_of(
    st.dates().map(str),
    st.builds("{:04d}-{:02d}-{:02d}".format, st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32)),
    st.sampled_from(
        [
            "2024-02-29",
            "2023-02-29",
            "0000-01-01",
            "2026-1-2",
            "19723",
            "12:30",
            "2026-01-02T00:00:00",
            "20260102",
            "2026-01-02 ",
        ]
    ),
)
TIMES = st.one_of(
    st.times().map(lambda it: it.isoformat()),
    st.times().map(lambda it: it.isoformat("milliseconds")),
    st.builds(
        "{:02d}:{:02d}:{:02d}{}".format,
        st.integers(0, 24),
        st.integers(0, 60),
        st.integers(0, 61),
        DIGITS.map(lambda it: "." + it),
    ),
    st.sampled_from(["03:04", "03", "02:30:00", "03:04:05.1234567", "03:04:05.1230000000"]),
)
OFFSETS = st.sampled_from(["Z", "", "+01:00", "-0130", "+14", "-23:59", "+24:00", " Z", "z", "[UTC]", "+1"])
MOMENTS = st.one_of(
    st.builds("{}{}{}{}".format, DAYS, st.sampled_from(["T", " ", "t", "  "]), TIMES, OFFSETS),
    st.builds("{}T{}Z".format, st.dates().map(str), st.times().map(lambda it: it.isoformat("milliseconds"))),
    st.sampled_from(
        [
            "2026-03-29T02:30:00",
            "2026-10-25T02:30:00",
            "2026-10-25T03:00:00",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59.999999-00:01",
        ]
    ),
    st.integers(-(10**19), 10**19).map(str),
    st.sampled_from(["500000000000", "1764523417915916238", "1764523417.915916", "1764523417.9159161", "1e3", "-1"]),
)
BASE64 = st.one_of(
    st.binary(max_size=9).map(lambda it: __import__("base64").b64encode(it).decode()),
    st.sampled_from(["QR==", "QQ", "Q Q=", "====", "_-==", "QQ==\n", "QQ==QQ=="]),
)
WORDS = st.sampled_from(["true", "false", "True", "TRUE", "t", "1", "yes", ""])
FIELDS = st.one_of(TEXTS, NUMBERS, NOT_NUMBERS, DAYS, MOMENTS, BASE64, WORDS)


def scalar_texts(type_: types.ColumnType) -> st.SearchStrategy[str]:
    """Texts of which many fit the column."""
    match type_:
        case types.IntegerType() | types.DecimalType() | types.FloatingType():
            return st.one_of(NUMBERS, NUMBERS, NUMBERS, NOT_NUMBERS)
        case types.PlainType.BOOLEAN:
            return WORDS
        case types.PlainType.DATE:
            return DAYS
        case types.PlainType.BINARY:
            return BASE64
        case types.PlainType.TIMESTAMP | types.PlainType.TIMESTAMP_NTZ:
            return MOMENTS
        case _:
            return TEXTS


SPACE = st.sampled_from(["", "", "", " ", "\n", "\t ", "\r\n"])
BROKEN = st.sampled_from(
    ['"\\ud83d"', '"\\udc00x"', "tru", "01", "1.", '"a', '"\\x"', "[1,]", "{,}", "nul", "", "NaN", '"\t"', "'a'"]
)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=len(text) % 2 == 0)


def literals(type_: types.ColumnType) -> st.SearchStrategy[str]:
    """JSON of which much fits the column: as its type writes it, as a text, null, and other values."""
    others = st.one_of(
        st.just("null"),
        st.sampled_from(["true", "false"]),
        NUMBERS,
        TEXTS.map(quoted),
        objects(TEXTS.map(quoted), NUMBERS),
        BROKEN,
    )
    match type_:
        case types.StructType(fields):
            fitting = records(fields)
        case types.ArrayType(element):
            fitting = st.builds(
                lambda it, s: f"[{s}{(s + ',').join(it)}{s}]", st.lists(literals(element), max_size=4), SPACE
            )
        case types.MapType(key, value):
            fitting = objects(scalar_texts(key).map(quoted), literals(value))
        case types.TextType():
            fitting = st.one_of(
                scalar_texts(type_).map(quoted),
                scalar_texts(type_).map(quoted),
                NUMBERS,
                objects(TEXTS.map(quoted), NUMBERS),
            )
        case types.PlainType.BOOLEAN:
            fitting = WORDS
        case _:
            texts = scalar_texts(type_)
            fitting = st.one_of(texts, texts.map(quoted))
    return st.one_of(fitting, fitting, fitting, fitting, others)


def objects(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Objects, a few with equal keys."""
    return st.builds(
        lambda it, s, t: f"{{{s}{','.join(f'{key}{s}:{t}{value}' for key, value in it)}{t}}}",
        st.lists(st.tuples(keys, values), max_size=3),
        SPACE,
        SPACE,
    )


def records(columns: Sequence[types.Column]) -> st.SearchStrategy[str]:
    """Objects with the columns in any order, some missing, some twice, and others beside them."""
    members = [st.tuples(st.just(quoted(it.name)), literals(it.type)) for it in columns]
    extra = st.tuples(
        st.sampled_from(['"other"', '"x\\u0079"', '"\\u0069d"', '":"', '"v "']),
        st.one_of(NUMBERS, TEXTS.map(quoted), objects(TEXTS.map(quoted), NUMBERS), BROKEN),
    )
    every = st.tuples(*members).map(list)
    some = st.lists(st.one_of(*members, extra), max_size=len(columns) + 2)
    return st.builds(
        lambda it, s, t: f"{{{s}{','.join(f'{key}{t}:{s}{value}' for key, value in it)}{t}}}",
        st.one_of(every, every, every, every.flatmap(st.permutations), some),
        SPACE,
        SPACE,
    )


def around(record: bytes) -> list[bytes]:
    """A record by itself, and cut, joined, with bytes before and after it, and with its keys twice."""
    cut = len(record) * 2 // 3
    return [
        record,
        b" \n" + record + b"\r\n",
        b"\xef\xbb\xbf" + record,
        b"\xef\xbb\xbf\xef\xbb\xbf" + record,
        record[:cut],
        record + record,
        record + b"\n{}",
        record + b"}",
        record + b"\x00",
        record.replace(b"{", b'{"other":"\\":\xff",', 1),
        record.replace(b"{", b'{"other":{"v":1,"id":[2]},":":" :",', 1),
        record[:-1] + b"," + record[1:],
    ]


def json_batches(columns: Sequence[types.Column]) -> st.SearchStrategy[list[bytes]]:
    """Records of JSON, each of them in several forms; literals of one column are much cheaper to draw than objects."""
    nested = types.StructType | types.ArrayType | types.MapType
    if len(columns) == 1 and not isinstance(columns[0].type, nested):
        name = quoted(columns[0].name)
        given = st.lists(literals(columns[0].type).map(lambda it: f"{{{name}:{it}}}"), min_size=1, max_size=30)
    else:
        given = st.lists(records(columns), min_size=1, max_size=6)
    return given.map(lambda texts: [form for text in texts for form in around(text.encode("utf-8", "surrogatepass"))])


@st.composite
def csv_values(draw: st.DrawFn, columns: Sequence[types.Column]) -> bytes:
    """Lines of CSV; some fields are quoted, some wrongly."""
    fields = []
    for column in columns:
        text = draw(st.one_of(scalar_texts(column.type), scalar_texts(column.type), st.just("")))
        how = draw(st.sampled_from(["plain", "plain", "quoted", "raw"]))
        needs = set(text) & set(',"\r\n')
        fields.append(text if how == "raw" or (how == "plain" and not needs) else '"' + text.replace('"', '""') + '"')
    line = ",".join(fields) + draw(st.sampled_from(["", "", "", "\n", "\r\n", "\r", ",", '"', "\n\n", "x"]))
    return (
        draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"]))
        + line.encode("utf-8", "surrogatepass")
        + draw(st.sampled_from([b"", b"", b"", b"\xff"]))
    )

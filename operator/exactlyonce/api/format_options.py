"""The options of the strict decoder, and what to write instead of those of Spark's JSON and CSV parsers that it lacks.

Spark's parsers take values as other values where such an option tells them to. docs/values.md lists both tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from exactlyonce.api.format_type import FormatType

_ZONE = "the zone of times that are written without an offset, such as Europe/Berlin or +01:00 (UTC if not set)"
_NOT_A_NUMBER = "`true`: FLOAT and DOUBLE take the texts NaN, Infinity and -Infinity"

DECODER_OPTIONS: Mapping[FormatType, Mapping[str, str]] = {
    FormatType.JSON: {"timeZone": _ZONE, "allowNonNumericNumbers": _NOT_A_NUMBER},
    FormatType.CSV: {
        "sep": "what is between two fields (a comma if not set)",
        "quote": 'the character around fields, doubled within them (" if not set)',
        "nullValue": "the text without quotes that is NULL (nothing at all if not set)",
        "timeZone": _ZONE,
        "allowNonNumericNumbers": _NOT_A_NUMBER,
    },
    FormatType.RAW: {},
    FormatType.PARQUET: {},
    FormatType.ORC: {},
}
"""The options that the decoder has, and what they say."""

_TEXT_COLUMN = "declare the column as STRING and convert it in the transform"
_OTHER_FORM = (
    "take it out: times are ISO 8601, days YYYY-MM-DD. For others, declare the column as STRING and write "
    "try_to_timestamp(ts, 'dd.MM.yyyy HH:mm') or try_to_date in the transform; for numbers set format.timestampUnit"
)
_NOT_JSON = (
    "take it out, and have the producer write JSON (RFC 8259); to parse other text, use format Raw "
    "with value STRING and from_json in the transform"
)
_IN_TRANSFORM = "take it out, and write trim(name) in the transform: blanks are part of a field (RFC 4180)"

INSTEAD: Mapping[FormatType, Mapping[str, str]] = {
    FormatType.JSON: {
        "allowComments": _NOT_JSON,
        "allowNumericLeadingZeros": f"{_TEXT_COLUMN}, if the producer writes 007 as a text; {_NOT_JSON}",
        "allowSingleQuotes": _NOT_JSON,
        "allowUnquotedFieldNames": _NOT_JSON,
        "dateFormat": _OTHER_FORM,
        "locale": "take it out: names of months and days are not read",
        "primitivesAsString": "take it out: a column of type STRING takes any value as its text, exactly as in the record",
        "timestampFormat": _OTHER_FORM,
        "timestampNTZFormat": _OTHER_FORM,
    },
    FormatType.CSV: {
        "comment": "take it out, and write WHERE name NOT LIKE '#%' in the transform: a line is a record, "
        "whatever it begins with",
        "dateFormat": _OTHER_FORM,
        "emptyValue": 'take it out: an empty text is "" (RFC 4180)',
        "escape": "take it out: a quote within quotes is doubled (RFC 4180); for lines with backslashes, use "
        "format Raw with value STRING and from_csv in the transform",
        "ignoreLeadingWhiteSpace": _IN_TRANSFORM,
        "ignoreTrailingWhiteSpace": _IN_TRANSFORM,
        "locale": "take it out: numbers have a point and no grouping; for others declare the column as "
        "STRING and convert it in the transform",
        "timestampFormat": _OTHER_FORM,
        "timestampNTZFormat": _OTHER_FORM,
    },
}
"""The options that it does not have, and what to write instead."""


def problems(kind: FormatType, options: Mapping[str, str]) -> Iterator[str]:
    """Yield what to write instead of each option of Spark's parsers that the decoder does not have."""
    for name in options:
        if name in INSTEAD.get(kind, {}):
            yield f"{name}: {INSTEAD[kind][name]}"

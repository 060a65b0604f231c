"""How the values of records are turned into columns."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from exactlyonce.api.format_options import DECODER_OPTIONS, problems
from exactlyonce.api.format_type import FormatType
from exactlyonce.schema.constraints import Rule, cel_list
from exactlyonce.schema.model import Model, Texts


class OnMalformed(StrEnum):
    """What happens to a record whose value does not fit the schema."""

    FAIL = "Fail"
    DEAD_LETTER = "DeadLetter"


class OnTombstone(StrEnum):
    """What a record without a value is: in a compacted topic it deletes its key."""

    FAIL = "Fail"
    SKIP = "Skip"
    DELETE = "Delete"


DELETED = "_deleted"
"""With onTombstone: Delete, the column that says whether a row deletes its key: of the view `source`, of what the query yields,
and of what is staged."""


class TimestampUnit(StrEnum):
    """What a number in a column of type TIMESTAMP counts, since 1970."""

    SECONDS = "Seconds"
    MILLISECONDS = "Milliseconds"
    MICROSECONDS = "Microseconds"
    NANOSECONDS = "Nanoseconds"


_UNITED = (FormatType.JSON, FormatType.CSV)


def _options_rule(kind: FormatType) -> Rule:
    known = DECODER_OPTIONS[kind]
    allowed = f"nothing but {', '.join(known)}" if known else "nothing"
    return Rule(
        f"self.type != '{kind}' || !has(self.options) || self.options.all(name, name in {cel_list(known)})",
        lambda it: it.type is not kind or set(it.options) <= set(known),
        f"options may set {allowed} for {kind}; docs/values.md says what to write instead of those of Spark's parsers"
        if known
        else f"options may set {allowed} for {kind}",
        told=lambda it: "; ".join((f"options may set {allowed} for {kind}", *problems(kind, it.options))),
    )


class Format(Model):
    """How values are turned into columns."""

    type: FormatType = Field(
        FormatType.JSON, description="The encoding of a record's value. Parquet and Orc are for files of rows."
    )
    schema_: str = Field(
        alias="schema",
        min_length=1,
        max_length=100_000,
        description="The columns as SQL DDL; NOT NULL makes a record without the value malformed. "
        "Raw takes one column, STRING or BINARY. Parquet and Orc take columns by their names: one that a file lacks is NULL, "
        "others of the file are not read, and a file in which one has a type that does not fit fails its batch.",
    )
    on_malformed: OnMalformed = Field(
        OnMalformed.FAIL,
        description="Fail ends the batch and names the record; DeadLetter lands it in the ledger's table dead_letters.",
    )
    on_tombstone: OnTombstone = Field(
        OnTombstone.FAIL,
        description="How to treat a tombstone: a record without a value, which deletes its key in a compacted topic. Fail: it "
        "is malformed, unless the format is Raw with BINARY. Skip: it yields no row. Delete, with write: Upsert: it deletes "
        "the row of its key. The view `source` then has a column _deleted, true for a tombstone; of its other columns only "
        "those that begin with an underscore have values. The transform yields _deleted and takes the keys from _key, and a "
        "condition on other columns must not leave tombstones out (WHERE _deleted OR amount > 0). The source itself "
        "forgets tombstones: a stream that is further behind than the topic's delete.retention.ms misses deletions.",
    )
    timestamp_unit: TimestampUnit | None = Field(
        None,
        description="What a number in a column of type TIMESTAMP counts, since 1970; a record with such a number is malformed "
        "if this is not set. Times in texts are ISO 8601 in any case.",
    )
    options: Texts = Field(
        {},
        description="How texts are written: timeZone and allowNonNumericNumbers for Json and Csv; sep, quote and nullValue for "
        "Csv. docs/values.md says what each column takes.",
    )

    rules = (
        *(_options_rule(kind) for kind in FormatType),
        Rule(
            "!has(self.options) || !('allowNonNumericNumbers' in self.options) || "
            "self.options['allowNonNumericNumbers'] in ['true', 'false']",
            lambda it: it.options.get("allowNonNumericNumbers", "true") in ("true", "false"),
            "options.allowNonNumericNumbers is true or false",
        ),
        Rule(
            f"!has(self.timestampUnit) || self.type in {cel_list(_UNITED)}",
            lambda it: it.timestamp_unit is None or it.type in _UNITED,
            "timestampUnit is for Json and Csv",
        ),
    )

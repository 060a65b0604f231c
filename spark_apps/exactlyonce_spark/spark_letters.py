"""Dead letters as Spark parses them again: their kept bytes as records of the source, and the rows that the transform makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from exactlyonce.api.format import OnMalformed
from exactlyonce.api.spec import StreamSpec
from exactlyonce.errors import Refused
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce_spark import formats
from exactlyonce_spark.connectors.ports import FittedColumn, LetterSource, SourceReader
from exactlyonce_spark.observed import letters_of
from exactlyonce_spark.query import transformed
from exactlyonce_spark.replay_letters import LettersRead
from exactlyonce_spark.spark_batch import handed_over


class LettersNotOfThisSource(Refused):
    """The source's half inside Spark cannot make records of dead letters."""


def require_letter_source(reader: SourceReader, name: str) -> LetterSource:
    """Return the reader as one that makes records of dead letters.

    Raises:
        LettersNotOfThisSource: if it does not.
    """
    if not isinstance(reader, LetterSource):
        raise LettersNotOfThisSource(
            f"This release replays no dead letters of spec.source.{name}: what a record has beside key and value is not "
            "kept. Export them, and write them to the table by hand."
        )
    return reader


@dataclass(frozen=True)
class SparkLetters:
    """A `LetterReader` over a stream's format and transform.

    Whatever the stream does with malformed records now, here they are told apart and stay letters.
    """

    session: SparkSession
    reader: SourceReader
    source: LetterSource
    spec: StreamSpec
    columns: tuple[FittedColumn, ...]

    def read(self, letters: Sequence[RecordedLetter]) -> LettersRead:
        """Parse and transform letters; the rows are collected as Arrow."""
        records = self.source.letters(self.session, letters)
        given = self.spec.source.format.model_copy(update={"on_malformed": OnMalformed.DEAD_LETTER})
        columns = self.reader.columns(records)
        formats.parse_schema(given, self.reader.reserved)
        rows = transformed(
            self.session, formats.well_formed(records, columns, given), self.spec.transform, self.reader.reserved
        )
        malformed = letters_of(formats.malformed_records(records, columns, given))
        keys = {(letter.row.partition, letter.row.position): letter.row.key for letter in letters}
        return LettersRead(
            handed_over(rows, self.columns).toArrow().to_batches(),
            {keys[it.partition, it.offset]: it.error for it in malformed},
        )

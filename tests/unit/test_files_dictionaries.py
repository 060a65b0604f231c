"""Which columns of Parquet files are written without trying a dictionary, from the footers of the batch before."""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.parquet

from exactlyonce_spark.connectors.files.dictionaries import (
    FIRST_PAGE_ROWS,
    TRIED_AGAIN_EVERY,
    Dictionaries,
    without_dictionary,
)
from exactlyonce_spark.connectors.files.folders import Footer

OPTION = "parquet.enable.dictionary#"


def full(*useless: str) -> Footer:
    return Footer(FIRST_PAGE_ROWS, (), frozenset(useless))


def test_a_column_is_left_out_where_no_file_of_the_batch_before_has_a_dictionary_of_it() -> None:
    dictionaries = Dictionaries()
    assert dictionaries.options() == {}
    dictionaries.saw(full("id", "at"))
    dictionaries.saw(full("id"))
    assert dictionaries.options() == {f"{OPTION}id": "false"}


def test_a_file_of_a_few_rows_says_nothing_and_what_was_known_stays_known() -> None:
    dictionaries = Dictionaries()
    dictionaries.saw(full("id"))
    assert dictionaries.options() == {f"{OPTION}id": "false"}
    dictionaries.saw(Footer(FIRST_PAGE_ROWS - 1, (), frozenset({"name"})))
    assert dictionaries.options() == {f"{OPTION}id": "false"}


def test_every_column_is_tried_again_at_times_so_that_values_may_become_few() -> None:
    dictionaries = Dictionaries()
    told = []
    for _ in range(TRIED_AGAIN_EVERY + 2):
        told.append(dictionaries.options())
        is_useless = bool(told[-1]) or len(told) == 1
        dictionaries.saw(full("id") if is_useless else full())
    assert told[:2] == [{}, {f"{OPTION}id": "false"}]
    assert told[TRIED_AGAIN_EVERY - 1 :] == [{}, {}, {}], "the values are few by now, and stay in a dictionary"


def test_a_footer_tells_which_columns_have_no_dictionary_in_any_row_group() -> None:
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"id": [1, 2], "name": ["a", "a"], "held": [{"deep": 1}, {"deep": 2}]})
    few: Any = ["name"]  # the stubs know of no list
    pyarrow.parquet.write_table(table, sink, use_dictionary=few, row_group_size=1)
    footer = pyarrow.parquet.read_metadata(pyarrow.BufferReader(sink.getvalue()))
    assert without_dictionary(footer) == {"id", "held.deep"}

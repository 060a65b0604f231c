"""Properties of stream load that a stream may set, and the reasons for the best-known of the others. Performs no I/O.

They are headers of each load. What decides which rows count, and when, has its value already.
"""

from __future__ import annotations

import re
from typing import Annotated

from exactlyonce.schema.constraints import AllOf, Rule, cel_list, cel_text
from exactlyonce.schema.model import Texts

ALLOWED = (
    "cloud_cluster", "comment", "exec_mem_limit", "function_column.sequence_col", "load_to_single_tablet",
    "memtable_on_sink_node", "partitions", "send_batch_parallelism",
)  # fmt: skip
"""docs/data-operate/import/import-way/stream-load-manual.md, "Load configuration parameters"."""

_ALL_OR_NONE = "a row that does not fit its table fails its batch, since a row that is left out would be silently lost"
_BY_NAME = "the columns are those that the query yields"
_IN_TRANSFORM = "choose rows in the transform"
_OWN = "the sink sets it itself"

REFUSED = {
    "max_filter_ratio": _ALL_OR_NONE,
    "strict_mode": _ALL_OR_NONE,
    "group_commit": "a load that the server puts together with others is not committed in two phases",
    "two_phase_commit": _OWN,
    "label": _OWN,
    "format": _OWN,
    "timezone": "times are sent in UTC",
    "timeout": "it has a field of its own, sink.doris.loadTimeout",
    "columns": _BY_NAME,
    "partial_columns": _BY_NAME,
    "where": _IN_TRANSFORM,
    "merge_type": _IN_TRANSFORM,
    "delete": _IN_TRANSFORM,
}
_PRINTABLE = "[ -~]{0,1000}"
_IS_PRINTABLE = re.compile(_PRINTABLE)


def _never(name: str, reason: str) -> Rule:
    return Rule(
        f"!('{name}' in self)", lambda properties: name not in properties, f"properties may not set {name}: {reason}"
    )


_NOTHING_ELSE = Rule(
    f"self.all(name, name in {cel_list((*ALLOWED, *REFUSED))})",
    lambda properties: all(name in ALLOWED or name in REFUSED for name in properties),
    f"properties may set nothing but {', '.join(ALLOWED)}",
)
_ONE_LINE = Rule(
    f"self.all(name, self[name].matches({cel_text(f'^({_PRINTABLE})$')}))",
    lambda properties: all(_IS_PRINTABLE.fullmatch(value) is not None for value in properties.values()),
    "give properties values of printable ASCII characters, 1000 at most: they are sent as headers of HTTP",
)

LoadProperties = Annotated[
    Texts, AllOf((*(_never(name, reason) for name, reason in REFUSED.items()), _NOTHING_ELSE, _ONE_LINE))
]
"""Properties of stream load, without those that a stream may not set."""

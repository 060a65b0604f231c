"""Find modules that name a connector in whose folder they are not: in code, strings, docstrings and comments.

`python -m scripts.check_connector_names` names file, line and connector. What a module needs to say of a connector, the
connector answers (`connectors/specs.py`, docs/connectors.md); the registry alone has the names. `ALLOWED` has the exceptions.
Imports are checked by scripts/connector_contract.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from exactlyonce.connectors.registry import CONNECTORS
from scripts.generated import ROOT

HALVES = ("operator/exactlyonce", "spark_apps/exactlyonce_spark")
REGISTRY = "operator/exactlyonce/connectors/registry.py"

ORDINARY_WORDS = frozenset({"files", "delta"})
"""Connectors whose names mean something else as well: they are found where they are fields of the resource."""

ALSO = {"kafka": "confluent|maxOffsets|topicPattern|bootstrapServers", "kinesis": r"\bKCL\b", "postgres": "psycopg"}
"""What else a connector is recognised by: its client, and fields that no other one has."""

_PLACES = "how administrators write what they allow; a place belongs to no connector"
ALLOWED: Mapping[str, Mapping[str, str]] = {
    "operator/exactlyonce/api/refused_conf.py": {"kafka": "a setting of Spark, by the name that Spark gave it"},
    "operator/exactlyonce/cli/files.py": {"files": "a command for this sink alone, whose help names its fields"},
    "operator/exactlyonce/cli/recover.py": {"files": "a command for this sink alone, whose help names its fields"},
    "operator/exactlyonce/inspect": {
        "kafka": "what Spark's own source writes into its logs, of any query",
        "files": "files that a batch read, not a field of the resource",
    },
    "operator/exactlyonce/positions/ranges.py": {
        "kafka": "the source of the JSON form, and an example",
        "kinesis": "an example of what has a name and of a partition that ends",
    },
    "operator/exactlyonce/positions/selection.py": {"kafka": "the key that ledgers of every release have"},
    "operator/exactlyonce/schema/places.py": {"kinesis": _PLACES, "kafka": _PLACES},
    "operator/exactlyonce/connectors/doris": {
        "postgres": "its rule of where the ledger may be",
        "object_log": "its rule of where the ledger may be",
    },
    "spark_apps/exactlyonce_spark/connectors/delta": {
        "iceberg": "the other table whose path this is, see the contracts"
    },
    "operator/exactlyonce/connectors/iceberg": {"postgres": "where its catalog is"},
    "spark_apps/exactlyonce_spark/connectors/iceberg": {"postgres": "where its catalog is"},
    "operator/exactlyonce/connectors/kinesis": {
        "kafka": "its rule of tombstones says which source has them",
    },
}
"""Which modules may name which connectors, and why; a folder stands for all that is in it."""


def problems_in(name: str, text: str, connectors: Sequence[str] = CONNECTORS) -> Iterator[str]:
    """Yield a sentence for each line of a module that names a connector which is not its own. Performs no I/O."""
    if name == REGISTRY:
        return
    others = {connector: _pattern(connector) for connector in connectors if not _may_name(name, connector)}
    for number, line in enumerate(text.splitlines(), start=1):
        for connector, pattern in others.items():
            if (match := pattern.search(line)) is not None:
                yield (
                    f"{name}:{number}: {match[0]!r} names the connector {connector}; let its spec answer instead, or add the "
                    "module to ALLOWED with the reason."
                )


def problems() -> Iterator[str]:
    """Yield a sentence for each line of the product that names a connector and may not."""
    for half in HALVES:
        for file in sorted((ROOT / half).rglob("*.py")):
            yield from problems_in(file.relative_to(ROOT).as_posix(), file.read_text())


def main() -> int:
    """Print what was found; 1 if anything was."""
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def _pattern(connector: str) -> re.Pattern[str]:
    """Return how a connector is named: snake_case, CamelCase or one word, or as a field of the resource."""
    if connector in ORDINARY_WORDS:
        return re.compile(rf"(?<!exactlyonce\.)\b(source|sink|ledger)\.{connector}\b")
    named = rf"(?i:{connector.replace('_', '_?')})"
    return re.compile(f"{named}|{ALSO[connector]}" if connector in ALSO else named)


def _may_name(name: str, connector: str) -> bool:
    """Whether a module is in the connector's folder, or allowed to name it."""
    folders = [f"{half}/connectors/{connector}" for half in HALVES]
    folders += [place for place, named in ALLOWED.items() if connector in named]
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


if __name__ == "__main__":
    sys.exit(main())

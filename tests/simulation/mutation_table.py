"""Write the table of docs/adr/0006: each mutation, what it takes away, and a seed that finds it.

python -m tests.simulation.mutation_table            for all of them, on all cores
python -m tests.simulation.mutation_table NAME ...   for these; the seeds of the others stay as they were

A change of the model or of the protocol moves seeds. `make test` tries the seed of the table; `make test-connectors` searches
again where it no longer finds its mutation, and warns that the table is old. Where the first seed that finds one is a run that
never ends, which takes seconds, the table may name a later one in which something else goes wrong sooner.
"""

from __future__ import annotations

import re
import sys

from scripts.generated import ROOT
from tests.simulation.mutations import MUTATIONS
from tests.simulation.search import SEEDS_TO_FIND_A_MUTATION, first_that_finds, workers

PAGE = ROOT / "docs" / "adr" / "0006-simulation.md"
MARK = "<!-- made: do not edit below; python -m tests.simulation.mutation_table -->\n"
_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| (.*) \| ([^|]*) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    """Return what the page's table says: by name, what is taken away and the seed."""
    return {name: (told, seed) for _, name, told, seed in _ROW.findall(PAGE.read_text())}


def spoken(name: str) -> str:
    """Return a mutation's name as a person reads it."""
    return name.replace("_", " ")


def taken_away(name: str) -> str:
    """Return the first paragraph of a mutation's docstring: what it takes away."""
    return " ".join((MUTATIONS[name].__doc__ or "").split("\n\n")[0].split())


def seeds() -> dict[str, int]:
    """Return the seed that the page names for each mutation, where it names one."""
    told = rows()
    return {name: int(told[spoken(name)][1]) for name in MUTATIONS if told.get(spoken(name), ("", ""))[1].isdigit()}


def write(seeds: dict[str, str]) -> None:
    """Write the table."""
    lines = [
        f"| {number} | {spoken(name)} | {taken_away(name)} | {seeds.get(name, '')} |"
        for number, name in enumerate(MUTATIONS, 1)
    ]
    head = PAGE.read_text().split(MARK)[0].rstrip()
    table = ["", "| | Mutation | What it takes away | Seed |", "|---|---|---|---|", *lines, ""]
    PAGE.write_text(f"{head}\n\n{MARK}" + "\n".join(table))


def main() -> int:
    """Look for a seed for what the command line names, the table's own first; the exit status tells whether all were found."""
    before = seeds()
    known = {name: str(seed) for name, seed in before.items()}
    asked = sys.argv[1:] or list(MUTATIONS)
    with workers() as pool:
        pending = {
            name: pool.submit(first_that_finds, name, SEEDS_TO_FIND_A_MUTATION, before.get(name)) for name in asked
        }
        for name, search in pending.items():
            found = search.result()
            known[name] = "" if found is None else str(found.seed)
            words = "not found" if found is None else found.words.split("\n")[0][:160]
            print(f"{spoken(name)}: {words}", flush=True)
            write(known)  # each as it is found, so that a search that is stopped has not been for nothing
    return 0 if all(known.get(name) for name in asked) else 1


if __name__ == "__main__":
    sys.exit(main())

"""A contract of import-linter: nothing outside of a connector's folder imports from it. Every module is looked at.

A connector is a folder below one of the packages that the contract names, so a new module or a new connector is covered as
soon as it is there. The two halves of a connector, which have the same name, are one connector.
"""

from __future__ import annotations

from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ConnectorContract(Contract):
    """Its fields: the packages that hold connectors, and which connector may use which other one (`one -> other`)."""

    type_name = "connectors"

    packages = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Return every import of a connector by a module that is not its own."""
        packages = cast("list[str]", self.packages)  # a field becomes its value
        allowed = {tuple(pair.split(" -> ")) for pair in cast("list[str] | None", self.allowed) or ()}
        of = {module: connector_of(graph, module, packages) for module in graph.modules}
        missing = [package for package in packages if not any(module.startswith(f"{package}.") for module in of)]
        found = [
            (importer, imported)
            for importer in sorted(graph.modules)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if of[imported] not in (None, of[importer]) and (of[importer], of[imported]) not in allowed
        ]
        return ContractCheck(kept=not found and not missing, metadata={"found": found, "missing": missing})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print a sentence for each."""
        for package in check.metadata["missing"]:
            output.print_error(f"{package} has no modules; correct the contract's packages.")
        for importer, imported in check.metadata["found"]:
            output.print_error(
                f"{importer} imports {imported}, which belongs to a connector; ask for it by the registry."
            )


def connector_of(graph: ImportGraph, module: str, packages: list[str]) -> str | None:
    """Return the connector in whose folder a module is; None for one that is in no connector's."""
    for package in packages:
        name = module.removeprefix(f"{package}.").split(".")[0]
        if module.startswith(f"{package}.") and graph.find_children(f"{package}.{name}"):
            return name
    return None

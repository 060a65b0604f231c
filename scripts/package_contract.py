"""A contract of import-linter: no module of a package imports certain modules, except for those that are named.

The exceptions are listed, not what is checked, so a new module is covered as soon as it is there. An exception that imports
nothing of what is forbidden is told as well, and so is one that is not there any more.
"""

from __future__ import annotations

from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class PackageContract(Contract):
    """Its fields: the package, what its modules may not import, and which modules or packages in it may."""

    type_name = "package"

    package = fields.StringField()
    forbidden = fields.ListField(subfield=fields.StringField())
    exceptions = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Return every direct import of what is forbidden, and every exception that is not needed."""
        package, forbidden = cast("str", self.package), cast("list[str]", self.forbidden)  # a field becomes its value
        exceptions = cast("list[str] | None", self.exceptions) or []
        imports = [
            (importer, imported)
            for importer in sorted(graph.modules)
            if _is_within(importer, package)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if any(_is_within(imported, name) for name in forbidden)
        ]
        found = [pair for pair in imports if not any(_is_within(pair[0], name) for name in exceptions)]
        idle = [name for name in exceptions if not any(_is_within(importer, name) for importer, _ in imports)]
        missing = [] if package in graph.modules else [package]
        kept = not (found or idle or missing)
        return ContractCheck(kept=kept, metadata={"found": found, "idle": idle, "missing": missing})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print a sentence for each."""
        for package in check.metadata["missing"]:
            output.print_error(f"{package} has no modules; correct the contract's package.")
        for name in check.metadata["idle"]:
            output.print_error(f"{name} imports nothing of what is forbidden; take it from the exceptions.")
        for importer, imported in check.metadata["found"]:
            output.print_error(f"{importer} imports {imported}; move that into a module that may.")


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")

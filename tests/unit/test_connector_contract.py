"""Lint finds every module that imports from a connector's folder and is not in it, whichever module that is."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph

from scripts.connector_contract import ConnectorContract

PACKAGES = ["outside.connectors", "inside.connectors"]
MODULES = (
    "outside.connectors.registry",
    "outside.connectors.kafka",
    "outside.connectors.kafka.spec",
    "outside.connectors.files",
    "outside.connectors.files.spec",
    "outside.brand_new",
    "inside.connectors.kafka",
    "inside.connectors.kafka.connector",
    "inside.connectors.ports",
)


def found(*imports: tuple[str, str], allowed: tuple[str, ...] = (), packages: list[str] = PACKAGES) -> list[Any]:
    """Return what the contract finds in modules with these imports."""
    graph = ImportGraph()
    for module in MODULES:
        graph.add_module(module)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported)
    options = {"name": "the test", "type": "connectors", "packages": packages, "allowed": list(allowed)}
    check = ConnectorContract("the test", {}, options).check(graph, verbose=False)
    told = [*check.metadata["found"], *check.metadata["missing"]]
    assert check.kept is not bool(told)
    return told


def test_a_module_that_no_list_knows_may_not_import_a_connector() -> None:
    import_of_new = ("outside.brand_new", "outside.connectors.kafka.spec")
    assert found(import_of_new) == [import_of_new]


def test_neither_the_registry_nor_the_ports_may_import_a_connector() -> None:
    imports = [
        ("inside.connectors.ports", "inside.connectors.kafka.connector"),
        ("outside.connectors.registry", "outside.connectors.files"),
    ]
    assert found(*imports) == imports


def test_both_halves_of_a_connector_are_one_and_another_connector_needs_leave() -> None:
    assert found(("inside.connectors.kafka.connector", "outside.connectors.kafka.spec")) == []
    other = ("inside.connectors.kafka.connector", "outside.connectors.files.spec")
    assert found(other) == [other]
    assert found(other, allowed=("kafka -> files",)) == []


def test_what_connectors_share_may_be_imported_by_all() -> None:
    assert found(("outside.brand_new", "outside.connectors.registry")) == []


def test_a_package_that_is_no_longer_there_is_told() -> None:
    assert found(packages=["outside.moved"]) == ["outside.moved"]

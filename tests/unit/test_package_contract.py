"""Lint finds a forbidden import in every module of a package but the exceptions, and exceptions that nobody needs."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph

from scripts.package_contract import PackageContract

MODULES = ("app", "app.landing", "app.brand_new", "app.query", "app.connectors", "app.connectors.store", "application")


def found(*imports: tuple[str, str], exceptions: tuple[str, ...] = (), package: str = "app") -> list[Any]:
    """Return what the contract finds in modules with these imports."""
    graph = ImportGraph()
    for module in MODULES:
        graph.add_module(module)
    graph.add_module("pyspark", is_squashed=True)
    graph.add_module("pyspark_extras", is_squashed=True)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported)
    options = {
        "name": "the test",
        "type": "package",
        "package": package,
        "forbidden": ["pyspark"],
        "exceptions": list(exceptions),
    }
    check = PackageContract("the test", {}, options).check(graph, verbose=False)
    told = [*check.metadata["found"], *check.metadata["idle"], *check.metadata["missing"]]
    assert check.kept is not bool(told)
    return told


def test_a_module_that_no_list_knows_may_not_import_what_is_forbidden() -> None:
    assert found(("app.brand_new", "pyspark")) == [("app.brand_new", "pyspark")]


def test_an_exception_covers_what_is_in_it_and_no_other_module() -> None:
    imports = (("app.connectors.store", "pyspark"), ("app.query", "pyspark"))

    assert found(*imports, exceptions=("app.connectors", "app.query")) == []
    assert found(*imports, exceptions=("app.connectors",)) == [("app.query", "pyspark")]


def test_names_that_begin_alike_are_others() -> None:
    assert found(("application", "pyspark"), ("app.landing", "pyspark_extras"), ("app.landing", "app.query")) == []


def test_an_exception_that_needs_none_and_a_package_that_is_no_longer_there_are_told() -> None:
    assert found(exceptions=("app.query",)) == ["app.query"]
    assert found(package="moved") == ["moved"]

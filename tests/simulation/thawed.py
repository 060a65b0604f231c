"""Makes frozen dataclasses as cheap to build as others, in the processes that run seeds by the thousand and nowhere else.

The constructor of a frozen dataclass goes through `object.__setattr__` for each field: a tenth of what a seed took. That nobody
assigns to a field is what mypy checks, and what everything else runs with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

PACKAGES = ("exactlyonce", "exactlyonce_spark", "tests")


def thaw() -> int:
    """Give the frozen dataclasses of this project constructors that assign; return how many there are."""
    found: list[Any] = [cls for cls in set(_subclasses(object)) if _is_frozen(cls)]
    for cls in found:
        cls.__init__ = _constructor(cls)
        for name in ("__setattr__", "__delattr__"):
            delattr(cls, name)
    return len(found)


def _is_frozen(cls: Any) -> bool:
    settings = cls.__dict__.get("__dataclass_params__")
    if settings is None or not (settings.frozen and settings.init and "__setattr__" in cls.__dict__):
        return False
    return cls.__module__.partition(".")[0] in PACKAGES


def _subclasses(cls: type) -> Iterator[Any]:
    found: list[Any] = type.__subclasses__(cls)
    for subclass in found:
        yield subclass
        yield from _subclasses(subclass)


def _constructor(cls: Any) -> Any:
    """Return the constructor that the class would have if it were not frozen."""
    fields = [(field.name, Any, _copied(field)) for field in dataclasses.fields(cls)]
    after = {"__post_init__": lambda made: None} if hasattr(cls, "__post_init__") else {}  # it calls that of its class
    made: Any = dataclasses.make_dataclass(cls.__name__, fields, namespace=after)
    return made.__init__


def _copied(field: dataclasses.Field[Any]) -> Any:
    settings: dict[str, Any] = {"init": field.init, "kw_only": field.kw_only}
    if field.default is not dataclasses.MISSING:
        settings["default"] = field.default
    if field.default_factory is not dataclasses.MISSING:
        settings["default_factory"] = field.default_factory
    return dataclasses.field(**settings)

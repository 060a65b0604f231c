"""YAML as kubectl reads it, so that a file means the same here and there. Performs no I/O."""

from __future__ import annotations

import re
from typing import Any

import yaml


class KubectlLoader(yaml.SafeLoader):
    """Reads YAML as the library of kubectl does (sigs.k8s.io/yaml).

    What looks like a date is a text, y and n are true and false, and a key that stands twice is an error.
    """

    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012 # as the base class has it

    yaml_implicit_resolvers = {  # noqa: RUF012 # as the base class has it
        first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping, unless it has a key twice."""
        seen = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name} stands twice in one place", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


KubectlLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))

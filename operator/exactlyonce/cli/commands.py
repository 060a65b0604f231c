"""How every command behaves: help with examples, one sentence for what goes wrong, and for an extra that is not installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from exactlyonce.errors import ExactlyOnceError

_EXTRAS = {
    "boto3": "s3",
    "botocore": "s3",
    "kopf": "operator",
    "pandas": "local",
    "prometheus_client": "operator",
    "pyarrow": "local",
    "pyspark": "local",
}
"""What the package does without until an extra is installed: pyproject.toml, and tests/unit/test_distribution.py."""
_EXAMPLE_COLUMN = 60


class ExtraMissing(ExactlyOnceError):
    """A command needs a package that only an extra installs."""

    @classmethod
    def of(cls, module: str) -> ExtraMissing:
        """Return the error for a module of an extra."""
        extra = _EXTRAS[module]
        return cls(
            f"This command needs {module}, which is not installed; install the extra {extra}: "
            f"pip install 'exactlyonce-operator[{extra}]'."
        )


class Taught(click.Command):
    """A command whose help ends with examples: a line to type, without the program's name, and what it does."""

    def __init__(self, *given: Any, examples: Sequence[tuple[str, str]] = (), **options: Any) -> None:
        super().__init__(*given, **options)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, as they are typed with the program that was called."""
        program = ctx.find_root().info_name
        with formatter.section("Examples"):
            formatter.write_dl([(f"{program} {line}", words) for line, words in self.examples], _EXAMPLE_COLUMN)


class Commands(click.Group):
    """Turns this project's errors, and extras that are missing, into one sentence and exit status 1."""

    command_class = Taught

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ExactlyOnceError as problem:
            click.echo(str(problem), err=True)
        except ModuleNotFoundError as problem:
            module = (problem.name or "").partition(".")[0]
            if module not in _EXTRAS:
                raise
            click.echo(str(ExtraMissing.of(module)), err=True)
        sys.exit(1)

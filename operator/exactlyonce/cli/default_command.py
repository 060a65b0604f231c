"""A group of commands whose first word may be left out, as `exactlyonce offsets NAME` and `exactlyonce failures NAME` do."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from exactlyonce.cli.commands import Taught
from exactlyonce.cli.completion import files_and_streams

SHOW = "show"


class ShownByDefault(Taught, click.Group):
    """A group whose first word may be left out: what is not one of its commands is the stream that `show` shows."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `show` in front of what names no command."""
        help_asked = bool(args) and args[0] in self.get_help_option_names(ctx)
        named = bool(args) and args[0] in self.commands
        if not named and len(args) > 1 and not any(word.startswith("-") for word in args[:2]):
            raise click.UsageError(
                f"{ctx.info_name} has no command {args[0]!r}: its commands are {', '.join(sorted(self.commands))}; without "
                "one of them, name one FILE or NAME.",
                ctx,
            )
        return super().parse_args(ctx, args if named or help_asked else [SHOW, *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and what `show` may be asked about."""
        shown = files_and_streams(ctx, self.commands[SHOW].params[0], incomplete)
        return [*super().shell_complete(ctx, incomplete), *shown]

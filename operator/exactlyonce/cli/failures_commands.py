"""`exactlyonce failures NAME`, and `give-up`, `take-back` and `settle` below it."""

from __future__ import annotations

import click

from exactlyonce.cli.default_command import ShownByDefault
from exactlyonce.cli.failures import show
from exactlyonce.cli.give_up import give_up, take_back
from exactlyonce.cli.settle_replay import settle


@click.group(
    cls=ShownByDefault,
    examples=(
        ("failures orders -n shop", "what has not reached the sink, earliest first"),
        ("failures orders.yaml --status Quarantined", "what is in quarantine"),
        ("failures give-up orders -n shop --id 12/orders-0/340", "check whether a range can be given up"),
        ("failures show --help", "the options that select ranges"),
    ),
)
def failures() -> None:
    """List the ranges of records that did not land, and give up those that nothing can replay.

    `exactlyonce failures NAME` is short for `exactlyonce failures show NAME`, and takes its options.

    Exit status 1 if no range has the given id, or if a range could not be given up or taken back.
    """


failures.add_command(show)
failures.add_command(give_up)
failures.add_command(take_back)
failures.add_command(settle)

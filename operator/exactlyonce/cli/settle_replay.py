"""`exactlyonce failures settle`: a person's answer for the load of a replay that its sink has forgotten."""

from __future__ import annotations

from typing import Any

import click

from exactlyonce.cli.asked_ledger import asked_ledger
from exactlyonce.cli.cluster_commands import of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.give_up import BY, person, tell_stream
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.replay_decisions import answer_decision, read_decisions


@click.command(
    "settle",
    cls=Taught,
    examples=(
        ("failures settle orders -n shop", "which loads of replays are decided and not settled"),
        ("failures settle orders -n shop --aborted LABEL", "none of the rows of a load are in the table"),
        ("failures settle orders.yaml --committed LABEL", "all of them are"),
    ),
)
@TARGET
@click.option("--committed", metavar="LABEL", help="A load whose rows are all in the table.")
@click.option("--aborted", metavar="LABEL", help="A load of which no row is in the table.")
@BY
@NAME
@STATE
@SECRETS
@of_a_cluster
def settle(target: str, committed: str | None, aborted: str | None, by: str | None, **options: Any) -> None:
    """Answer for the load of a replay of which the sink no longer knows whether it has committed it.

    A replay says so, and names the load with its label, its rows and their ranges. Look for these rows in the table. The next
    replay, or the next driver, then counts the ranges as landed, or puts them back into quarantine. A wrong answer loses rows
    or doubles them, and nothing can tell. An answer counts only where the sink does not know the load.

    This command changes the ledger itself, as `failures give-up` does; a stream of a cluster gets the event LoadAnswered.
    Until the answer has been acted on, another one takes its place. Without an answer, the loads are listed.

    Exit status 1 if there is no such load.
    """
    if committed is not None and aborted is not None:
        raise click.UsageError("Give one answer: --committed or --aborted.")
    asked = asked_ledger(target, options)
    stream_id = asked.stream.stream_id
    label = committed if committed is not None else aborted
    if label is None:
        waiting = read_decisions(asked.ledger, stream_id)
        for decision in waiting:
            answer = decision.load.answer
            answered = "" if answer is None else f"; answered {answer}, which the next replay or driver acts on"
            click.echo(f"batch {decision.decided.batch}: {decision.load}{answered}")
        if not waiting:
            click.echo(f"No load of a replay of {stream_id} waits to be committed.")
        return
    answer = Answer.COMMITTED if committed is not None else Answer.ABORTED
    who = person(target, by, options)
    answer_decision(asked.ledger, stream_id, label, answer)
    follows = "count as landed" if answer.says_rows_are_there else "go back into quarantine"
    click.echo(
        f"{label}: {answer}. If the sink does not know this load, its ranges {follows} with the next replay or driver; if it "
        "does, what the sink says counts. Run a replay."
    )
    tell_stream(target, options, "LoadAnswered", f"{who} answered {answer} for {label} of a replay.")

"""`exactlyonce failures settle`: a person's answer for loads of replays of which the sink, or the ledger, has forgotten."""

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
from exactlyonce.ledger.restored import FoundPart, settle_restored


@click.command(
    "settle",
    cls=Taught,
    examples=(
        ("failures settle orders -n shop", "which loads of replays are decided and not settled"),
        ("failures settle orders -n shop --aborted LABEL", "none of the rows of a load are in the table"),
        ("failures settle orders.yaml --committed LABEL", "all of them are"),
        (
            "failures settle orders -n shop --ledger-restored --found 12/orders-0/340 --found 12/orders-1/9-15",
            "the ledger went back: the sink has all of the first range, and the second one's records 9 to 14",
        ),
    ),
)
@TARGET
@click.option("--committed", metavar="LABEL", help="A load whose rows are all in the table.")
@click.option("--aborted", metavar="LABEL", help="A load of which no row is in the table.")
@click.option(
    "--ledger-restored",
    is_flag=True,
    help="The ledger went back under its replays, and you have looked for its quarantine in the sink.",
)
@click.option(
    "--found",
    metavar="RANGE",
    multiple=True,
    help="With --ledger-restored: a range that the sink has, by its id, or a part of one as BATCH/PARTITION/FROM-UNTIL; repeat "
    "it for more.",
)
@BY
@NAME
@STATE
@SECRETS
@of_a_cluster
def settle(
    target: str,
    committed: str | None,
    aborted: str | None,
    by: str | None,
    *,
    ledger_restored: bool,
    found: tuple[str, ...],
    **options: Any,
) -> None:
    """Answer for the load of a replay of which the sink no longer knows whether it has committed it.

    A replay says so, and names the load with its label, its rows and their ranges. Look for these rows in the table. The next
    replay, or the next driver, then counts the ranges as landed, or puts them back into quarantine. A wrong answer loses rows
    or doubles them, and nothing can tell. An answer counts only where the sink does not know the load.

    This command changes the ledger itself, as `failures give-up` does; a stream of a cluster gets the event LoadAnswered.
    Until the answer has been acted on, another one takes its place. Without an answer, the loads are listed.

    With --ledger-restored, answer for a ledger that went back: replays are refused because the sink has committed loads that
    the ledger does not know. Look in the sink for the records of each range in quarantine, and name with --found what it has.
    These ranges then count as landed, the rest stays in quarantine, and replays land it. What you do not name and the sink has
    lands twice. The stream gets the event LedgerRestored.

    Exit status 1 if there is no such load or range.
    """
    if (committed is not None) + (aborted is not None) + ledger_restored > 1:
        raise click.UsageError("Give one answer: --committed, --aborted or --ledger-restored.")
    if found and not ledger_restored:
        raise click.UsageError("--found needs --ledger-restored.")
    asked = asked_ledger(target, options)
    stream_id = asked.stream.stream_id
    label = committed if committed is not None else aborted
    if ledger_restored:
        parts = [FoundPart.parse(text) for text in found]
        who = person(target, by, options)
        settle_restored(asked.ledger, stream_id, parts)
        named = ", ".join(map(str, parts)) or "nothing"
        click.echo(f"In the sink: {named}. The rest stays in quarantine, and replays of {stream_id} land it.")
        tell_stream(target, options, "LedgerRestored", f"{who} found {named} of the quarantine in the sink.")
        return
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

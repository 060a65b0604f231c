"""`exactlyonce`: run and look at streams from a file, without Kubernetes; and see and steer those of a cluster."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from exactlyonce import __version__
from exactlyonce.api.advice import advice_of
from exactlyonce.api.resource import ResourceInvalid, has_streams, read_streams
from exactlyonce.api.stream_replay import REPLAY_KIND, read_replays
from exactlyonce.cli.backfills import backfills
from exactlyonce.cli.cluster_commands import CLUSTER_COMMANDS, OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Commands, ExtraMissing
from exactlyonce.cli.completion import SHELLS, script
from exactlyonce.cli.dead_letters import dead_letters
from exactlyonce.cli.failures_commands import failures
from exactlyonce.cli.files import files
from exactlyonce.cli.inspect import checkpoint, inspect
from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.cli.offsets_commands import offsets
from exactlyonce.cli.recover import recover
from exactlyonce.cli.replay import replay
from exactlyonce.cli.settle_loads import settle_loads
from exactlyonce.cli.targets import FILE, NAME, SECRETS, STATE, TARGET, cluster_of, is_of_a_cluster, looked_at
from exactlyonce.launch.local import Unresponsive


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="exactlyonce")
def main() -> None:
    """Spark streams whose every record takes effect in the sink exactly once.

    A stream is described by a file with an ExactlyOnceStream, the same one that `kubectl apply` takes. `validate` and
    `run` take such a file; under `run` its driver is a process of this machine, and its status a file. `status`, `logs`,
    `suspend`, `resume` and `restart` take the name of a stream of a cluster, with the rights of your kubeconfig, and so do
    `explain`, `offsets`, `failures`, `dead-letters`, `replay`, `backfills`, `files`, `recover` and `settle-loads`, which take a
    file too. `checkpoint` and `inspect` take a folder that Spark wrote, of any query. All of it is also there as `kubectl
    exactlyonce`.

    Begin with `exactlyonce validate examples/orders.yaml`; `exactlyonce COMMAND --help` has examples of each.
    """


@main.command(
    examples=(
        ("validate orders.yaml", "one stream, or several in one file"),
        ("validate examples/orders-on-kubernetes.yaml", "before `kubectl apply` takes it"),
    )
)
@FILE
def validate(file: Path) -> None:
    """Check the streams and the StreamReplays of FILE as the API server would, and say in sentences what is wrong.

    Settings that are valid but may not be intended are reported as warnings. No server is
    contacted. Exit status 1 if anything is wrong.
    """
    try:
        replays = read_replays(file)
        streams = read_streams(file) if not replays or has_streams(file) else []
    except ResourceInvalid as problem:
        for sentence in problem.problems:
            click.echo(sentence, err=True)
        sys.exit(1)
    for stream in streams:
        named = f"{file}: ExactlyOnceStream {stream.metadata.namespace}/{stream.metadata.name}"
        click.echo(f"{named} is valid.")
        for sentence in advice_of(stream, streams):
            click.echo(f"{named}: warning: {sentence}", err=True)
    for replay_asked in replays:
        metadata = replay_asked.metadata
        click.echo(f"{file}: {REPLAY_KIND} {metadata.namespace}/{metadata.name} is valid.")


@main.command(
    examples=(
        ("run orders.yaml", "until Ctrl-C, or until it halts"),
        ("run orders.yaml --secrets /run/secrets", "with secrets from another folder"),
        ("run streams.yaml --name orders -o json", "one of several, with a line of JSON for each event"),
        ("run backfill.yaml --stream-file orders.yaml", "a StreamReplay, to its end"),
    )
)
@FILE
@NAME
@STATE
@SECRETS
@OUTPUT
@click.option(
    "--stream-file",
    type=click.Path(path_type=Path),
    help="Where FILE holds a StreamReplay: the file with its stream, unless FILE holds that too.",
)
@click.option(
    "--unresponsive",
    type=click.Choice([str(choice) for choice in Unresponsive]),
    default=str(Unresponsive.KILL),
    show_default=True,
    help="What to do with a driver that does not answer any more. `abandon` leaves it running, as a lost node does.",
)
@click.option(
    "--unresponsive-after", type=float, default=60.0, show_default=True, help="Seconds without an answer before that."
)
def run(
    file: Path,
    name: str | None,
    state: Path,
    secrets: Path,
    output: str,
    stream_file: Path | None,
    unresponsive: str,
    unresponsive_after: float,
) -> None:
    """Run the stream of FILE: reconcile, start its driver, watch it, and start the next one when it ends.

    Each attempt is printed with its verdict. Ctrl-C ends after the current batch; a second Ctrl-C ends at once. A stream that
    halted continues when it is run again; one with spec.suspend is not run. Exit status 0 when it drained, completed or is
    suspended, 1 when it halted.

    Where FILE holds a StreamReplay and no stream, or --name is that of one, it is run instead, by the stream that it names:
    what it asks for lands, as `exactlyonce replay` has it. The same command continues one that was killed. Exit status 1 if
    something of it was not landed.
    """
    from exactlyonce.cli.replay_resource import chosen_replay, run_replay_resource
    from exactlyonce.cli.run import run_stream

    if find_spec("pyspark") is None:
        raise ExtraMissing.of("pyspark")  # the driver is a process of its own: told before anything is begun
    replay_asked = chosen_replay(file, name)
    if replay_asked is not None:
        if output == "json":
            raise click.UsageError("-o json is for a stream; leave it out for a StreamReplay.")
        sys.exit(run_replay_resource(replay_asked, file, stream_file, state, secrets))
    if stream_file is not None:
        raise click.UsageError("--stream-file is for a FILE with a StreamReplay; leave it out.")
    opened = open_stream(choose_stream(file, name), state, secrets)
    opened.launcher.unresponsive = Unresponsive(unresponsive)
    opened.launcher.unresponsive_seconds = unresponsive_after
    sys.exit(run_stream(opened, as_json=output == "json"))


@main.command(
    examples=(
        ("explain orders.yaml", "what would be decided now"),
        ("explain orders -n shop", "what the operator decided last for a stream of the cluster"),
        ("explain orders -n shop -o json", "for a program"),
    )
)
@TARGET
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def explain(target: str, output: str, **options: Any) -> None:
    """Print a verdict and its evidence, and change nothing: for a FILE, what reconciliation would decide now.

    While its driver runs, that is what would be decided if it ended now. For stream NAME of a cluster it is the verdict that
    the operator has recorded, when, and what has happened since: the checkpoint is read by operator and drivers alone.

    Exit status 0 when a driver would be started or was, 2 when the stream would halt or has.
    """
    as_json = output == "json"
    if not is_of_a_cluster(target):
        from exactlyonce.cli.explain import explain_stream

        sys.exit(explain_stream(looked_at(target, options), as_json=as_json))
    from exactlyonce.cli.explain import EXIT_HALTS, EXIT_LAUNCHES
    from exactlyonce.cli.recorded import recorded_data, recorded_text

    cluster, namespace = cluster_of(options)
    found = cluster.stream(namespace, target)
    data = recorded_data(found)
    click.echo(json.dumps(data, indent=2) if as_json else recorded_text(found, datetime.now(UTC)))
    sys.exit(EXIT_HALTS if data["halts"] else EXIT_LAUNCHES)


for _command in (
    backfills,
    checkpoint,
    inspect,
    dead_letters,
    failures,
    files,
    offsets,
    recover,
    replay,
    settle_loads,
    *CLUSTER_COMMANDS,
):
    main.add_command(_command)


@main.command(
    examples=(
        ("completion bash", "bash: echo 'eval \"$(exactlyonce completion bash)\"' >> ~/.bashrc"),
        ("completion zsh", "zsh: echo 'eval \"$(exactlyonce completion zsh)\"' >> ~/.zshrc"),
        ("completion fish", "fish: exactlyonce completion fish > ~/.config/fish/completions/exactlyonce.fish"),
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, and names of streams.

    `kubectl exactlyonce …` is completed by kubectl itself, which finds kubectl_complete-exactlyonce on the PATH.
    """
    click.echo(script(main, shell))


def plugin() -> None:
    """The program kubectl-exactlyonce, which kubectl runs as `kubectl exactlyonce`."""
    main(prog_name="kubectl exactlyonce")


if __name__ == "__main__":
    main()

"""`exactlyonce`: run and look at streams from a file, without Kubernetes; and see those of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from exactlyonce import __version__
from exactlyonce.api.resource import ResourceInvalid, read_streams
from exactlyonce.cli.completion import SHELLS, namespaces, script, stream_names
from exactlyonce.cli.local_stream import LocalStream, choose_stream, default_state_root, open_stream
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.local import Unresponsive

FILE = click.argument("file", type=click.Path(path_type=Path))
NAME = click.option("--name", help="Which stream, where the file holds several.")
STATE = click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=default_state_root,
    show_default="~/.local/state/exactlyonce",
    help="The folder that keeps status and logs of local streams.",
)
SECRETS = click.option(
    "--secrets",
    type=click.Path(path_type=Path),
    default=Path("secrets"),
    show_default=True,
    envvar="EXACTLYONCE_SECRETS",
    help="The folder of secrets: one folder a secret, one file a key, as Kubernetes mounts them.",
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print.")


class _Group(click.Group):
    """Turns this project's errors into one sentence and exit status 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ExactlyOnceError as problem:
            click.echo(str(problem), err=True)
            sys.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="exactlyonce")
def main() -> None:
    r"""Spark streams whose every record takes effect in the sink exactly once.

    A stream is described by a file with an ExactlyOnceStream, the same one that `kubectl apply` takes. Here its driver is a
    process of this machine and its status a file. `status` shows the streams of a cluster instead; as the plugin of kubectl
    it is `kubectl exactlyonce status`.

    \b
    Try: exactlyonce validate examples/orders.yaml
    """


@main.command()
@FILE
def validate(file: Path) -> None:
    """Check the streams of FILE as the API server would, and say in sentences what is wrong.

    Nothing is connected to. Exit status 1 if anything is wrong.
    """
    try:
        streams = read_streams(file)
    except ResourceInvalid as problem:
        for sentence in problem.problems:
            click.echo(sentence, err=True)
        sys.exit(1)
    for stream in streams:
        click.echo(f"{file}: ExactlyOnceStream {stream.metadata.namespace}/{stream.metadata.name} is valid.")


@main.command()
@FILE
@NAME
@STATE
@SECRETS
@OUTPUT
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
    unresponsive: str,
    unresponsive_after: float,
) -> None:
    """Run the stream of FILE: reconcile, start its driver, watch it, and start the next one when it ends.

    Each attempt is printed with its verdict. Ctrl-C ends after the batch in hand; a second Ctrl-C ends at once. A stream that
    halted goes on when it is run again; one with spec.suspend is not run. Exit status 0 when it drained, completed or is
    suspended, 1 when it halted.
    """
    from exactlyonce.cli.run import run_stream

    opened = open_stream(choose_stream(file, name), state, secrets)
    opened.launcher.unresponsive = Unresponsive(unresponsive)
    opened.launcher.unresponsive_seconds = unresponsive_after
    sys.exit(run_stream(opened, as_json=output == "json"))


@main.command()
@FILE
@NAME
@STATE
@SECRETS
@OUTPUT
def explain(file: Path, name: str | None, state: Path, secrets: Path, output: str) -> None:
    """Print what reconciliation would decide for the stream of FILE now, with its evidence, and change nothing.

    While a driver runs, that is what would be decided if it ended now.

    Exit status 0 when a driver would be started, 2 when the stream would halt.
    """
    from exactlyonce.cli.explain import explain_stream

    sys.exit(explain_stream(_looked_at(file, name, state, secrets), as_json=output == "json"))


@main.command()
@FILE
@NAME
@STATE
@SECRETS
@OUTPUT
def offsets(file: Path, name: str | None, state: Path, secrets: Path, output: str) -> None:
    """Show where the stream of FILE stands in each partition: planned, checkpointed, landed, earliest, latest.

    Planned and checkpointed are what Spark's two logs say, landed what the ledger beside the table says; lag is latest less
    landed, in records.
    """
    from exactlyonce.cli.offsets import show_offsets

    show_offsets(_looked_at(file, name, state, secrets), as_json=output == "json")


def _looked_at(file: Path, name: str | None, state: Path, secrets: Path) -> LocalStream:
    return open_stream(choose_stream(file, name), state, secrets, read_only=True)


@main.command()
@click.argument("name", required=False, shell_complete=stream_names)
@click.option("-n", "--namespace", help="Whose streams; the default is the context's.", shell_complete=namespaces)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="The streams of every namespace.")
@click.option("-w", "--watch", is_flag=True, help="Show them live, until Ctrl-C.")
@OUTPUT
@click.option("--context", help="A context of the kubeconfig; the default is its current one.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig; the default is what kubectl uses.")
def status(
    name: str | None,
    namespace: str | None,
    everywhere: bool,
    watch: bool,
    output: str,
    context: str | None,
    kubeconfig: Path | None,
) -> None:
    r"""Show the streams of a cluster, or all that there is to know of one: phase, lag, driver, verdict, events.

    LAG counts the records that have not landed, BEHIND is the age of the oldest of them. Both are measured from Kafka and the
    ledger, so that they are right while no driver runs; a `?` says that one of the two does not answer, and what is shown is
    what was last known. Nothing is changed.

    
    exactlyonce status                the streams of the context's namespace
    exactlyonce status -A --watch     every stream of the cluster, live
    exactlyonce status orders -n shop all about one stream
    exactlyonce status -A -o json | jq -r '.[] | select(.status.phase == "Halted") | .metadata.name'

    Exit status 0, 2 when a stream that is shown has halted, 1 when the cluster could not be asked.
    """
    from rich.console import Console

    from exactlyonce.cli.status import show_status
    from exactlyonce.control.looking import ClusterLook

    if name and everywhere:
        raise click.UsageError("NAME is one stream of one namespace; leave -A out.")
    look = ClusterLook.connect(kubeconfig, context)
    wanted = None if everywhere else namespace or look.namespace
    sys.exit(show_status(look, name, wanted, watch=watch, as_json=output == "json", console=Console()))


@main.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    r"""Print the script that lets SHELL complete commands, options, and names of streams.

    
    bash: echo 'eval "$(exactlyonce completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(exactlyonce completion zsh)"' >> ~/.zshrc
    fish: exactlyonce completion fish > ~/.config/fish/completions/exactlyonce.fish

    `kubectl exactlyonce …` is completed by kubectl itself, which finds kubectl_complete-exactlyonce on the PATH.
    """
    click.echo(script(main, shell))


def plugin() -> None:
    """The program kubectl-exactlyonce, which kubectl runs as `kubectl exactlyonce`."""
    main(prog_name="kubectl exactlyonce")


if __name__ == "__main__":
    main()

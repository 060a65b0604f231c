"""Completion in a shell: click's own scripts, names of streams and namespaces from the cluster, and kubectl's protocol."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_EXACTLYONCE_COMPLETE"
_NO_FILES = 4
"""Cobra's ShellCompDirectiveNoFileComp, which a plugin tells kubectl after its last candidate."""


def script(command: click.Command, shell: str) -> str:
    """Return what the shell has to be told."""
    made = get_completion_class(shell)
    assert made is not None, "the shells that click knows are these"
    return made(command, {}, "exactlyonce", _VARIABLE).source()


def stream_names(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the streams whose names begin so; none where the cluster cannot be asked."""
    everywhere, namespace = context.params.get("everywhere"), context.params.get("namespace")
    found = _streams(context, None if everywhere else namespace or "")
    return [CompletionItem(name) for _, name in found if name.startswith(begun)]


def files_and_streams(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the streams whose names begin so, and let the shell add its files."""
    return [*stream_names(context, parameter, begun), CompletionItem(begun, type="file")]


def namespaces(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the namespaces that have streams."""
    return [CompletionItem(it) for it in sorted({it for it, _ in _streams(context, None)}) if it.startswith(begun)]


def kubectl_complete(command: click.Command, arguments: list[str]) -> int:
    """Print candidates for `kubectl exactlyonce …` as kubectl wants them: a line each, then a directive."""
    made = get_completion_class("bash")
    assert made is not None
    *before, begun = arguments or [""]
    for item in made(command, {}, "exactlyonce", _VARIABLE).get_completions(before, begun):
        if item.type == "plain" or begun:
            click.echo(item.value if item.type == "plain" else begun)
    click.echo(f":{_NO_FILES}")
    return 0


def _streams(context: click.Context, namespace: str | None) -> list[tuple[str, str]]:
    from exactlyonce.control.cluster_reader import ClusterReader

    try:
        cluster = ClusterReader.connect(context.params.get("kubeconfig"), context.params.get("context"))
        listed = cluster.streams(cluster.namespace if namespace == "" else namespace)
    except Exception:
        return []  # a shell that completes shows no errors
    return [(it["metadata"]["namespace"], it["metadata"]["name"]) for it in listed]


def main_of_kubectl() -> None:
    """The program kubectl_complete-exactlyonce."""
    from exactlyonce.cli.main import main

    sys.exit(kubectl_complete(main, sys.argv[1:]))

"""`exactlyonce logs`: what a stream's driver has written."""

from __future__ import annotations

import os
import sys
import time
from typing import BinaryIO

import click

from exactlyonce.control.cluster_reader import ClusterReader, LogNotYet
from exactlyonce.control.driver_logs import DriverPod, chosen_pod, driver_pods, log_lines
from exactlyonce.launch.pod_names import DRIVER, RECONCILE

_LOOK_SECONDS = 1.0


def show_logs(
    cluster: ClusterReader,
    namespace: str,
    name: str,
    *,
    attempt: int | None,
    previous: bool,
    container: str,
    follow: bool,
    tail: int | None,
    output: BinaryIO,
) -> None:
    """Print the log of one driver, of the latest unless another is asked for; with `follow` until its end or Ctrl-C."""
    stream = cluster.stream(namespace, name)
    pod, note = chosen_pod(stream, driver_pods(cluster, stream), attempt, previous=previous)
    if note is not None:
        click.echo(note, err=True)
    try:
        _print(cluster, namespace, name, pod, container, follow=follow, tail=tail, output=output)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # Who read it has seen enough; Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(
    cluster: ClusterReader,
    namespace: str,
    name: str,
    pod: DriverPod,
    container: str,
    *,
    follow: bool,
    tail: int | None,
    output: BinaryIO,
) -> None:
    told = False
    while True:
        try:
            for piece in log_lines(cluster, namespace, pod, container, follow=follow, tail=tail):
                output.write(piece)
                output.flush()
            return
        except LogNotYet as not_yet:
            if not follow:
                raise
            if not told:
                hint = f" What decides before it: --container {RECONCILE}." if container == DRIVER else ""
                click.echo(f"{not_yet} Waiting for it; press Ctrl-C to stop.{hint}", err=True)
                told = True
            time.sleep(_LOOK_SECONDS)
            now = driver_pods(cluster, cluster.stream(namespace, name))
            pod = next((found for found in now if found.name == pod.name), pod)

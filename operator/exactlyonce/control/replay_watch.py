"""What is done while a replay's pod runs: count what has landed, and end a pod that hangs or is refused. Blocking."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from exactlyonce.api.stream_replay_status import ReplayStatus
from exactlyonce.bounded_text import one_line
from exactlyonce.control.replay_resource import ReplayResource
from exactlyonce.crash_points import reached
from exactlyonce.launch.asked_ranges import Tally
from exactlyonce.launch.port import Running
from exactlyonce.launch.replay_pods import ReplayPods
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.stream_replay import counted_while_running, running_words

COUNT_AGAIN = timedelta(seconds=25)
"""So long after something was seen to have landed nothing is counted: what is written then wakes a pass."""


def watch(
    resource: ReplayResource, pods: ReplayPods, state: Running, count: Callable[[], Tally], now: Callable[[], datetime]
) -> bool:
    """Tell how far a running attempt has come, or end its pod where that hangs; return whether it was ended.

    Why it is ended is written before it is killed: whoever finds the pod gone then tells that, and kills it once more if it
    is not. `count` asks the ledger.
    """
    status = resource.status
    attempt = Epoch(status.attempt)
    named = status.model_copy(update={"pod_name": state.pod.name if state.pod is not None else status.pod_name})
    if status.no_progress_message is not None or state.hangs:
        words = status.no_progress_message or _hangs(named)
        resource.write(named.model_copy(update={"no_progress_message": words, "message": words}))
        reached("replay.hang-recorded", resource.document["metadata"]["namespace"], resource.name)
        pods.kill(attempt)
        return True
    if not state.started:
        resource.write(named.model_copy(update={"message": state.where}))
        return False
    is_due = named.progressed_at is None or now() - named.progressed_at >= COUNT_AGAIN
    counted = counted_while_running(named, count(), now()) if is_due else named
    resource.write(counted.model_copy(update={"message": running_words(counted)}))
    return False


def is_being_ended(resource: ReplayResource, pods: ReplayPods, problem: Exception) -> bool:
    """Ask the pod of a replay that is to be refused to end after its chunk; return whether it still runs.

    It is refused once the pod is gone: the next replay begins then, and would run beside it.
    """
    attempt = Epoch(resource.status.attempt)
    if not attempt or not isinstance(pods.state_of(attempt), Running):
        return False
    pods.drain(attempt)
    words = f"{one_line(str(problem), 2000).rstrip('.')}. The pod is being ended."
    resource.write(resource.status.model_copy(update={"message": words}))
    return True


def _hangs(status: ReplayStatus) -> str:
    return (
        f"The pod {status.pod_name} has shown no progress for all of the stream's driver.progressTimeout and is replaced; if a "
        "chunk is merely slow, give the replay a smaller chunk or the stream a longer driver.progressTimeout."
    )

"""A StreamReplay of a file, run on this machine as the operator would run it in a pod."""

from __future__ import annotations

from pathlib import Path

from exactlyonce.api.resource import ResourceInvalid, has_streams, read_streams
from exactlyonce.api.stream_replay import REPLAY_KIND, StreamReplay, read_replays
from exactlyonce.cli.asked_replay import AskedReplay
from exactlyonce.cli.replay_here import replay_here
from exactlyonce.launch.replay_pod import with_transform


def chosen_replay(file: Path, name: str | None) -> StreamReplay | None:
    """Return the StreamReplay of a file that is to be run; None where it is a stream.

    Raises:
        ResourceInvalid: if there is no telling which, or one in the file is invalid.
    """
    replays = read_replays(file)
    if not replays or (name is None and has_streams(file)):
        return None
    streams = [stream.metadata.name for stream in read_streams(file)] if has_streams(file) else []
    found = [replay for replay in replays if name in (None, replay.metadata.name)]
    if not found and name in streams:
        return None
    if len(found) != 1 or name in streams:
        names = ", ".join([*streams, *(replay.metadata.name for replay in replays)])
        raise ResourceInvalid([f"{file}: it holds {names}; choose one with --name, and give each a name of its own."])
    return found[0]


def run_replay_resource(replay: StreamReplay, file: Path, stream_file: Path | None, state: Path, secrets: Path) -> int:
    """Run a StreamReplay to its end, or show what it would replay where `dryRun` says so; return the exit status.

    Raises:
        ResourceInvalid: if the stream that it names is in neither file.
        ExactlyOnceError: as `replay_here`.
    """
    metadata, wanted = replay.metadata, replay.spec.stream
    place = stream_file or file
    streams = read_streams(place) if has_streams(place) else []
    found = [it for it in streams if (it.metadata.namespace, it.metadata.name) == (metadata.namespace, wanted)]
    if len(found) != 1:
        named = f"{REPLAY_KIND} {metadata.name} is of the stream {metadata.namespace}/{wanted}"
        raise ResourceInvalid(
            [f"{file}: {named}, which {place} does not hold; name the file that does with --stream-file."]
        )
    stream = with_transform(found[0], replay)
    asked = AskedReplay.of_resource(replay)
    return replay_here(stream, asked, state, secrets, yes=not replay.spec.dry_run, how="dryRun: false")

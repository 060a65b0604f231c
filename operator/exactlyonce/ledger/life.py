"""The token of a stream, and the life that it names: another one is drawn by a new start alone. Performs no I/O.

Annotations are bound to the whole token, so that each acts once. An adoption adds a random text to it, behind a dot, and
leaves what stands before it: labels, names of files and what is in quarantine are the stream's own as before.
"""

from __future__ import annotations

import hashlib

_ADOPTED = "."


def part_of_life(token: str) -> str:
    """Return the part of a token that stays the same for as long as the stream has not started over: a secret."""
    return token.partition(_ADOPTED)[0]


def adopted_token(token: str, drawn: str) -> str:
    """Return the token of a stream that is adopted; `drawn` is random."""
    return f"{part_of_life(token)}{_ADOPTED}{drawn}"


def life_of(token: str) -> str:
    """Return what others may know of the token, which is a secret: a stream that starts over has another life."""
    return hashlib.sha256(part_of_life(token).encode()).hexdigest()[:16]

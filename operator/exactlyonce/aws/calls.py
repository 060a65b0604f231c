"""How a call is made: within a time that is fixed before it, and again with growing pauses while that may help."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError

from exactlyonce.aws.answers import RAISED, error_of
from exactlyonce.aws.deadlines import each_within
from exactlyonce.aws.errors import AwsError, LoginMissing, LoginRefused, WrongSetting

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, waiting and chance, as the calls need them.

    `elapsed_seconds` never jumps; `wall_seconds` does not stand still while the machine is suspended.
    """

    elapsed_seconds: Callable[[], float] = time.monotonic
    wall_seconds: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call is made again, and how often at most: once where one that arrives late would do harm."""

    seconds: float
    tries: int = 1_000


@dataclass(frozen=True, slots=True)
class Call:
    """One operation, as the API names it, with its arguments.

    `before` is done before each try. `tell` hears of each try that is followed by another.
    """

    operation: str
    arguments: Mapping[str, Any]
    before: Callable[[], None] = lambda: None
    tell: Callable[[AwsError], None] = lambda error: None


class AwsClient:
    """A service at one address, for one process; threads may share it.

    `connect` makes boto3's client. Where `is_renewable`, it is called again after the login was refused, because it may find
    another one by then. `has_statuses`: see `answers.error_of`.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        patience: Patience,
        clock: Clock | None = None,
        *,
        is_renewable: bool,
        has_statuses: bool = False,
    ) -> None:
        self.clock = clock or Clock()
        self._connect = connect
        self._patience = patience
        self._is_renewable = is_renewable
        self._has_statuses = has_statuses
        self._api: Any = None
        self._guard = threading.Lock()

    def call(self, call: Call, parse: Callable[[Any], Parsed], until_seconds: float = float("inf")) -> Parsed:
        """Return what `parse` makes of the answer; what is read there of a body is within the call's time.

        No try begins after `until_seconds` of the clock, but the first. The first may take as long as one answer may, and each
        later one what is left of the call's time.

        Raises:
            AwsError: by situation.
        """
        clock = self.clock
        give_up_at = min(until_seconds, clock.elapsed_seconds() + self._patience.seconds)
        tries, may_renew = 0, self._is_renewable
        while True:
            call.before()
            tries += 1
            api = self.api()
            try:
                with each_within(None if tries == 1 else max(0.0, give_up_at - clock.elapsed_seconds())):
                    return parse(getattr(api, _method(call.operation))(**call.arguments))
            except (AwsError, *RAISED) as problem:
                error = error_of(problem, has_statuses=self._has_statuses)
                if isinstance(error, LoginRefused) and self._is_renewable:
                    self._forget(api)
                    if may_renew and not isinstance(error, LoginMissing):
                        may_renew = False
                        continue
                pause = pause_seconds(tries, clock.chance)
                is_last = tries >= self._patience.tries or clock.elapsed_seconds() + pause > give_up_at
                if is_last or not error.may_pass:
                    raise error from problem
            call.tell(error)
            clock.sleep(pause)

    def api(self) -> Any:
        """Return boto3's client.

        Raises:
            WrongSetting: if none can be made.
        """
        with self._guard:
            if self._api is None:
                try:
                    self._api = self._connect()
                except (ValueError, BotoCoreError) as problem:
                    raise WrongSetting(f"no client can be made ({type(problem).__name__})") from problem
            return self._api

    def _forget(self, api: Any) -> None:
        """Have the next call look for the login again, if nobody has since."""
        with self._guard:
            if self._api is api:
                self._api = None


def pause_seconds(tries: int, chance: random.Random) -> float:
    """Return how long to wait after so many tries: somewhere below a bound that doubles each time."""
    return chance.uniform(0.5, 1.0) * min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << min(tries, 16)))


def _method(operation: str) -> str:
    """Return boto3's name of an operation: `PutItem` is `put_item`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", operation).lower()

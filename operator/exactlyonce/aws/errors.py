"""What may become of a call to a service of AWS, one class for each situation. Performs no I/O.

A caller tells these to a person in its own words, which name what was asked for and which field to correct.
"""

from __future__ import annotations


class AwsError(Exception):
    """A call that was not answered as asked.

    `how` says what happened, in words without a subject. `code` and `said` are the service's own words, bounded and printable;
    empty if it said nothing. `is_of_identity` is true if STS said them, asked to exchange the web identity of this process.
    """

    may_pass = False
    """Whether the same call may be answered in a moment."""

    may_have_effect = False
    """Whether the call may have taken effect nevertheless: look again before anything follows from it."""

    def __init__(self, how: str, code: str = "", said: str = "", *, is_of_identity: bool = False) -> None:
        super().__init__(how)
        self.how = how
        self.code = code
        self.said = said
        self.is_of_identity = is_of_identity


class Unreachable(AwsError):
    """Nobody took the request, so it had no effect."""

    may_pass = True


class OutcomeUnknown(AwsError):
    """The request was sent, and no usable answer came: none in time, one that was cut off, or one that the server failed."""

    may_pass = True
    may_have_effect = True


class Throttled(AwsError):
    """The service turned the request away, because too many are made. It had no effect."""

    may_pass = True


class Conflict(AwsError):
    """The service turned the request away, because another one to the same place was under way. It had no effect."""

    may_pass = True


class ConditionFailed(AwsError):
    """The condition of a write does not hold. A request that was sent twice may have failed its own condition."""


class Missing(AwsError):
    """What was asked for is not there."""


class Busy(AwsError):
    """What was asked for is being made, changed or deleted."""


class Foreign(AwsError):
    """What answers is another kind of server."""


class Refused(AwsError):
    """The service refuses, for a reason that `code` names; a person has to mend it."""


class NotAllowed(Refused):
    """The login lacks a right."""


class LoginRefused(Refused):
    """The service does not accept the login."""


class LoginExpired(LoginRefused):
    """The service accepts the login no longer."""


class LoginMissing(LoginRefused):
    """There is no login, or one half of it."""


class WrongSetting(Refused):
    """The call cannot be made as it is configured: a region, an endpoint, a profile."""


class WrongName(WrongSetting):
    """The library refuses an argument before anything is sent: no service has anything of that name."""


class Untrusted(WrongSetting):
    """The server's certificate is not trusted, or it speaks no TLS."""

"""What ends a StreamReplay as Refused: what stream or replay say, so that waiting changes nothing. Performs no I/O."""

from __future__ import annotations

from exactlyonce.api.replay import ReplayRefused
from exactlyonce.errors import Refused
from exactlyonce.launch.asked_letters import LettersUnknown, LookedTooLong
from exactlyonce.launch.backfill import BackfillRefused
from exactlyonce.launch.pod_settings import ImageMissing
from exactlyonce.launch.pod_template import TemplateRefused
from exactlyonce.launch.port import ManifestRefused
from exactlyonce.ledger.given_ranges import RangesOverlap, TooManyRanges
from exactlyonce.ledger.letters import SetBacksUnknown
from exactlyonce.ledger.other_tables import IntoTakenTable
from exactlyonce.ledger.planned_backfills import BackfillDiffers
from exactlyonce.reconcile.replay_choice import RangesRefused


class StreamUnfit(Refused):
    """The stream that a replay names is not there, or is not the one that it was."""


class RangesForgotten(Refused):
    """Nothing says any more which ranges a replay had asked for."""

    @classmethod
    def by(cls, replay: str) -> RangesForgotten:
        """Return the error for a replay of this name."""
        return cls(
            f"The ConfigMaps of the StreamReplay {replay} are gone, so nothing says any more which ranges it had asked for; "
            "what it has landed is Replayed, and another StreamReplay takes the rest."
        )


class DryRunTooLong(Refused):
    """A dry run takes longer than one pass may."""

    @classmethod
    def of_slow_stores(cls) -> DryRunTooLong:
        """Return the error."""
        return cls(
            "The stores of this stream have answered too slowly for a dry run, which is not tried again by itself. Ask for "
            "less in another StreamReplay, or leave out dryRun"
        )


FINAL = (
    *(StreamUnfit, ReplayRefused, RangesRefused, RangesForgotten, LettersUnknown, RangesOverlap, TooManyRanges),
    SetBacksUnknown,
    *(LookedTooLong, DryRunTooLong),
    *(BackfillRefused, BackfillDiffers, IntoTakenTable),
    *(ManifestRefused, TemplateRefused, ImageMissing),
)
"""A person makes another replay."""

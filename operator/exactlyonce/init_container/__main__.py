"""`python3 -m exactlyonce.init_container`: reconcile one attempt of one stream. Started by the operator, never by hand."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import sys
from pathlib import Path

from exactlyonce.assembly import checkpoint_store, ledger_address, source_address
from exactlyonce.errors import Refused
from exactlyonce.launch.pod_verdict import EXIT_STATUS, Outcome, PodVerdict
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.in_pod import Brief, reconcile_in_pod
from exactlyonce.reconcile.observe import Stores

log = logging.getLogger("exactlyonce.init_container")


class BriefUnreadable(Refused):
    """The brief is not one that this release understands."""


def main() -> int:
    """Reconcile, leave the word and return the exit status: 0 lets the driver's container start, and nothing else does."""
    parser = argparse.ArgumentParser(prog="python3 -m exactlyonce.init_container", description=__doc__)
    parser.add_argument("--brief", type=Path, required=True, help="what the operator knows (JSON)")
    parser.add_argument("--epoch", type=int, required=True, help="the attempt's epoch")
    parser.add_argument("--word", type=Path, required=True, help="the file that takes what came of it")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    word = _word(options.brief, Epoch(options.epoch))
    with contextlib.suppress(OSError):
        options.word.write_text(word.render())
    log.info("%s: %s %s", word.outcome, word.kind or "", word.message)
    return EXIT_STATUS[word.outcome]


def _word(file: Path, epoch: Epoch) -> PodVerdict:
    try:
        brief = _read(file)
        return reconcile_in_pod(_stores(brief), brief, epoch)
    except Refused as problem:
        return PodVerdict(Outcome.REFUSED, str(problem))


def _read(file: Path) -> Brief:
    try:
        return Brief.parse(file.read_text())
    except (OSError, KeyError, TypeError, ValueError) as problem:
        said = " ".join(str(problem).split())
        raise BriefUnreadable(
            f"The pod does not understand its {file.name} ({type(problem).__name__}: {said[:300]}); give driver and "
            "operator images of the same release."
        ) from problem


def _stores(brief: Brief) -> Stores:
    """Open the stores with the secrets as they are mounted."""
    spec, secrets = brief.stream.spec, functools.partial(read_secret, Path(os.environ[SECRETS_FOLDER]))
    return Stores(
        ledger_address(spec, secrets).open(application=f"exactlyonce {brief.stream.stream_id}"),
        checkpoint_store(spec.checkpoint, secrets),
        source_address(spec.source, secrets).open(),
    )


if __name__ == "__main__":
    sys.exit(main())

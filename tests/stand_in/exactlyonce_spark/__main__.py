"""`python -m exactlyonce_spark` with the driver's arguments: lives, beats and ends as STAND_IN says.

STAND_IN holds words: `orphan` and `orphan-in-its-own-session` leave a child behind that outlives this process, `silent` gives
no heartbeat, `die` ends at once with status 7. Otherwise it lives until SIGTERM, leaves last message and ends with status 0.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("--spec", "--last-words", "--heartbeat"):
    parser.add_argument(name, type=Path, required=True)
for name in ("--epoch", "--parent"):
    parser.add_argument(name, type=int)
options = parser.parse_args()
asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())
words = os.environ.get("STAND_IN", "").split()

print("the stand-in has begun", flush=True)
if any(word.startswith("orphan") for word in words):
    own_session = "orphan-in-its-own-session" in words
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=own_session)
if "die" in words:
    sys.exit(7)
while True:
    if "silent" not in words:
        options.heartbeat.touch()
    (options.heartbeat.parent / "begun").touch()
    if asked.wait(0.2):
        break
options.last_words.write_text(json.dumps({"reason": "Drained", "error": f"epoch {options.epoch} was asked to end"}))

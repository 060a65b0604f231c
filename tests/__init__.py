"""Tests hold every write of a phase to the table of transitions, and so do the processes that they start."""

import os

os.environ["EXACTLYONCE_STRICT_PHASES"] = "1"  # reconcile/phase_check.py

"""Stand-ins for parts that a test is not about."""

import os
import sys
from pathlib import Path

PYTHONPATH = os.pathsep.join([str(Path(__file__).parent), *sys.path])
"""With this, `python -m exactlyonce_spark` starts the stand-in for the driver."""

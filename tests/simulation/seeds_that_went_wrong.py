"""Seeds of long runs that went wrong once, and go right."""

from __future__ import annotations

SEEDS_THAT_WENT_WRONG = (
    37039,
    47704,
    50060,
    61145,
    61988,
    74920,
    79088,
    80997,
    85905,
    86600,
    95496,
    98503,
    98866,
    103122,
    103716,
    106548,
    110100,
    115626,
    270242,
    384676,
    401849,
    431214,
    482677,
    501902,
    595720,
    692518,
    830743,
    869896,
)
"""Each showed a mistake of the protocol, of the model or of the oracle that 10,000 seeds had not shown."""

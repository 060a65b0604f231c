"""What the cases of test_alert_rules.py are made of."""

from __future__ import annotations

from typing import Any

import pytest

ORDERS = '{namespace="shop",stream="orders"}'
REPLAY = '{namespace="shop",stream="orders",replay="mend"}'
HALTED = '{namespace="shop",stream="orders",phase="Halted"}'
SUSPENDED = '{namespace="shop",stream="orders",phase="Suspended"}'
GIBIBYTE = 2**30
RISES, FALLS = f"{GIBIBYTE * 90}+{GIBIBYTE}x719", f"{GIBIBYTE * 810}-{GIBIBYTE}x719"
RUNNING = '{namespace="shop",stream="orders",phase="Running"}'
BACKING_OFF = '{namespace="shop",stream="orders",phase="BackingOff"}'
COMPLETED = '{namespace="shop",stream="orders",phase="Completed"}'
STALLED = '{namespace="shop",stream="orders",type="Stalled",status="True"}'
NOT_STALLED = '{namespace="shop",stream="orders",type="Stalled",status="False"}'
SHOWN = '{namespace="shop",stream="orders",type="LandedShown",status="True"}'
NOT_SHOWN = '{namespace="shop",stream="orders",type="LandedShown",status="False"}'
FIRST, SECOND = '{lease="ops/first",pod="a"}', '{lease="ops/second",pod="b"}'


def series(name: str, labels: str, values: str) -> dict[str, str]:
    return {"series": f"exactlyonce_{name}{labels}", "values": values}


def case(alert: str, inputs: list[dict[str, str]], fires_at: str | None, quiet_at: str, said: str = "") -> Any:
    """Inputs of one value a minute; the alert fires at one moment, with these words, and is quiet at another."""
    return pytest.param(alert, inputs, fires_at, quiet_at, said, id=f"{alert}-{said[:20] or 'quiet'}")

#!/usr/bin/env python3
"""Writes the traces beside it: loads of three days, the same in every run.

    python3 tests/data/traces/generate.py
"""

import math
import pathlib
import random

MINUTE, HOUR, DAY = 60, 3600, 86400
END = 3 * DAY


def stream(rate, step=5 * MINUTE):
    """Documents that expire all the time, `rate(second)` of them a second."""
    return [(second, round(rate(second) * step)) for second in range(0, END, step)]


def burst(documents, begin, minutes=5):
    """Documents that expire within some minutes."""
    return [(begin + i * MINUTE, documents // minutes) for i in range(minutes)]


def diurnal(second):
    return 154.32 * (1 - 0.85 * math.cos(2 * math.pi * second / DAY))


def heavy_tailed():
    """Most minutes have next to nothing, few have most of it."""
    dice = random.Random(2013)
    return [(second, round(1100 * dice.paretovariate(1.1))) for second in range(0, END, MINUTE)]


def old():
    """What has gathered in 90 days before the rule came into force."""
    return [(-90 * DAY + i * 6 * HOUR, 10_000_000 // 360) for i in range(360)]


TRACES = {
    "burst": ("10 million at once, and 20 a second", stream(lambda _: 20) + burst(10_000_000, 6 * HOUR)),
    "two_bursts": (
        "Twice 10 million, 12 hours apart, and 10 a second",
        stream(lambda _: 10) + burst(10_000_000, 6 * HOUR) + burst(10_000_000, 18 * HOUR),
    ),
    "uniform": ("100 a second", stream(lambda _: 100)),
    "diurnal": ("Busy at noon, quiet at midnight: 40 million", stream(diurnal)),
    "heavy_tailed": ("By the minute, with a heavy tail", heavy_tailed()),
    "ramp": ("From nothing to 250 a second", stream(lambda second: 250 * second / END)),
    "first_activation": (
        "10 million old documents when the rule comes into force, and 30 a second",
        old() + stream(lambda _: 30),
    ),
}

for name, (title, cohorts) in TRACES.items():
    lines = [f"# {title}.", "expires_at_seconds,count"]
    lines += [f"{second},{count}" for second, count in sorted(cohorts) if count]
    path = pathlib.Path(__file__).with_name(f"{name}.csv")
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.name}: {sum(count for _, count in cohorts):,} documents")

#!/usr/bin/env python3
"""What a sweeper costs that has nothing to do.

    python3 benches/idle.py [--indexes N] [--seconds N] [--quick] [--json]

Makes 500 TTL indexes, each on a collection with one document that expires in a year, and runs `ttl-index run` on them
with its defaults. After a minute and a half, in which it gets to know them, it is watched for three minutes: every
command that the server counts (`metrics.commands` of serverStatus), and the processor time of the process, as the
kernel counts it. What the server counts without a sweeper, watched as long in the same way before, is taken off.
Exits with 1 if it is more than 12 commands a second or 1 % of one core.

Takes about ten minutes. Needs what memory.py needs, and fetches pymongo.
"""

import sys
import time

from bed import Bed, PAYLOAD, Told, arguments, cpu_seconds, insert

A_YEAR_MS = 31_536_000_000


def commands(bed):
    """How often each command was called so far."""
    told = bed.client.admin.command("serverStatus")["metrics"]["commands"]
    return {name: counts["total"] for name, counts in told.items() if isinstance(counts, dict) and "total" in counts}


def watched(bed, seconds, pid=None):
    """Commands a second by name, and the share of a core that the process took."""
    before, began, cpu = commands(bed), time.monotonic(), cpu_seconds(pid) if pid else 0.0
    time.sleep(seconds)
    cpu = (cpu_seconds(pid) if pid else 0.0) - cpu
    took, after = time.monotonic() - began, commands(bed)
    rates = {name: (total - before.get(name, 0)) / took for name, total in after.items()}
    return {name: rate for name, rate in rates.items() if rate}, cpu / took


def main():
    asked = arguments(
        __doc__,
        indexes=(500, 20, "TTL indexes"),
        seconds=(180, 10, "how long it is watched"),
        warm=(90, 5, "how long it runs before, in seconds"),
    )
    told = Told(asked)
    with Bed() as bed:
        for number in range(asked.indexes):
            insert(bed.client.idle[f"c{number}"], [(round(time.time() * 1000) + A_YEAR_MS, PAYLOAD)])
            bed.ttl_index("idle", "create", f"c{number}", "t")
        told.say(f"{asked.indexes} TTL indexes are made")
        without, _ = watched(bed, asked.seconds)
        with bed.start("idle", "run") as sweeper:
            time.sleep(asked.warm)
            rates, cpu = watched(bed, asked.seconds, sweeper.pid)
            if sweeper.poll() is not None:
                sys.exit(f"the sweeper ended with exit code {sweeper.returncode}")
    rates = {name: rate - without.get(name, 0.0) for name, rate in rates.items()}
    total = sum(rates.values())
    told.run(indexes=asked.indexes, commands_a_second=total, cpu_percent=cpu * 100, by_command=rates)
    for name, rate in sorted((rate for rate in rates.items() if rate[1] > 0.001), key=lambda rate: -rate[1]):
        told.say(f"{rate:8.3f} {name} a second")
    return told.verdict(
        [("commands a second", total, 12, False), ("percent of one core", cpu * 100, 1, False)],
    )


if __name__ == "__main__":
    sys.exit(main())

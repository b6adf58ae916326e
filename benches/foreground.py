#!/usr/bin/env python3
"""What an application feels while documents are deleted.

    python3 benches/foreground.py [--rounds N] [--quick] [--json]

An open-loop client in a process of its own (foreground_client.py) reads and updates by `_id` at 200 operations a
second in a collection of 50,000 documents, while in another database of the same server 300,000 documents of about
250 bytes are due at once. Each round has one run of each arm, in an order that turns by one from round to round:

    idle          nothing is deleted, for 30 s
    monitor       MongoDB's own TTL monitor
    deleteMany    one deleteMany by the date
    paced         `ttl-index run` at 2,000 documents a second, for 30 s
    unlimited     `ttl-index sweep` without a rate

Every run has a copy of the documents of its own, in a database of its own, with an index on the date; what was
written before is flushed to the disk first. An operation counts if its time is within the deletion: from when the
collection was seen to shrink to when it was empty. Everything runs on this machine and at the same priority: mongod,
the client, the sweeper. Exits with 1 if a median is not as wanted.

A round takes about three minutes. Needs what memory.py needs, and fetches pymongo.
"""

import contextlib
import json
import os
import subprocess
import sys

from bed import PAYLOAD, Bed, Told, arguments, dies_with_us, insert, percentile
from deleting import CPU, DELETE_MANY, IDLE, MONITOR, UNLIMITED, observe, prepared, program

RATE = 200
PACED = 2000
CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "foreground_client.py")


@contextlib.contextmanager
def application(bed, seed):
    """The client, warm. Yields a function that ends it and returns its operations."""
    command = [sys.executable, CLIENT, bed.uri(), str(RATE), str(seed)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    client = subprocess.Popen(command, preexec_fn=dies_with_us, **pipes)
    try:
        if client.stdout.readline() != "ready\n":
            sys.exit("the client does not work")
        yield lambda: json.loads(client.communicate()[0])
    finally:
        client.kill()
        client.wait()


def run(bed, database, way, asked, seconds, seed):
    prepared(bed, database, way, asked.documents)
    with application(bed, seed) as operations:
        window = observe(bed, database, way, seconds)
        done = [(kind, latency) for at, kind, latency in operations() if window.began <= at < window.ended]
    bed.client.drop_database(database)
    took = window.ended - window.began
    figures = {"seconds": took, "deleted_a_second": window.deleted / took, "operations": len(done)}
    every = [latency * 1000 for _, latency in done]
    figures |= {"p50_ms": percentile(every, 0.5), "p99_ms": percentile(every, 0.99), "max_ms": max(every)}
    for kind in ["read", "update"]:
        figures[f"{kind}_p99_ms"] = percentile([latency * 1000 for one, latency in done if one == kind], 0.99)
    return figures | {name: getattr(window, name) for name in CPU}


def main():
    asked = arguments(
        __doc__,
        rounds=(5, 1, "runs of each arm"),
        documents=(300_000, 20_000, "documents that are due at once"),
        seconds=(30, 5, "how long the arms idle and paced are watched"),
    )
    told = Told(asked)
    with Bed() as bed:
        insert(bed.client.app.documents, ((0, PAYLOAD) for _ in range(50_000)))
        # Without the second one the sweeper, left to itself, would take a day for them.
        rates = [f"--max-rate={PACED}", f"--min-rate={PACED}"]
        if "--min-rate" not in bed.ttl_index("", "run", "--help"):
            rates.pop()
        arms = {
            "idle": (IDLE, asked.seconds),
            "monitor": (MONITOR, None),
            "deleteMany": (DELETE_MANY, None),
            "paced": (program("run", *rates), asked.seconds),
            "unlimited": (UNLIMITED, None),
        }
        names = list(arms)
        for number in range(asked.rounds):
            at = number % len(names)
            for name in names[at:] + names[:at]:
                way, seconds = arms[name]
                figures = run(bed, f"{name}_{number}", way, asked, seconds, number)
                told.run(arm=name, round=number + 1, **figures)
    columns = ["seconds", "deleted_a_second", "p50_ms", "p99_ms", "max_ms", "read_p99_ms", "update_p99_ms"]
    told.table(["arm"], [*columns, *CPU])
    p99 = {name: told.median("p99_ms", arm=name) for name in names}
    return told.verdict(
        [
            ("paced: p99 ÷ idle's", p99["paced"] / p99["idle"], 3, False),
            ("paced: p99 ÷ the monitor's", p99["paced"] / p99["monitor"], 1 / 3, False),
            ("unlimited: p99 ÷ the monitor's", p99["unlimited"] / p99["monitor"], 1 / 2, False),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

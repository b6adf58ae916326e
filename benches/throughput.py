#!/usr/bin/env python3
"""How fast documents go when nothing holds them up.

    python3 benches/throughput.py [--rounds N] [--quick] [--json]

On MongoDB: 300,000 documents of about 250 bytes that are all due, deleted by MongoDB's own TTL monitor, by one
deleteMany by the date, and by `ttl-index sweep`; each with a copy of its own and an index on the date. The rate
counts from when the collection was seen to shrink to when it was empty, and so neither the start of a process nor the
monitor's sleep.

In a file: 300,000 documents swept out of the embedded store, and deleted from SQLite by the program in
benches/sqlite, which says how. Each batch is on the disk before the next begins, in both.

The arms take turns. Exits with 1 if a median is not as wanted. A round takes about a minute, the first build some
minutes more. Needs what memory.py needs and a C compiler, and fetches pymongo.
"""

import json
import os
import subprocess
import sys

from bed import Bed, Told, arguments, running
from deleting import CPU, DELETE_MANY, MONITOR, UNLIMITED, observe, prepared

WAYS = {"monitor": MONITOR, "deleteMany": DELETE_MANY, "sweep": UNLIMITED}
STORES = ["embedded", "sqlite", "sqlite-bulk"]


def on_mongodb(bed, database, way, documents):
    prepared(bed, database, way, documents)
    window = observe(bed, database, way)
    bed.client.drop_database(database)
    took = window.ended - window.began
    return {"documents_a_second": window.deleted / took} | {name: getattr(window, name) for name in CPU}


def build_comparison():
    crate = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sqlite")
    # With what is built for the library already, where a directory is set for it.
    subprocess.run(["cargo", "build", "--release"], cwd=crate, check=True)
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(crate, "target")
    return os.path.join(target, "release", "sqlite-comparison")


def in_a_file(program, store, documents, directory):
    with running([program, store, documents, directory], stdout=subprocess.PIPE) as process:
        told = process.stdout.read()
        if process.wait() != 0:
            sys.exit(f"{program} failed")
    return json.loads(told)


def main():
    asked = arguments(
        __doc__,
        rounds=(5, 1, "runs of each arm"),
        documents=(300_000, 20_000, "documents that are due at once"),
    )
    told, comparison = Told(asked), build_comparison()
    with Bed() as bed:
        for number in range(asked.rounds):
            turned = lambda names: names[number % len(names) :] + names[: number % len(names)]
            for name in turned(list(WAYS)):
                figures = on_mongodb(bed, f"{name}_{number}", WAYS[name], asked.documents)
                told.run(arm=name, round=number + 1, **figures)
            for store in turned(STORES):
                figures = in_a_file(comparison, store, asked.documents, bed.directory.name)
                told.run(arm=store, round=number + 1, **figures)
    rate = {name: told.median("documents_a_second", arm=name) for name in [*WAYS, *STORES]}
    told.table(["arm"], ["documents_a_second"])
    return told.verdict(
        [
            ("sweep ÷ monitor", rate["sweep"] / rate["monitor"], 0.9, True),
            ("embedded ÷ sqlite", rate["embedded"] / rate["sqlite"], 1, True),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

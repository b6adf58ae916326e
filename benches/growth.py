#!/usr/bin/env python3
"""How time and memory grow with what there is to do.

    python3 benches/growth.py [--rounds N] [--quick] [--json]

With the documents that are due: `ttl-index sweep` of 10,000, 100,000 and 1,000,000 documents of about 250 bytes, and
the peak of its resident memory. With the TTL indexes in the database: `ttl-index create` of the last, `ttl-index
list`, and a tick, `ttl-index sweep` of all of them with nothing due, at 1, 50 and 500. The program is started and
connects anew for each, which is in the times; what its start alone takes, `--version` tells.

What is printed is the median of the rounds. Nothing is demanded of it, but that it ends as expected. Takes about ten
minutes. Needs what memory.py needs, and fetches pymongo.
"""

import json
import os
import subprocess
import sys
import time

from bed import PAYLOAD, Bed, Told, arguments, insert, running
from deleting import UNLIMITED, prepared
from memory import peak_so_far

DUE = [10_000, 100_000, 1_000_000]
INDEXES = [1, 50, 500]
A_YEAR_MS = 31_536_000_000




def measured(bed, database, *words):
    """Runs the program to its end: what it printed, the seconds and the processor time it took, its peak memory in MB."""
    began, peak = time.monotonic(), 0
    with running(bed.command(database, *words), stdout=subprocess.PIPE, text=True) as process:
        # In steps that are small beside what is measured, and without a step for what ends before.
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            peak = max(peak, peak_so_far(process.pid))
            time.sleep(0.001)
        took = time.monotonic() - began
        printed = process.stdout.read()
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode != 0:
            sys.exit(f"{words} ended with exit code {process.returncode}")
    return printed, {"seconds": took, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mb": peak / 1e6}


def sweep(bed, database, due):
    prepared(bed, database, UNLIMITED, due)
    printed, figures = measured(bed, database, "--json", "sweep", "due")
    if json.loads(printed)["deleted"] != due:
        sys.exit(f"it did not delete {due} documents: {printed}")
    bed.client.drop_database(database)
    return figures


def verbs(bed, told, number, most):
    """Fills a database with TTL indexes, and measures each verb when there are so many."""
    database, made = f"indexes_{number}", 0
    for indexes in most:
        for made in range(made, indexes):
            insert(bed.client[database][f"c{made}"], [(round(time.time() * 1000) + A_YEAR_MS, PAYLOAD)])
            created = measured(bed, database, "create", f"c{made}", "t")[1]
        made = indexes
        told.run(verb="create", size=indexes, round=number, **created)
        told.run(verb="list", size=indexes, round=number, **measured(bed, database, "list")[1])
        told.run(verb="tick", size=indexes, round=number, **measured(bed, database, "sweep")[1])
    bed.client.drop_database(database)


def main():
    asked = arguments(__doc__, rounds=(3, 1, "runs of each"))
    # The sizes are what is asked here, so that --quick leaves out the largest.
    due, most = (DUE[:2], INDEXES[:2]) if asked.quick else (DUE, INDEXES)
    told = Told(asked)
    with Bed() as bed:
        for number in range(1, asked.rounds + 1):
            told.run(verb="start", size=0, round=number, **measured(bed, "", "--version")[1])
            for documents in due:
                figures = sweep(bed, f"due_{documents}", documents)
                told.run(verb="sweep", size=documents, round=number, **figures)
            verbs(bed, told, number, most)
    told.table(["verb", "size"], ["seconds", "cpu_seconds", "peak_mb"])
    return 0


if __name__ == "__main__":
    sys.exit(main())

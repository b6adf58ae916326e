#!/usr/bin/env python3
"""The peak of the delete rate against the lowest that could have met every deadline.

    python3 benches/deadline.py [--rounds N] [--quick] [--json]

With the target lag scaled down to 60 s. A collection is filled with documents that expire over the next two minutes:
100 each second, and four bursts of 20,000 to 60,000 within a second. `ttl-index run` gets to know them for 20 s, and
then deletes them. Twice a second it is looked at how many are left and which is the oldest. Of each round, besides,
with --json, all looks:

    optimum    the offline optimum: no lower peak meets all deadlines, even for one who knows everything from the
               beginning: the largest, over all intervals, of the documents that expire and must be gone within it, by its
               length
    peak       the most that were deleted in any 5 s, a second
    late       the most by which a document was seen to be over its deadline, in seconds, and how many of each burst were
               there when its last deadline was over

Exits with 1 if a median of peak ÷ optimum is above 1.15, or a document was late. A round takes about four minutes.
Needs what memory.py needs, and fetches pymongo.
"""

import bisect
import random
import sys
import time

from bed import PAYLOAD, Bed, DatetimeMS, Told, arguments, insert

LAG = 60.0
LEAD = 20.0
TRICKLE = 100
PEAK_OVER = 5.0
LOOK_SECONDS = 0.5
LENGTH = 120
# The second in which each burst expires, and its documents.
BURSTS = [(15, 60_000), (50, 20_000), (55, 30_000), (110, 40_000)]
QUICK = (20, [(2, 3_000), (10, 6_000)])


def expirations(length, bursts, seed):
    """When documents expire, in seconds from the beginning, in order."""
    chance = random.Random(seed)
    trickle = (chance.uniform(0, length) for _ in range(TRICKLE * length))
    burst = (chance.uniform(at, at + 1) for at, count in bursts for _ in range(count))
    return sorted([*trickle, *burst])


def optimum(dates, lag, step=0.1):
    """The largest intensity of an interval, in documents a second.

    The intervals reach from the beginning of a step to the end of another plus the lag: the shortest one may be missed by
    two steps, which makes it smaller by so little, and never larger.
    """
    counts = {}
    for date in dates:
        counts[date // step] = counts.get(date // step, 0) + 1
    steps = sorted(counts)
    most = 0.0
    for first, begin in enumerate(steps):
        work = 0
        for end in steps[first:]:
            work += counts[end]
            most = max(most, work / (lag + (end - begin + 1) * step))
    return most


def peak(looks, over):
    """The most that were deleted in any so many seconds, a second, where each look is (time, deleted so far)."""
    times = [at for at, _ in looks]

    def deleted_by(at):
        later = bisect.bisect_left(times, at)
        if later == len(looks):
            return looks[-1][1]
        (before, less), (after, more) = looks[max(0, later - 1)], looks[later]
        return less + (more - less) * (at - before) / (after - before) if after > before else more

    return max(deleted_by(at + over) - deleted for at, deleted in looks) / over


def run(bed, database, asked, seed):
    length, bursts = QUICK if asked.quick else (LENGTH, BURSTS)
    lag = LAG / 3 if asked.quick else LAG
    dates = expirations(length, bursts, seed)
    due = bed.client[database].due
    # Filling takes some seconds of that.
    began = time.time() + LEAD + len(dates) / 10_000
    insert(due, ((round((began + date) * 1000), PAYLOAD) for date in dates))
    bed.ttl_index(database, "create", "due", "t")
    bed.settle()
    if time.time() > began - LEAD / 2:
        sys.exit("filling took too long: the first documents expire already")
    looks, worst, after = [], 0.0, {}
    options = ["--target-lag", f"{lag:.0f}s", "--max-rate", "100000", "--min-rate", "10"]
    with bed.start(database, "run", *options) as sweeper:
        while not looks or looks[-1][1] < len(dates):
            time.sleep(LOOK_SECONDS)
            now = time.time()
            oldest = due.find_one({}, {"t": 1}, sort=[("t", 1)], hint=[("t", 1)])
            if oldest is not None:
                worst = max(worst, now - oldest["t"].timestamp() - lag)
            looks.append((now - began, len(dates) - due.estimated_document_count()))
            for at, _ in bursts:
                if at not in after and now > began + at + 1 + lag:
                    after[at] = due.count_documents({"t": {"$lte": DatetimeMS(round((began + at + 1) * 1000))}})
            if looks[-1][1] and now > began + length + 3 * lag:
                sys.exit(f"{len(dates) - looks[-1][1]} documents are still there")
            if sweeper.poll() is not None:
                sys.exit(f"the sweeper ended with exit code {sweeper.returncode}")
    bed.client.drop_database(database)
    early = [at for at, deleted in looks if at < 0 and deleted]
    if early:
        sys.exit(f"documents were deleted {-early[0]:.1f} s before any had expired")
    best, most = optimum(dates, lag), peak(looks, PEAK_OVER)
    return {
        "optimum": best,
        "peak": most,
        "ratio": most / best,
        "late_seconds": max(0.0, worst),
        "left_of_bursts": [after.get(at, 0) for at, _ in bursts],
        "looks": [(round(at, 2), deleted) for at, deleted in looks],
    }


def main():
    asked = arguments(__doc__, rounds=(3, 1, "rounds"))
    told = Told(asked)
    with Bed() as bed:
        for number in range(1, asked.rounds + 1):
            told.run(round=number, **run(bed, f"deadline_{number}", asked, number))
    told.table([], ["optimum", "peak", "ratio", "late_seconds"])
    late = max(run["late_seconds"] for run in told.runs)
    left = max(max(run["left_of_bursts"]) for run in told.runs)
    return told.verdict(
        [
            ("peak ÷ optimum", told.median("ratio"), 1.15, False),
            ("seconds that the latest document was late", late, 0, False),
            ("documents of a burst left at its deadline", left, 0, False),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

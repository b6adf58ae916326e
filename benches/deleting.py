"""Ways of deleting what is due in a collection, and what is seen of it from outside.

Each way makes the index it needs on the date, and is a block in which it deletes.
"""

import contextlib
import datetime
import threading
import time
from collections import namedtuple

from bed import cpu_seconds, machine_cpu_seconds

# How often the collection is looked at: one count out of the catalog, in all arms alike.
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 600

# In cores.
CPU = ["server_cpu", "sweeper_cpu", "machine_cpu"]

Way = namedtuple("Way", "make_index, deleting")
Window = namedtuple("Window", ["began", "ended", "deleted", *CPU])


def ordinary_index(bed, database):
    bed.client[database].due.create_index("t")


def native_ttl_index(bed, database):
    bed.client[database].due.create_index("t", expireAfterSeconds=0)


def our_ttl_index(bed, database):
    bed.ttl_index(database, "create", "due", "t")


@contextlib.contextmanager
def nothing(bed, database):
    yield None


@contextlib.contextmanager
def monitor(bed, database):
    bed.client.admin.command("setParameter", 1, ttlMonitorEnabled=True)
    try:
        yield None
    finally:
        bed.client.admin.command("setParameter", 1, ttlMonitorEnabled=False)


@contextlib.contextmanager
def delete_many(bed, database):
    due, now = bed.client[database].due, datetime.datetime.now(datetime.timezone.utc)
    deleting = threading.Thread(target=lambda: due.delete_many({"t": {"$lte": now}}), daemon=True)
    deleting.start()
    yield None
    deleting.join()


def program(*words):
    """The program with these words, as it is from the shell."""

    @contextlib.contextmanager
    def deleting(bed, database):
        with bed.start(database, *words) as process:
            yield process.pid

    return Way(our_ttl_index, deleting)


IDLE = Way(ordinary_index, nothing)
MONITOR = Way(native_ttl_index, monitor)
DELETE_MANY = Way(ordinary_index, delete_many)
UNLIMITED = program("sweep", "due")


class Look:
    """What is there at a moment."""

    def __init__(self, bed, due, pid):
        self.time = time.monotonic()
        self.left = due.estimated_document_count()
        self.server_cpu, self.machine_cpu = cpu_seconds(bed.server.pid), machine_cpu_seconds()
        try:
            self.sweeper_cpu = cpu_seconds(pid) if pid else 0.0
        except FileNotFoundError:
            self.sweeper_cpu = None  # it has ended


def observe(bed, database, way, seconds=None):
    """Deletes in this way, and returns the window from when the collection was seen to shrink to when it was empty.

    With `seconds` the window is so long, and begins at once if nothing deletes. Processor time is told in cores: the server's,
    the sweeper's, and that of all there is on this machine, by which a run that others disturbed is known.
    """
    due = bed.client[database].due
    total, limit = due.estimated_document_count(), time.monotonic() + PATIENCE_SECONDS
    with way.deleting(bed, database) as pid:
        last = first = Look(bed, due, pid)
        while way is not IDLE and first.left == total:
            time.sleep(LOOK_SECONDS)
            first = last = Look(bed, due, pid)
            if first.time > limit:
                raise TimeoutError("nothing is deleted")
        while last.left > 0 and (seconds is None or last.time < first.time + seconds):
            time.sleep(LOOK_SECONDS)
            sweeper_cpu = last.sweeper_cpu
            last = Look(bed, due, pid)
            if last.sweeper_cpu is None:
                last.sweeper_cpu = sweeper_cpu
            if last.time > limit:
                raise TimeoutError(f"{last.left} documents are still there after {PATIENCE_SECONDS} s")
        took = last.time - first.time
        return Window(
            first.time,
            last.time,
            first.left - last.left,
            (last.server_cpu - first.server_cpu) / took,
            (last.sweeper_cpu - first.sweeper_cpu) / took,
            (last.machine_cpu - first.machine_cpu) / took,
        )


def prepared(bed, database, way, count):
    """Makes a collection of due documents with the index that the way needs, all of it on the disk."""
    bed.fill(database, count)
    way.make_index(bed, database)
    bed.settle()

"""What the benchmarks stand on: a replica set of one mongod, the program, and pymongo.

Importing this puts pymongo into a virtual environment in the cache directory, once, and goes on in there. Whatever is
started ends with the script, in whatever way that ends. Needs Linux.
"""

import argparse
import contextlib
import ctypes
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv

from memory import build, cache, start_mongod

PYMONGO = "pymongo==4.20.1"

try:
    import pymongo
except ImportError:
    directory = os.path.join(cache(), "benches-" + PYMONGO)
    python = os.path.join(directory, "bin", "python")
    if os.path.realpath(sys.prefix) == os.path.realpath(directory):
        raise
    if not os.path.exists(os.path.join(directory, "whole")):
        venv.create(directory, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PYMONGO], check=True)
        open(os.path.join(directory, "whole"), "w", encoding="ascii").close()
    os.execv(python, [python, *sys.argv])

from bson import encode
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

# 2013-01-01: long ago, and nothing else.
LONG_AGO_MS = 1_356_998_400_000
PAYLOAD = b"x" * 200
TICKS = os.sysconf("SC_CLK_TCK")


def arguments(manual, **counts):
    """What is asked for on the command line: --quick, --json, and whole numbers with other defaults under --quick.

    `counts` gives for each number its default, that under --quick, and what it means.
    """
    parser = argparse.ArgumentParser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only to see that it works: the figures mean nothing")
    parser.add_argument("--json", action="store_true", help="print each run as a line of JSON, and tables to stderr")
    for name, (usual, quick, meaning) in counts.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{meaning}; {usual} by default, {quick} if quick")
    asked = parser.parse_args()
    for name, (usual, quick, _) in counts.items():
        if getattr(asked, name) is None:
            setattr(asked, name, quick if asked.quick else usual)
    signal.signal(signal.SIGTERM, terminated)
    return asked


def terminated(*_):
    """Ends the script as an exception does, so that what was started is ended, once and for all."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("terminated")


class Told:
    """Says how it goes, and keeps the runs."""

    def __init__(self, asked):
        self.asked = asked
        self.runs = []

    def say(self, text=""):
        print(text, file=sys.stderr if self.asked.json else sys.stdout, flush=True)

    def run(self, **figures):
        self.runs.append(figures)
        if self.asked.json:
            print(json.dumps(figures), flush=True)
        words = [f"{name} {show(value)}" for name, value in figures.items() if not isinstance(value, (dict, list))]
        print("  " + ", ".join(words), file=sys.stderr, flush=True)

    def table(self, by, columns):
        """Prints all runs, those together that agree in `by`, and the medians of each such group."""
        lines = [[*by, "round", *columns]]
        for group in dict.fromkeys(tuple(run.get(name, "") for name in by) for run in self.runs):
            which = dict(zip(by, group))
            runs = [run for run in self.runs if all(run.get(name, "") == value for name, value in which.items())]
            lines += [[*group, run["round"], *(run[column] for column in columns)] for run in runs]
            lines.append([*group, "median", *(self.median(column, **which) for column in columns)])
        shown = [[cell if isinstance(cell, str) else show(cell) for cell in line] for line in lines]
        widths = [max(len(line[at]) for line in shown) for at in range(len(shown[0]))]
        self.say()
        for line in shown:
            cells = [cell.rjust(width) for cell, width in zip(line, widths)]
            if by:
                cells[0] = cells[0].strip().ljust(widths[0])
            self.say("  ".join(cells))

    def median(self, figure, **which):
        """The median of a figure over those runs for which all of `which` holds."""
        chosen = [run[figure] for run in self.runs if all(run.get(name, "") == value for name, value in which.items())]
        return statistics.median(chosen)

    def verdict(self, demands):
        """Prints each demand, (what, measured, limit, whether the limit is a least), and returns the exit code."""
        self.say()
        missed = False
        for what, measured, limit, least in demands:
            met = measured >= limit if least else measured <= limit
            missed |= not met
            word = "at least" if least else "at most"
            self.say(f"{'met   ' if met else 'MISSED'}  {what}: {measured:.3g}, wanted {word} {limit:.3g}")
        return 1 if missed and not self.asked.quick else 0


def show(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def percentile(values, share):
    """The least of the values that is at or above this share of them."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def dies_with_us():
    """Has the kernel end this process with its parent."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


@contextlib.contextmanager
def running(command, **options):
    """A process that is ended with the block."""
    process = subprocess.Popen([str(word) for word in command], preexec_fn=dies_with_us, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid):
    """The processor time that a running process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_cpu_seconds():
    """The processor time that anything on this machine has used, on all cores together."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _waiting, irq, softirq, *_ = (int(field) for field in stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / TICKS


class Bed:
    """A replica set of one mongod, its own TTL monitor switched off, and the program."""

    def __init__(self):
        self.program = build()

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="ttl-index-bench-")
        options = ["--replSet", "bench", "--oplogSize", "2048"]
        for parameter in ["ttlMonitorEnabled=false", "ttlMonitorSleepSecs=1"]:
            options += ["--setParameter", parameter]
        try:
            self.server, self.port = start_mongod(self.directory.name, options, dies_with_us)
        except BaseException:
            self.directory.cleanup()
            raise
        try:
            self.client = pymongo.MongoClient(self.uri(), tz_aware=True)
            member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
            self.client.admin.command("replSetInitiate", {"_id": "bench", "members": [member]})
            while not self.client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.05)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait()
        self.directory.cleanup()

    def uri(self, database=""):
        return f"mongodb://127.0.0.1:{self.port}/{database}?directConnection=true"

    def command(self, database, *words):
        return [self.program, "--uri", self.uri(database), *words]

    def ttl_index(self, database, *words):
        """Runs the program to its end, and returns what it prints."""
        command = [str(word) for word in self.command(database, *words)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, preexec_fn=dies_with_us, text=True).stdout

    def start(self, database, *words):
        """The program in the background, which says only what goes wrong."""
        warnings = {**os.environ, "RUST_LOG": "warn"}
        return running(self.command(database, *words), stdout=subprocess.DEVNULL, env=warnings)

    def fill(self, database, count):
        """Makes a collection `due` of so many documents that have all expired, without an index.

        The server copies them from a collection that is made once.
        """
        seed = self.client.seed[f"due_{count}"]
        if seed.estimated_document_count() != count:
            seed.drop()
            insert(seed, ((LONG_AGO_MS + number, PAYLOAD) for number in range(count)))
        seed.aggregate([{"$out": {"db": database, "coll": "due"}}])
        return self.client[database].due

    def settle(self):
        """Has what was written before reach the disk now, and not while something is measured."""
        self.client.admin.command("fsync")
        time.sleep(1)


def insert(collection, dates_and_payloads):
    """Inserts documents by the date, in milliseconds, and the payload of each."""
    page = []
    without_waiting = collection.with_options(write_concern=pymongo.WriteConcern(w=1))
    for number, (date, payload) in enumerate(dates_and_payloads):
        page.append(RawBSONDocument(encode({"_id": number, "t": DatetimeMS(date), "payload": payload})))
        if len(page) == 10_000:
            without_waiting.insert_many(page, ordered=False)
            page = []
    if page:
        without_waiting.insert_many(page, ordered=False)

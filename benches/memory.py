#!/usr/bin/env python3
"""The memory that a sweep needs does not depend on how much there is to sweep.

    python3 benches/memory.py

Builds `ttl-index` for release, starts a mongod of its own, imports 10,000 and then 1,000,000 documents that are all
due, sweeps each with `ttl-index sweep`, and prints the peak of the resident memory of each sweep as the kernel counts
it. Exits with 1 if the two peaks differ by 20 MB or more, or if anything is not as expected.

The mongod is $MONGOD, or else the one on PATH, or else the one that the tests have put into their cache
($TTL_INDEX_TEST_CACHE, or ttl-index in $XDG_CACHE_HOME or ~/.cache). It takes about a minute and 1 GB of temporary
space. Needs Linux and nothing but Python's standard library.
"""

import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

SIZES = [10_000, 1_000_000]
LIMIT_MB = 20


def cache():
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("TTL_INDEX_TEST_CACHE") or os.path.join(caches, "ttl-index")


def find_mongod():
    cached = sorted(glob.glob(os.path.join(cache(), "mongod-*")))
    found = os.environ.get("MONGOD") or shutil.which("mongod") or (cached[-1] if cached else None)
    return found or sys.exit("there is no mongod: set MONGOD, or run the tests once, which fetch one")


def build():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    subprocess.run(["cargo", "build", "--release", "--features", "cli"], cwd=root, check=True)
    target = os.environ.get("CARGO_TARGET_DIR") or "target"
    return os.path.join(root, target, "release", "ttl-index")


def start_mongod(directory, options=(), preexec=None):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [find_mongod(), "--dbpath", directory, "--bind_ip", "127.0.0.1", "--port", str(port), "--nounixsocket"]
    log = open(os.path.join(directory, "log"), "wb")
    command += ["--wiredTigerCacheSizeGB", "1", *options]
    server = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=preexec)
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"mongod ended with exit code {server.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, port
        time.sleep(0.1)
    server.kill()
    sys.exit("mongod does not listen")


def fill(program, uri, size, directory):
    path = os.path.join(directory, "documents.jsonl")
    with open(path, "w", encoding="utf-8") as lines:
        for number in range(size):
            date = {"$date": {"$numberLong": str(1_356_998_400_000 + number)}}
            lines.write(json.dumps({"_id": number, "t": date, "text": "x" * 100}) + "\n")
    for command in [["create", "due", "t"], ["import", "due", path]]:
        subprocess.run([program, "--uri", uri, *command], check=True, stdout=subprocess.DEVNULL)
    os.remove(path)


def peak_so_far(pid):
    """The peak of a process's resident memory in bytes, or 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return max((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), default=0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def sweep(program, uri, size):
    """Sweeps, and returns the peak of its resident memory in bytes."""
    sweeping = subprocess.Popen([program, "--uri", uri, "--json", "sweep", "due"], stdout=subprocess.PIPE)
    # The kernel keeps the peak, so that only the last moments before the end can be missed. It also tells it after the
    # end, but then counts in the memory of this script, which is the larger one.
    peak = 0
    while sweeping.poll() is None:
        peak = max(peak, peak_so_far(sweeping.pid))
        time.sleep(0.005)
    report = json.loads(sweeping.stdout.read())
    if (sweeping.returncode, report["deleted"], report["ended"]) != (0, size, "drained"):
        sys.exit(f"the sweep ended with exit code {sweeping.returncode} and {report}")
    return peak


def main():
    program = build()
    with tempfile.TemporaryDirectory(prefix="ttl-index-memory-") as directory:
        server, port = start_mongod(directory)
        try:
            peaks = []
            for size in SIZES:
                uri = f"mongodb://127.0.0.1:{port}/memory_{size}?directConnection=true"
                fill(program, uri, size, directory)
                began = time.monotonic()
                peaks.append(sweep(program, uri, size) / 1e6)
                print(f"{size:>9,} due documents: peak {peaks[-1]:.1f} MB, {time.monotonic() - began:.1f} s", flush=True)
        finally:
            server.terminate()
            server.wait()
    difference = abs(peaks[1] - peaks[0])
    print(f"difference: {difference:.1f} MB, allowed are less than {LIMIT_MB} MB")
    return 0 if difference < LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The memory that an export needs does not depend on how much there is to export.

    python3 benches/export_memory.py [SMALL LARGE]

Builds `ttl-index` for release, starts a mongod of its own, and imports 200,000 and 2,000,000 documents (or as many as
asked for), into MongoDB and into files of the embedded store. Exports each as JSON Lines and as CSV with columns that
have to be found, checks the number of rows, and prints the peak of the resident memory of each export as the kernel
counts it. Exits with 1 if two peaks that belong together differ by 20 MB or more, or if anything is not as expected.

Where mongod is found, and what is needed besides, memory.py tells. It takes about five minutes and 4 GB of temporary
space.
"""

import os
import subprocess
import sys
import tempfile
import time

from memory import LIMIT_MB, build, fill, peak_so_far, start_mongod

FORMATS = {"JSON Lines": [], "CSV": ["--csv"]}


def rows(path):
    with open(path, "rb") as exported:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: exported.read(1 << 20), b""))


def export(program, uri, size, options, path):
    """Exports, and returns the peak of its resident memory in MB and how long it took in seconds."""
    began = time.monotonic()
    exporting = subprocess.Popen([program, "--uri", uri, "export", "due", *options, "-o", path], stdout=subprocess.PIPE)
    peak = 0
    while exporting.poll() is None:
        peak = max(peak, peak_so_far(exporting.pid))
        time.sleep(0.005)
    expected = size + len(options)  # CSV has a header
    if exporting.returncode != 0 or rows(path) != expected:
        sys.exit(f"the export ended with exit code {exporting.returncode} and {rows(path)} rows")
    os.remove(path)
    return peak / 1e6, time.monotonic() - began


def main():
    sizes = [int(size) for size in sys.argv[1:]] or [200_000, 2_000_000]
    program = build()
    failed = False
    with tempfile.TemporaryDirectory(prefix="ttl-index-export-") as directory:
        database = os.path.join(directory, "mongod")
        os.mkdir(database)
        server, port = start_mongod(database)
        stores = {
            "MongoDB": lambda size: f"mongodb://127.0.0.1:{port}/export_{size}?directConnection=true",
            "embedded": lambda size: f"embedded:{directory}/{size}.redb",
        }
        try:
            for store, uri in stores.items():
                for size in sizes:
                    began = time.monotonic()
                    fill(program, uri(size), size, directory)
                    print(f"{store:>8}: {size:>9,} documents imported in {time.monotonic() - began:.1f} s", flush=True)
                for name, options in FORMATS.items():
                    peaks = []
                    for size in sizes:
                        peak, took = export(program, uri(size), size, options, os.path.join(directory, "exported"))
                        peaks.append(peak)
                        print(f"{store:>8}, {name:>10}, {size:>9,} documents: peak {peak:.1f} MB, {took:.1f} s", flush=True)
                    difference = abs(peaks[-1] - peaks[0])
                    failed |= difference >= LIMIT_MB
                    print(f"{store:>8}, {name:>10}: difference {difference:.1f} MB of less than {LIMIT_MB} MB", flush=True)
        finally:
            server.terminate()
            server.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

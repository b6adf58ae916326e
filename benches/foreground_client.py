"""The application that foreground.py disturbs: an open-loop client in a process of its own.

    foreground_client.py URI RATE SEED

Reads and updates one document by `_id`, half and half, in the collection `app.documents`, RATE operations a second at
random intervals (a Poisson process: no rhythm of the sweeper is in step with it). Each has its time, kept by one of 64
threads whether or not those before it have been answered; its latency counts from that time. Writes `ready` once it is
warm. When its standard input ends it prints, as JSON, a list of (time, kind, latency): the time as `time.monotonic()`,
which all processes share, and the latency in seconds.
"""

import gc
import itertools
import json
import random
import sys
import threading
import time

import pymongo
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

THREADS = 64
WARM_UP_SECONDS = 4


def schedule(rate, chance, start, size):
    at = start
    while True:
        at += chance.expovariate(rate)
        yield at, chance.choice(["read", "update"]), chance.randrange(size)


def main():
    uri, rate, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    client = pymongo.MongoClient(uri, minPoolSize=THREADS, maxPoolSize=THREADS)
    documents = client.app.documents
    raw = documents.with_options(CodecOptions(RawBSONDocument))
    size = documents.estimated_document_count()
    to_come = schedule(rate, random.Random(seed), time.monotonic() + 0.5, size)
    turn, over, operations = threading.Lock(), threading.Event(), []

    def serve():
        while True:
            with turn:
                at, kind, number = next(to_come)
            time.sleep(max(0.0, at - time.monotonic()))
            if over.is_set():
                return
            if kind == "read":
                raw.find_one({"_id": number})
            else:
                documents.update_one({"_id": number}, {"$inc": {"updates": 1}})
            operations.append((at, kind, time.monotonic() - at))

    # No pause of the interpreter shall be taken for one of the database.
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(0.000_5)
    threads = [threading.Thread(target=serve, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP_SECONDS)
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    json.dump(operations, sys.stdout)


if __name__ == "__main__":
    main()

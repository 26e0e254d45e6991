"""Checks that no two clients held the same lock at the same time.

    overlaps.py FILE ...

Each line of a file is a turn: begin and end in nanoseconds of CLOCK_MONOTONIC, the client, and
the lock.
"""

import collections
import sys


def turns(path):
    with open(path) as file:
        for line in file:
            words = line.split()
            # The last line of a program that was stopped may be cut.
            if len(words) == 4:
                yield int(words[0]), int(words[1]), words[2], words[3]


def main(paths):
    every = sorted(turn for path in paths for turn in turns(path))
    overlaps, latest = 0, {}
    for turn in every:
        last = latest.get(turn[3])
        if last is not None and turn[0] < last[1]:
            overlaps += 1
            milliseconds = (last[1] - turn[0]) / 1e6
            print(f"overlap of {milliseconds:.3f} ms: {last[2]} until {last[1]}, {turn[2]} from {turn[0]}")
        if last is None or turn[1] > last[1]:
            latest[turn[3]] = turn
    for client, count in sorted(collections.Counter(turn[2] for turn in every).items()):
        print(f"{client:24} {count:8} grants")
    print(f"{len(every)} grants, {overlaps} overlaps")
    return 1 if overlaps or not every else 0


sys.exit(main(sys.argv[1:]))

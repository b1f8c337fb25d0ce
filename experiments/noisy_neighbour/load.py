"""A neighbour that comes and goes: `python -m experiments.noisy_neighbour.load CORES [SEED]`, until it is killed.

It sleeps for a while, then keeps some cores and the memory busy for a while, and so on, at random.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time

import numpy as np

AWAY_S, BUSY_S = (5.0, 45.0), (5.0, 30.0)
ARRAY_BYTES = 64 << 20
"""Larger than the caches, so that it also takes the memory's bandwidth."""


def disturb(seconds: float) -> None:
    """Keep one core and the memory busy."""
    array, end = np.ones(ARRAY_BYTES // 8), time.monotonic() + seconds
    while time.monotonic() < end:
        array *= 1.0000001


def main(cores: int, seed: int) -> None:
    """Come and go for ever; a line a visit on standard output."""
    chance = random.Random(seed)
    while True:
        time.sleep(chance.uniform(*AWAY_S))
        seconds, busy = chance.uniform(*BUSY_S), chance.randint(1, cores)
        print(f"{time.time():.1f} {busy} cores for {seconds:.0f} s", flush=True)
        guests = [multiprocessing.Process(target=disturb, args=(seconds,), daemon=True) for _ in range(busy)]
        for guest in guests:
            guest.start()
        for guest in guests:
            guest.join()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count() or 1, int(sys.argv[2]) if len(sys.argv) > 2 else 1)

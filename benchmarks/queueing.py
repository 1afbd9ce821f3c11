"""How late a question is at best: the engine's schedule, in simulated time.

Questions arrive at random and take their steps together; a step with k of them takes `one + (k - 1) * more`
seconds. Coming, being read and leaving cost nothing here, so that what is left is the price of thinking in
company at all.
"""

import time
from heapq import heappop, heappush
from math import inf
from random import Random
from statistics import median, quantiles

from benchmarks.serving import draw_steps, stream
from deepen.thinkers import Entry, Lanes

NUM = 20_000
REPEATS = 200
SLOTS = (4, 8, 16, 32, 64)


def step_seconds() -> tuple[float, float]:
    """Of the shipped graph model: one question's step, and what each further one adds."""
    given = stream("graph")
    times = {}
    for num in (1, 8):
        lanes = Lanes(given.reasoner)
        chosen = given.encoded[:num]
        lanes.enter(
            {key: Entry(encoded=one, limit=2 * REPEATS, settles=False) for key, one in enumerate(chosen)}
        )
        taken = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            lanes.step()
            taken.append(time.perf_counter() - began)
        times[num] = median(taken)
    return times[1], (times[8] - times[1]) / 7


def simulate(one: float, more: float, slots: int, rate: float) -> tuple[float, list[float]]:
    """Answers a second, and how many times as long as alone each question took; rate inf: all at once."""
    rng = Random("queue")
    steps = [draw_steps(rng) for _ in range(NUM)]
    arrival, moment = [], 0.0
    for _ in steps:
        moment += rng.expovariate(rate) if rate < inf else 0.0
        arrival.append(moment)
    now, ticks, coming = 0.0, 0, 0
    waiting: list[tuple[int, int]] = []
    left: dict[int, int] = {}
    slower = []
    while coming < NUM or waiting or left:
        if not waiting and not left:
            now = max(now, arrival[coming])
        while coming < NUM and arrival[coming] <= now:
            heappush(waiting, (ticks + steps[coming], coming))
            coming += 1
        while waiting and len(left) < slots:
            place = heappop(waiting)[1]
            left[place] = steps[place]
        now += one + (len(left) - 1) * more
        ticks += 1
        for place in list(left):
            left[place] -= 1
            if not left[place]:
                del left[place]
                slower.append((now - arrival[place]) / (steps[place] * one))
    return NUM / now, slower


def best_slowdowns(load: float) -> dict[int, float]:
    """For some numbers of slots, the p99 of an engine that has nothing to do but steps."""
    one, more = step_seconds()
    found = {}
    for slots in SLOTS:
        most, _ = simulate(one, more, slots, inf)
        found[slots] = quantiles(simulate(one, more, slots, load * most)[1], n=100)[98]
    return found

"""Trials of a real server: `deepen bench serve`.

Load comes from this process over loopback and is bounded in time, some four minutes in all. Every trial
starts a server of its own.
"""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import deepen
from benchmarks.load import (
    BROKEN,
    REFUSED,
    Asked,
    Connections,
    Heard,
    Server,
    alone,
    closed_loop,
    make_questions,
    open_loop,
    ready,
    slowdowns,
)
from benchmarks.malformed import malformed
from benchmarks.queueing import best_slowdowns
from deepen.bench import Trial
from deepen.memory import never_look_at_again
from deepen.report import save_figure

SLOTS = 8  # a step with all of them takes about one and a half times as long as with one question
LOAD = 0.7
WARM_UP, RATE_SECONDS, LATENCY_SECONDS, OVERLOAD_SECONDS = 3.0, 10.0, 20.0, 60.0
KINDS_TIMES = 334  # malformed requests of each kind


@cache
def questions() -> list[Asked]:
    asked = make_questions(3_000)
    never_look_at_again()  # a pause of this process would look like one of the server
    return asked


def running(*arguments: str) -> Server:
    return Server("--slots", str(SLOTS), *arguments)


async def warm(server: Server) -> Connections:
    connections = Connections(server.address)
    await ready(connections)
    await closed_loop(connections, questions(), SLOTS, WARM_UP)
    return connections


async def sustainable(connections: Connections) -> float:
    """Answers a second with twice as many questions under way as there are slots."""
    return await closed_loop(connections, questions(), 2 * SLOTS, RATE_SECONDS)


async def latency() -> dict[str, Any]:
    """How many times as long as alone a question takes at 70 % of what the server can do."""
    with running() as server:
        connections = await warm(server)
        before = await alone(connections, questions()[:300])
        rate = await sustainable(connections)
        heard = await open_loop(connections, questions(), LOAD * rate, LATENCY_SECONDS)
        after = await alone(connections, questions()[:300])
    needs = {T: mean((before[T], after[T])) for T in before}
    known = [one for one in heard if one.asked.steps in needs]
    slower = quantiles(slowdowns(known, needs), n=100)
    return {
        "sustainable_a_second": rate,
        "load": LOAD,
        "asked": len(heard),
        "answered": sum(one.status == 200 for one in heard),
        "wrong": sum(one.is_wrong for one in heard),
        "slowdown": {"median": slower[49], "p90": slower[89], "p99": slower[98]},
        "slowdown_p99_at_best": best_slowdowns(LOAD),
        "alone_ms": {T: 1000 * seconds for T, seconds in sorted(needs.items())},
        "loaded_ms": {
            T: _milliseconds([one for one in known if one.asked.steps == T]) for T in sorted(needs)
        },
    }


def _milliseconds(heard: Sequence[Heard]) -> dict[str, float]:
    times = [1000 * one.seconds for one in heard]
    cuts = quantiles(times, n=100) if len(times) > 1 else times * 99
    return {"median": cuts[49], "p99": cuts[98]}


async def overload() -> dict[str, Any]:
    """Twice what it can do, for a minute."""
    with running("--most-waiting", str(4 * SLOTS)) as server:
        connections = await warm(server)
        rate = await sustainable(connections)
        before = await alone(connections, questions()[:100])
        heard: list[Heard] = []
        memory = [server.megabytes()]
        began = time.perf_counter()
        for _ in range(6):
            heard += await open_loop(connections, questions(), 2 * rate, OVERLOAD_SECONDS / 6)
            memory.append(server.megabytes())
        after = await alone(connections, questions()[:100])
    seconds = []
    for second in range(int(OVERLOAD_SECONDS)):
        now = [one for one in heard if second <= one.began - began < second + 1]
        answered = [one.seconds for one in now if one.status == 200]
        refused = sum(one.status == 429 for one in now)
        late = 1000 * max(answered, default=0.0)
        seconds.append({"answered": len(answered), "refused": refused, "latest_ms": late})
    answered = [one.seconds for one in heard if one.status == 200]
    return {
        "asked_a_second": 2 * rate,
        "statuses": dict(Counter(one.status for one in heard)),
        "wrong": sum(one.is_wrong for one in heard),
        "ms": {"median": 1000 * median(answered), "p99": 1000 * quantiles(answered, n=100)[98]},
        "megabytes": memory,
        "alone_after_over_before": median(after[T] / before[T] for T in before),
        "seconds": seconds,
    }


async def terminating() -> dict[str, Any]:
    """SIGTERM in the middle: what was taken is answered."""
    with running() as server:
        connections = await warm(server)
        rate = await sustainable(connections)
        await asyncio.sleep(0.5)  # until its log has everything
        already = server.num_answered()
        load = asyncio.create_task(open_loop(connections, questions(), rate, 3.0))
        await asyncio.sleep(1.5)
        os.kill(server.process.pid, signal.SIGTERM)
        heard = await load
        code = await asyncio.to_thread(server.process.wait, 30)
        taken = server.num_answered() - already
    return {
        "statuses": dict(Counter(one.status for one in heard)),
        "statuses_mean": {
            REFUSED: "no connection any more",
            BROKEN: "a connection that ended without an answer",
        },
        "answered_by_its_log": taken,
        "wrong": sum(one.is_wrong for one in heard),
        "exit": code,
    }


async def nonsense() -> dict[str, Any]:
    """10,000 malformed requests of thirty kinds."""
    with running() as server:
        connections = await warm(server)
        statuses: Counter[int] = Counter()
        memory = [server.megabytes()]
        for number in range(1, KINDS_TIMES + 1):
            for body in malformed().values():
                try:
                    statuses[(await connections.exchange(body))[0]] += 1
                except (OSError, asyncio.IncompleteReadError):
                    statuses[BROKEN] += 1
            if number in (KINDS_TIMES // 4, KINDS_TIMES // 2, KINDS_TIMES):
                memory.append(server.megabytes())
        heard = [await connections.ask(one) for one in questions()[:20]]
    return {
        "kinds": len(malformed()),
        "statuses": dict(statuses),
        "megabytes": memory,
        "right_afterwards": sum(one.label == one.asked.label for one in heard),
        "of": len(heard),
    }


async def memory() -> dict[str, Any]:
    """Peak memory of the server with all slots busy for T steps."""
    peaks = {}
    question = deepen.examples("graph", "cut", 40, seed=5)[0].question
    for T in (4, 400):
        with running() as server:
            connections = Connections(server.address)
            await ready(connections)
            body = json.dumps({"questions": [question] * 4 * SLOTS, "steps": T}).encode()
            for _ in range(400 // T + 4):
                await connections.exchange(body)
            peaks[T] = server.megabytes("VmHWM")
    return {"peak_megabytes": peaks, "ratio": peaks[400] / peaks[4]}


def _run(trial: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    return asyncio.run(trial())


TRIALS: dict[str, Callable[[], dict[str, Any]]] = {
    f"serve {trial.__name__}": partial(_run, trial)
    for trial in (latency, memory, terminating, nonsense, overload)
}


def draw_trials(trials: Sequence[Trial], path: Path) -> None:
    """Latency over the steps of a question, and a minute of twice the sustainable load."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    found = {trial.trial: trial.figures for trial in trials}
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    times, load = figure.subplots(1, 2)
    if late := found.get("serve latency"):
        steps = [int(T) for T in late["alone_ms"]]
        times.plot(steps, list(late["alone_ms"].values()), "o-", label="alone", color="C0")
        for name, style in (("median", "o"), ("p99", "^")):
            loaded = [one[name] for one in late["loaded_ms"].values()]
            times.plot(steps, loaded, style, label=f"{name} at {LOAD:.0%} load", color="C1")
        times.set(xlabel="steps", ylabel="ms", xscale="log", yscale="log", title="Latency over HTTP")
        for axis, ticks in ((times.xaxis, (2, 4, 8, 16, 40)), (times.yaxis, (2, 5, 10, 20, 50, 100))):
            axis.set_minor_locator(NullLocator())
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter("{x:g}")
        times.legend(fontsize=8)
    if over := found.get("serve overload"):
        for name, colour in (("answered", "C2"), ("refused", "C3")):
            load.plot([one[name] for one in over["seconds"]], color=colour, label=f"{name} a second")
        load.set(xlabel="second", ylim=(0, None), title="Twice the sustainable load")
        latest = load.twinx()
        latest.plot([one["latest_ms"] for one in over["seconds"]], color="C7", linewidth=1)
        latest.set(ylabel="latest answer, ms (grey)", ylim=(0, None))
        load.legend(fontsize=8, loc="lower right")
    save_figure(figure, path)

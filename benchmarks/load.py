"""Trials of a real server under load from a second process: python benchmarks/load.py.

Everything is on loopback and bounded in time, some five minutes in all. The server is the command line's;
the load is asyncio over plain sockets. Results land in results/load.json.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean, median, quantiles
from typing import Any

import deepen
from benchmarks.serving import draw_steps
from deepen.memory import never_look_at_again
from deepen.runs import provenance, write_atomically

HERE = Path(__file__).parent
SLOTS = 8  # a full tick takes about twice as long as one with a single question
LATENCY_SECONDS, OVERLOAD_SECONDS, WARM_UP = 20.0, 60.0, 5.0
KINDS_TIMES = 334  # malformed requests of each kind
REFUSED, BROKEN = 0, -1  # instead of a status


@dataclass(frozen=True)
class Asked:
    """A request with what is known of its answer."""

    body: bytes
    label: bool
    steps: int


@dataclass(frozen=True)
class Heard:
    """What came back."""

    asked: Asked
    status: int
    seconds: float
    label: bool | None = None


def make_questions(num: int) -> list[Asked]:
    """Of 2 to 40 steps, each with just as many hops."""
    rng = Random("load")
    asked = []
    for place in range(num):
        T = draw_steps(rng)
        one = deepen.examples("graph", "cut", T, seed=1000 + place, num=2)[place % 2]
        body = json.dumps({"question": one.question, "steps": T}).encode()
        asked.append(Asked(body, one.label, T))
    return asked


class Server:
    """`deepen serve` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deepen", "serve", "--port", "0", "--slots", str(SLOTS), *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stderr is not None
        found = None
        while found is None:
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError("the server did not start")
            found = re.search(r"on http://([\d.]+):(\d+)$", line)
        self.address = found[1], int(found[2])
        # Nobody reads the log: let it not fill the pipe.
        self.drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def resident_megabytes(self) -> float:
        return self._megabytes("VmRSS")

    def peak_megabytes(self) -> float:
        return self._megabytes("VmHWM")

    def _megabytes(self, name: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.drain.wait()


class Connections:
    """Open connections, used again and again."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, asked: Asked) -> Heard:
        began = time.perf_counter()
        try:
            status, content = await self.exchange(asked.body)
        except ConnectionRefusedError:
            return Heard(asked, REFUSED, time.perf_counter() - began)
        except (OSError, asyncio.IncompleteReadError):
            return Heard(asked, BROKEN, time.perf_counter() - began)
        seconds = time.perf_counter() - began
        label = json.loads(content)["answers"][0]["label"] if status == 200 else None
        return Heard(asked, status, seconds, label)

    async def exchange(self, body: bytes, head: bytes = b"POST /v1/answer HTTP/1.1") -> tuple[int, bytes]:
        """One request; on a connection that the server had closed meanwhile, another one."""
        if self.free:
            try:
                return await self._exchange(*self.free.pop(), body, head)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                if getattr(error, "partial", b""):
                    raise
        return await self._exchange(*await asyncio.open_connection(*self.address), body, head)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, head: bytes
    ) -> tuple[int, bytes]:
        try:
            writer.write(head + b"\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            headers = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(headers.partition(b"content-length: ")[2].split(b"\r\n")[0])
            content = await reader.readexactly(length)
        except BaseException:
            writer.close()
            raise
        if b"connection: close" in headers:
            writer.close()
        else:
            self.free.append((reader, writer))
        return int(headers.split()[1]), content


async def ready(connections: Connections) -> None:
    while True:
        try:
            status, _ = await connections.exchange(b"", b"GET /readyz HTTP/1.1")
            if status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)


async def closed_loop(connections: Connections, asked: Sequence[Asked], num: int, seconds: float) -> float:
    """Answers a second with `num` questions outstanding all the time."""
    done = 0
    stop = time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal done
        place = number
        while time.perf_counter() < stop:
            heard = await connections.ask(asked[place % len(asked)])
            done += heard.status == 200
            place += num

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(num)))
    return done / (time.perf_counter() - began)


async def open_loop(
    connections: Connections, asked: Sequence[Asked], rate: float, seconds: float
) -> list[Heard]:
    """Questions at random moments, `rate` a second, whatever becomes of the earlier ones."""
    rng = Random("arrivals")
    began = time.perf_counter()
    moment, tasks = 0.0, []
    while moment < seconds:
        moment += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, began + moment - time.perf_counter()))
        tasks.append(asyncio.create_task(connections.ask(asked[len(tasks) % len(asked)])))
    return list(await asyncio.gather(*tasks))


async def alone(connections: Connections, asked: Sequence[Asked]) -> dict[int, float]:
    """Steps -> seconds that a question takes when it is the only one; the median."""
    times: dict[int, list[float]] = {}
    for one in asked:
        times.setdefault(one.steps, []).append((await connections.ask(one)).seconds)
    return {T: median(taken) for T, taken in times.items()}


def slowdowns(heard: Sequence[Heard], needs: dict[int, float]) -> list[float]:
    """Of everyone answered: how many times as long as alone."""
    return [one.seconds / needs[one.asked.steps] for one in heard if one.status == 200]


async def try_latency(asked: Sequence[Asked]) -> dict[str, Any]:
    server = Server()
    try:
        connections = Connections(server.address)
        await ready(connections)
        await closed_loop(connections, asked, SLOTS, WARM_UP)
        needs = await alone(connections, asked[:300])
        best = await closed_loop(connections, asked, 2 * SLOTS, LATENCY_SECONDS / 2)
        heard = await open_loop(connections, asked, 0.7 * best, LATENCY_SECONDS)
        again = await alone(connections, asked[:300])
        needs = {T: mean((needs[T], again[T])) for T in needs}
        slower = quantiles(slowdowns([one for one in heard if one.asked.steps in needs], needs), n=100)
        return {
            "sustainable_a_second": best,
            "load": 0.7,
            "answered": sum(one.status == 200 for one in heard),
            "asked": len(heard),
            "wrong": sum(one.status == 200 and one.label != one.asked.label for one in heard),
            "slowdown_median": slower[49],
            "slowdown_p90": slower[89],
            "slowdown_p99": slower[98],
            "ms_p99": 1000 * quantiles([one.seconds for one in heard], n=100)[98],
            "alone_ms": {T: 1000 * seconds for T, seconds in sorted(needs.items())},
        }
    finally:
        server.stop()


async def try_overload(asked: Sequence[Asked], best: float) -> dict[str, Any]:
    server = Server("--most-waiting", str(4 * SLOTS))
    try:
        connections = Connections(server.address)
        await ready(connections)
        await closed_loop(connections, asked, SLOTS, WARM_UP)
        before = await alone(connections, asked[:100])
        heard, memory = [], []
        for _ in range(6):
            heard += await open_loop(connections, asked, 2 * best, OVERLOAD_SECONDS / 6)
            memory.append(server.resident_megabytes())
        after = await alone(connections, asked[:100])
        answered = [one for one in heard if one.status == 200]
        return {
            "seconds": OVERLOAD_SECONDS,
            "asked_a_second": 2 * best,
            "statuses": dict(Counter(one.status for one in heard)),
            "wrong": sum(one.label != one.asked.label for one in answered),
            "ms_p50": 1000 * median(one.seconds for one in answered),
            "ms_p99": 1000 * quantiles([one.seconds for one in answered], n=100)[98],
            "megabytes": memory,
            "alone_after_over_before": median(after[T] / before[T] for T in before),
        }
    finally:
        server.stop()


async def try_terminating(asked: Sequence[Asked], best: float) -> dict[str, Any]:
    server = Server()
    try:
        connections = Connections(server.address)
        await ready(connections)
        load = asyncio.create_task(open_loop(connections, asked, best, 3.0))
        await asyncio.sleep(1.5)
        os.kill(server.process.pid, signal.SIGTERM)
        heard = await load
        code = server.process.wait(timeout=30)
        statuses = Counter(one.status for one in heard)
        return {
            "statuses": dict(statuses),
            "wrong": sum(one.status == 200 and one.label != one.asked.label for one in heard),
            "exit": code,
            "note": f"{REFUSED}: no connection any more; {BROKEN}: a connection ended without an answer",
        }
    finally:
        server.stop()


def malformed() -> dict[str, bytes]:
    """Thirty kinds of nonsense."""
    graph: dict[str, Any] = {"edges": [["a", "b"]], "source": "a", "target": "b"}

    def asking(question: Any, **rest: Any) -> bytes:
        return json.dumps({"question": question, "steps": 2, **rest}).encode()

    return {
        "empty": b"",
        "not JSON": b"hello",
        "torn": b'{"question": {"edges": [["a"',
        "bytes": bytes(range(256)),
        "no UTF-8": b'{"question": "\xff\xfe"}',
        "deep": b'{"question": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        "null": b"null",
        "list": b"[1, 2]",
        "number": b"1e400",
        "NaN": b'{"question": 1, "steps": NaN}',
        "digits": b'{"question": 1, "steps": ' + b"9" * 5000 + b"}",
        "surrogate": b'{"question": {"edges": [["\\ud800", "b"]], "source": "x", "target": "b"}, "steps": 1}',
        "no question": b'{"steps": 3}',
        "both": json.dumps({"question": graph, "questions": [graph]}).encode(),
        "unknown key": asking(graph, temperature=1),
        "no steps": asking(graph, steps=0),
        "negative": asking(graph, steps=-1),
        "text steps": asking(graph, steps="many"),
        "too many steps": asking(graph, steps=10**9),
        "deadline": asking(graph, deadline_ms=-5),
        "model": asking(graph, model="nothing"),
        "model type": asking(graph, model=["graph"]),
        "question type": asking("T&F"),
        "no source": asking({"edges": [["a", "b"]]}),
        "edge of three": asking({**graph, "edges": [["a", "b", "c"]]}),
        "edge of lists": asking({**graph, "edges": [[["a"], {"b": 1}]]}),
        "edges of text": asking({**graph, "edges": "ab"}),
        "unknown node": asking({**graph, "target": "z"}),
        "too many edges": asking({**graph, "edges": [["a", "b"]] * 20_001}),
        "too large": b'{"question": "' + b"T" * 2**20 + b'"}',
    }


async def try_malformed(asked: Sequence[Asked]) -> dict[str, Any]:
    server = Server()
    try:
        connections = Connections(server.address)
        await ready(connections)
        kinds = malformed()
        statuses: Counter[int] = Counter()
        memory = []
        for number in range(KINDS_TIMES):
            for body in kinds.values():
                try:
                    statuses[(await connections.exchange(body))[0]] += 1
                except (OSError, asyncio.IncompleteReadError):
                    statuses[BROKEN] += 1
            if number in (KINDS_TIMES // 4, KINDS_TIMES // 2, KINDS_TIMES - 1):
                memory.append(server.resident_megabytes())
        heard = [await connections.ask(one) for one in asked[:20]]
        return {
            "kinds": len(kinds),
            "requests": len(kinds) * KINDS_TIMES,
            "statuses": dict(statuses),
            "megabytes": memory,
            "answered_afterwards": sum(one.label == one.asked.label for one in heard),
            "of": len(heard),
        }
    finally:
        server.stop()


async def try_memory() -> dict[str, Any]:
    """Peak memory of the server with all slots busy for T steps."""
    peaks = {}
    question = deepen.examples("graph", "cut", 40, seed=5)[0].question
    for T in (4, 400):
        server = Server()
        try:
            connections = Connections(server.address)
            await ready(connections)
            body = json.dumps({"questions": [question] * 4 * SLOTS, "steps": T}).encode()
            for _ in range(400 // T + 4):
                await connections.exchange(body)
            peaks[T] = server.peak_megabytes()
        finally:
            server.stop()
    return {"peak_megabytes": peaks, "ratio": peaks[400] / peaks[4]}


async def main() -> None:
    asked = make_questions(3_000)
    never_look_at_again()
    results: dict[str, Any] = {}
    results["latency"] = await try_latency(asked)
    print(json.dumps(results["latency"]), flush=True)
    best = results["latency"]["sustainable_a_second"]
    results["memory"] = await try_memory()
    print(json.dumps(results["memory"]), flush=True)
    results["terminating"] = await try_terminating(asked, best)
    print(json.dumps(results["terminating"]), flush=True)
    results["malformed"] = await try_malformed(asked)
    print(json.dumps(results["malformed"]), flush=True)
    results["overload"] = await try_overload(asked, best)
    print(json.dumps(results["overload"]), flush=True)
    content = json.dumps({"results": results, **provenance()}, indent=1)
    write_atomically(HERE / "results" / "load.json", content.encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(main())

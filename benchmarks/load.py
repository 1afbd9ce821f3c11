"""A real server in a process of its own, and load on it: the tools of trials.py.

The server is the command line's, on loopback; the load is asyncio over plain sockets.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Self

import deepen
from benchmarks.serving import draw_steps
from deepen.bench import BenchError

REFUSED, BROKEN = 0, -1  # instead of a status
LONGEST = 60.0  # seconds that anything may take


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
    began: float
    seconds: float
    label: bool | None = None

    @property
    def is_wrong(self) -> bool:
        return self.status == 200 and self.label != self.asked.label


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
    """`deepen serve` in a process of its own, with its log in a file."""

    def __init__(self, *arguments: str) -> None:
        self.log = Path(tempfile.mkstemp(prefix="deepen-serve-")[1])
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deepen", "serve", "--port", "0", *arguments],
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        while not (found := re.search(r"on http://([\d.]+):(\d+)$", self.log.read_text(), re.MULTILINE)):
            if self.process.poll() is not None:
                raise BenchError(f"the server did not start: {self.log.read_text()[-500:]}")
            time.sleep(0.05)
        self.address = found[1], int(found[2])

    def num_answered(self) -> int:
        """Requests that were answered, by its own log."""
        lines = [
            json.loads(line) for line in self.log.read_text().splitlines() if '"event": "request"' in line
        ]
        return sum(line["path"] == "/v1/answer" and line["status"] == 200 for line in lines)

    def megabytes(self, name: str = "VmRSS") -> float:
        """Of all its processes together; VmHWM is the most there ever was."""
        pids, total = [self.process.pid], 0.0
        for pid in pids:  # grows meanwhile
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024
        return total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        self.log.unlink()


class Connections:
    """Open connections, used again and again."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, asked: Asked) -> Heard:
        began = time.perf_counter()
        status, label = BROKEN, None
        try:
            async with asyncio.timeout(LONGEST):
                status, content = await self.exchange(asked.body)
            if status == 200:
                label = json.loads(content)["answers"][0]["label"]
        except ConnectionRefusedError:
            status = REFUSED
        except (OSError, asyncio.IncompleteReadError):  # a time-out is an OSError
            pass
        return Heard(asked, status, began, time.perf_counter() - began, label)

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
    give_up = time.perf_counter() + LONGEST
    while time.perf_counter() < give_up:
        try:
            status, _ = await connections.exchange(b"", b"GET /readyz HTTP/1.1")
            if status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise BenchError(f"the server takes no questions after {LONGEST:g} s")


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

"""An engine in a process of its own, so that reading requests and thinking do not wait for each other.

Questions go through a line to the other process, and what became of them comes back after every tick.
On this side everything happens in the event loop: no thread has to wait for another to let go of the
interpreter, and whatever the line cannot take at once is kept until it can. If the process dies, everyone
who waits is told, and nobody new is taken; if this one dies, the other sees the line end and goes too.
"""

import asyncio
import logging
import multiprocessing
import pickle
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from time import monotonic
from traceback import format_exception
from typing import Any, cast

from deepen.engine import Ask, ClosedError, DeadlineError, Engine, FullError, Numbers, retry_after
from deepen.memory import never_look_at_again
from deepen.reasoner import Answer
from deepen.shapes import Encoded

log = logging.getLogger("deepen.serve")
TELL_NUMBERS = 0.1  # seconds after which it says how it is doing even if nobody is done


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A question on its way to the other process."""

    number: int
    encoded: Encoded
    limit: int
    settles: bool
    deadline: float | None  # both processes read the same clock
    watched: bool
    traced: bool


@dataclass(kw_only=True)
class Told:
    """What has happened since the last time."""

    steps: list[tuple[int, int, float]] = field(default_factory=list)  # question, step, probability
    answers: list[tuple[int, Answer]] = field(default_factory=list)
    errors: list[tuple[int, str, str]] = field(default_factory=list)  # question, kind of error, message
    numbers: Numbers | None = None

    def forget(self) -> None:
        for told in (self.steps, self.answers, self.errors):
            told.clear()


class Line(asyncio.Protocol):
    """This end of a `multiprocessing` connection: a message is its length in four bytes and a pickle."""

    def __init__(self, heard: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._heard, self._ended = heard, ended
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def send(self, message: object) -> None:
        """Never waits."""
        content = pickle.dumps(message)
        self._transport.write(struct.pack("!i", len(content)) + content)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + struct.unpack_from("!i", self._received)[0]
            if len(self._received) < end:
                return
            message = pickle.loads(self._received[4:end])
            del self._received[:end]
            self._heard(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended()


class RemoteEngine:
    """`Engine`, elsewhere; belongs to the event loop that starts it. `make` builds the real one there."""

    def __init__(
        self, make: Callable[[], Engine], slots: int, most_waiting: int, name: str = "engine"
    ) -> None:
        if slots < 2:
            raise ValueError(f"an engine needs at least 2 slots, got {slots}")
        self.name = name
        self.slots = slots
        self.most_waiting = most_waiting
        self.is_open = False
        self.has_died = False
        """Whether it ended without having been told to."""
        self._make = make
        self._numbers = Numbers()
        self._asks: dict[int, Ask] = {}
        self._next = 0
        self._why_closed = "the engine is shutting down"
        self._line: Line | None = None

    def numbers(self) -> Numbers:
        """As of the latest tick, and with what has been sent since then."""
        return replace(self._numbers, waiting=max(0, len(self._asks) - self._numbers.active))

    async def start(self) -> None:
        """Start the process and wait until its engine is there."""
        mine, theirs = socket.socketpair()
        context = multiprocessing.get_context("spawn")
        other_end = Connection(theirs.detach())
        self._process = context.Process(target=_think, args=(other_end, self._make), daemon=True)
        self._process.start()
        other_end.close()
        loop = asyncio.get_running_loop()
        self._is_there, self._gone = loop.create_future(), asyncio.Event()
        _, self._line = await loop.create_unix_connection(lambda: Line(self._hear, self._end), sock=mine)
        if not await self._is_there:
            raise RuntimeError("the process of the engine did not start")
        self.is_open = True

    def refusal(self) -> FullError | None:
        """What one more question would be told if there is no room for it."""
        return self._full() if len(self._asks) >= self.slots + self.most_waiting else None

    def _full(self) -> FullError:
        return FullError(retry_after(self._asks.values(), self._numbers.steps_a_second))

    def submit(self, asks: Sequence[Ask]) -> None:
        """Let all of them wait for a slot, or none; the answers come through their futures."""
        if not self.is_open:
            raise ClosedError(self._why_closed)
        assert self._line is not None
        if len(self._asks) + len(asks) > self.slots + self.most_waiting:
            raise self._full()
        numbered = dict(enumerate(asks, start=self._next))
        self._next += len(asks)
        self._asks |= numbered
        self._line.send([_sent(number, ask) for number, ask in numbered.items()])
        for number, ask in numbered.items():
            ask.future.add_done_callback(partial(self._cancel, number))

    def _cancel(self, number: int, future: Future[Answer]) -> None:
        if future.cancelled() and self._asks.pop(number, None) is not None and self._line is not None:
            self._line.send(number)

    def _hear(self, told: Told | None) -> None:
        """Hand on what the other process tells; first of all that its engine is there."""
        if told is None:
            self._is_there.set_result(True)
            return
        if told.numbers is not None:
            self._numbers = told.numbers
        for number, step, probability in told.steps:
            ask = self._asks.get(number)
            if ask is not None and ask.watch is not None:
                ask.watch(step, probability)
        for number, answer in told.answers:
            if (ask := self._asks.pop(number, None)) is not None:
                ask.steps = answer.steps
                if ask.future.set_running_or_notify_cancel():
                    ask.future.set_result(answer)
        for number, kind, message in told.errors:
            if (ask := self._asks.pop(number, None)) is not None:
                _fail(
                    ask, DeadlineError(message) if kind == DeadlineError.__name__ else RuntimeError(message)
                )

    def _end(self) -> None:
        """The other process has gone; if it was not told to, someone still waits."""
        if self.is_open:
            self.has_died = True
            self._why_closed = "the process of the engine has ended"
            self._process.join()  # it is gone: this only takes its exit code
            fields = {"model": self.name, "exit": self._process.exitcode}
            log.error(self._why_closed, extra={"fields": fields})
        self.is_open, self._line = False, None
        self._numbers = Numbers(steps_taken=self._numbers.steps_taken)
        left, self._asks = self._asks, {}
        for ask in left.values():
            _fail(ask, ClosedError("the process of the engine has ended"))
        if not self._is_there.done():
            self._is_there.set_result(False)
        self._gone.set()

    def refuse(self) -> None:
        """Take nothing new."""
        self.is_open = False

    async def close(self) -> None:
        """Take nothing new, finish what was taken."""
        self.refuse()
        if self._line is not None:
            self._line.send(None)
            await self._gone.wait()
            await asyncio.to_thread(self._process.join)

    def abandon(self) -> None:
        """End the other process whatever it is doing; nothing happens if it was closed."""
        if self._line is not None:
            self._process.kill()


def _sent(number: int, ask: Ask) -> Sent:
    return Sent(
        number=number,
        encoded=ask.encoded,
        limit=ask.limit,
        settles=ask.settles,
        deadline=ask.deadline,
        watched=ask.watch is not None,
        traced=ask.trace is not None,
    )


def _fail(ask: Ask, error: Exception) -> None:
    if ask.future.set_running_or_notify_cancel():
        ask.future.set_exception(error)


def _think(pipe: Connection, make: Callable[[], Engine]) -> None:
    """The other process: take what has come, tick, tell."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # the first process decides when it is over
    engine = make()
    never_look_at_again()
    pipe.send(None)
    told = Told()
    here: dict[int, Ask] = {}
    closing = False
    told_at = monotonic()
    while not (closing and engine.is_idle):
        try:
            while pipe.poll(None if engine.is_idle and not closing else 0):
                message = pipe.recv()
                if message is None:
                    closing = True
                elif isinstance(message, int):
                    if message in here:
                        here[message].future.cancel()
                else:
                    _take(message, engine, here, told)
                if closing and engine.is_idle:
                    break
            engine.tick_or_fail()
            told.numbers = engine.numbers()
            news = told.steps or told.answers or told.errors
            if news or engine.is_idle or monotonic() > told_at + TELL_NUMBERS:
                pipe.send(told)
                told.forget()
                told_at = monotonic()
        except (EOFError, OSError):
            return


def _take(message: Sequence[Sent], engine: Engine, here: dict[int, Ask], told: Told) -> None:
    asks = []
    for sent in message:
        ask = Ask(
            encoded=sent.encoded,
            limit=sent.limit,
            settles=sent.settles,
            deadline=sent.deadline,
            trace=[] if sent.traced else None,
        )
        if sent.watched:
            ask.watch = partial(_note_step, told, sent.number)
        ask.future.add_done_callback(partial(_note_end, told, here, sent.number))
        here[sent.number] = ask
        asks.append(ask)
    engine.submit(asks)


def _note_step(told: Told, number: int, step: int, probability: float) -> None:
    told.steps.append((number, step, probability))


def _note_end(told: Told, here: dict[int, Any], number: int, done: Future[Answer]) -> None:
    del here[number]
    if done.cancelled():
        return
    error = done.exception()
    if error is None:
        told.answers.append((number, done.result()))
    else:
        late = isinstance(error, DeadlineError)
        message = str(error) if late else "".join(format_exception(error))  # only the log will show it
        told.errors.append((number, type(error).__name__, message))

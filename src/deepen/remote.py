"""An engine in a process of its own, so that reading requests and thinking do not wait for each other.

The same calls as on an `Engine`. Questions go through one pipe, and what became of them comes back
through it after every tick. If the process dies, everyone who waits is told, and nobody new is taken; if
this one dies, the other sees the pipe end and goes too.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from time import monotonic
from typing import Any

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


class RemoteEngine:
    """`Engine`, elsewhere. `make` builds the real one there and must be picklable."""

    def __init__(self, make: Callable[[], Engine], slots: int, most_waiting: int) -> None:
        if slots < 2:
            raise ValueError(f"an engine needs at least 2 slots, got {slots}")
        self.slots = slots
        self.most_waiting = most_waiting
        self._make = make
        self._numbers = Numbers()
        self._asks: dict[int, Ask] = {}
        self._next = 0
        self._closed = True
        self._why_closed = "the engine is shutting down"
        self._was_started = False
        self._lock = threading.Lock()
        self._outbox: SimpleQueue[object] = SimpleQueue()

    def numbers(self) -> Numbers:
        """As of the latest tick, and with what has been sent since then."""
        waiting = max(0, len(self._asks) - self._numbers.active)
        return Numbers(
            waiting=waiting,
            active=self._numbers.active,
            steps_taken=self._numbers.steps_taken,
            steps_a_second=self._numbers.steps_a_second,
        )

    @property
    def is_open(self) -> bool:
        return not self._closed

    def start(self) -> None:
        """Start the process and wait until its engine is there."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_think, args=(theirs, self._make), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._pipe.recv()
        except EOFError:
            raise RuntimeError("the process of the engine did not start") from None
        self._closed, self._was_started = False, True
        self._listener = threading.Thread(target=self._listen, name="engine", daemon=True)
        # A pipe can be full: then someone must wait who is neither the server nor the listener.
        self._sender = threading.Thread(target=self._send, name="to the engine", daemon=True)
        self._listener.start()
        self._sender.start()

    def submit(self, asks: Sequence[Ask]) -> None:
        """Let all of them wait for a slot, or none; the answers come through their futures."""
        with self._lock:
            if self._closed:
                raise ClosedError(self._why_closed)
            if len(self._asks) + len(asks) > self.slots + self.most_waiting:
                numbers = self._numbers
                raise FullError(retry_after(self._asks.values(), numbers.steps_a_second))
            numbered = dict(enumerate(asks, start=self._next))
            self._next += len(asks)
            self._asks |= numbered
            self._outbox.put([_sent(number, ask) for number, ask in numbered.items()])
        for number, ask in numbered.items():
            ask.future.add_done_callback(partial(self._cancel, number))

    def _cancel(self, number: int, future: Future[Answer]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            if self._asks.pop(number, None) is not None:
                self._outbox.put(number)

    def _send(self) -> None:
        """Hand over what was put into the outbox, in order; None is the last."""
        message: object = ()
        while message is not None:
            message = self._outbox.get()
            with suppress(OSError):  # who listens notices that the pipe is broken
                self._pipe.send(message)

    def _listen(self) -> None:
        """Hand on what the other process tells, until it ends."""
        try:
            while True:
                self._hand_on(self._pipe.recv())
        except (EOFError, OSError):
            with self._lock:
                if not self._closed:
                    self._why_closed = "the process of the engine has ended"
                    log.error(self._why_closed)
                self._closed = True
                self._numbers = Numbers(steps_taken=self._numbers.steps_taken)
                left, self._asks = self._asks, {}
            for ask in left.values():
                _fail(ask, ClosedError("the process of the engine has ended"))

    def _hand_on(self, told: Told) -> None:
        if told.numbers is not None:
            self._numbers = told.numbers
        for number, step, probability in told.steps:
            ask = self._asks.get(number)
            if ask is not None and ask.watch is not None:
                ask.watch(step, probability)
        for number, answer in told.answers:
            if (ask := self._taken(number)) is not None and ask.future.set_running_or_notify_cancel():
                ask.steps = answer.steps
                ask.future.set_result(answer)
        for number, kind, message in told.errors:
            if (ask := self._taken(number)) is not None:
                _fail(ask, (DeadlineError if kind == DeadlineError.__name__ else RuntimeError)(message))

    def _taken(self, number: int) -> Ask | None:
        with self._lock:
            return self._asks.pop(number, None)

    def close(self) -> None:
        """Take nothing new, finish what was taken."""
        with self._lock:
            self._closed = True
        if self._was_started:
            self._outbox.put(None)
            self._listener.join()
            self._sender.join()
            self._process.join()
            self._pipe.close()
            self._was_started = False

    def abandon(self) -> None:
        """End the other process whatever it is doing; nothing happens if it was closed."""
        if self._was_started:
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
    pipe.send(os.getpid())
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
        told.errors.append((number, type(error).__name__, str(error)))

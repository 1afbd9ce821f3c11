"""Continuous depth batching: many questions at different depths, one step at a time.

A tick is one step of everyone who has a slot. Who has used up its budget, or has settled, is answered
and gives up its slot; before the next tick the slots that are free go to those who wait. Memory depends
on the number of slots, never on how long anyone thinks.

First comes who would have been done first if it had got a slot on arrival: a short question need not wait
for a long one that came with it. Nobody starves: those who come later would be done later and later, so
that a long question is overtaken only for as many ticks as it has steps; and a quarter of the slots is
kept for questions that take at most LONG steps and so leave soon.

The engine decides who thinks when. What thinking is, it does not know (see thinkers.py); nor does it wait
for anything: someone gives it questions and calls `tick` again and again (see remote.py).
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from time import monotonic

from deepen.reasoner import Answer
from deepen.thinkers import Entry, Thinkers

LONG = 64  # steps from which a question counts as a long one
RATE_MEMORY = 0.05  # share of the latest tick in the running mean of speed


class FullError(RuntimeError):
    """No room for more questions to wait; the message says when there may be."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many questions are waiting: try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class ClosedError(RuntimeError):
    """The engine takes no more questions."""


class DeadlineError(RuntimeError):
    """A question whose time was up before its answer was there."""


@dataclass(eq=False, kw_only=True)
class Ask(Entry):
    """A question on its way through the engine."""

    deadline: float | None = None
    """When it must be answered, by `time.monotonic`."""
    watch: Callable[[int, float], None] | None = None
    """Called after each step with the number of the step and the probability."""
    future: Future[Answer] = field(default_factory=Future)
    trace: list[float] | None = None
    """Where the probability after each step is written down; None: nowhere."""
    steps: int = 0
    in_a_row: int = 0

    @property
    def is_long(self) -> bool:
        return self.limit > LONG


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """How an engine is doing."""

    waiting: int = 0
    active: int = 0
    steps_taken: int = 0
    steps_a_second: float = 0.0


def retry_after(waiting: Iterable[Ask], steps_a_second: float) -> float:
    """Seconds until those who wait now will have been served."""
    return min(60.0, max(1.0, sum(ask.limit for ask in waiting) / max(steps_a_second, 1.0)))


class Engine:
    """Slots, and a queue in front of them."""

    def __init__(self, thinkers: Thinkers, slots: int = 32, most_waiting: int = 256) -> None:
        if slots < 2:
            raise ValueError(f"an engine needs at least 2 slots, got {slots}")
        self.thinkers = thinkers
        self.slots = slots
        self.most_long = slots - max(1, slots // 4)
        self.most_waiting = most_waiting
        self.active: dict[int, Ask] = {}
        self.steps_taken = 0
        self.steps_a_second = 0.0
        self.ticks = 0
        self._num_thinking = 0
        self._waiting: list[tuple[int, int, Ask]] = []
        """A heap: when it would have been done, the order of arrival, the question."""
        self._num_asked = 0
        self._look_again_at = inf
        """When someone who waits or thinks may be lost; until then nobody needs to be looked at."""
        self._next_key = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self.active)

    def numbers(self) -> Numbers:
        """Who has just been answered still counts as active if others are about to take the slot."""
        return Numbers(
            waiting=len(self._waiting),
            active=0 if self.is_idle else self._num_thinking,
            steps_taken=self.steps_taken,
            steps_a_second=self.steps_a_second,
        )

    def submit(self, asks: Sequence[Ask]) -> None:
        """Let all of them wait for a slot, or none; the answers come through their futures."""
        if len(self._waiting) + len(asks) > self.most_waiting:
            raise FullError(retry_after([ask for _, _, ask in self._waiting], self.steps_a_second))
        for ask in asks:
            heappush(self._waiting, (self.ticks + ask.limit, self._num_asked, ask))
            self._num_asked += 1
            if ask.deadline is not None:
                self._look_again_at = min(self._look_again_at, ask.deadline)
            ask.future.add_done_callback(self._notice_cancelled)

    def _notice_cancelled(self, future: Future[Answer]) -> None:
        if future.cancelled():
            self._look_again_at = 0.0

    def tick(self) -> None:
        """Fill the free slots, let everyone take a step, answer those who are done."""
        self._drop_lost()
        self._fill()
        self._num_thinking = len(self.active)
        if not self.active:
            return
        began = monotonic()
        would_stop = self.thinkers.step()
        self.ticks += 1
        done = set()
        for key, ask in self.active.items():
            ask.steps += 1
            ask.in_a_row = ask.in_a_row + 1 if key in would_stop else 0
            if ask.steps >= ask.limit or (ask.settles and ask.in_a_row >= self.thinkers.patience):
                done.add(key)
        watched = {key for key, ask in self.active.items() if ask.watch or ask.trace is not None}
        if done or watched:
            self._report(self.thinkers.read(done | watched), done)
        self.steps_taken += len(self.active) + len(done)
        speed = (len(self.active) + len(done)) / max(monotonic() - began, 1e-9)
        self.steps_a_second += RATE_MEMORY * (speed - self.steps_a_second)

    def _report(self, probabilities: dict[int, float], done: set[int]) -> None:
        """Tell who watches, answer who is done."""
        for key, probability in probabilities.items():
            ask = self.active[key]
            if ask.trace is not None:
                ask.trace.append(probability)
            if ask.watch is not None:
                ask.watch(ask.steps, probability)
        self.thinkers.leave(done)
        for key in done:
            ask = self.active.pop(key)
            probability = probabilities[key]
            answer = Answer(
                probability=probability, label=probability > 0.5, steps=ask.steps, trace=ask.trace or []
            )
            if ask.future.set_running_or_notify_cancel():
                ask.future.set_result(answer)

    def _drop_lost(self) -> None:
        """Let go of those who were cancelled or whose time is up."""
        now = monotonic()
        if now < self._look_again_at:
            return
        lost = {key for key, ask in self.active.items() if _is_lost(ask, now)}
        if lost:
            self.thinkers.leave(lost)
            for key in lost:
                del self.active[key]
        self._waiting = [one for one in self._waiting if not _is_lost(one[-1], now)]
        heapify(self._waiting)
        everyone = [*(one[-1] for one in self._waiting), *self.active.values()]
        deadlines = [ask.deadline for ask in everyone if ask.deadline is not None]
        self._look_again_at = min(deadlines, default=inf)

    def _fill(self) -> None:
        """Give the free slots to the first who may have them."""
        fresh: dict[int, Ask] = {}
        num_long = sum(ask.is_long for ask in self.active.values())
        passed = []
        while self._waiting and len(self.active) + len(fresh) < self.slots:
            first = heappop(self._waiting)
            ask = first[-1]
            if ask.is_long and num_long >= self.most_long:
                passed.append(first)
                continue
            num_long += ask.is_long
            fresh[self._next_key] = ask
            self._next_key += 1
        for one in passed:
            heappush(self._waiting, one)
        if fresh:
            self.active |= fresh
            self.thinkers.enter(fresh)

    def tick_or_fail(self) -> None:
        """A tick; whatever goes wrong is told to those who think, and the next do not suffer from it."""
        try:
            self.tick()
        except Exception as error:
            self._fail_active(error)

    def _fail_active(self, error: Exception) -> None:
        self.thinkers.clear()
        for ask in self.active.values():
            if ask.future.set_running_or_notify_cancel():
                ask.future.set_exception(error)
        self.active.clear()


def _is_lost(ask: Ask, now: float) -> bool:
    """Whether nobody waits for the answer any more; who is too late is told so."""
    if ask.deadline is not None and now >= ask.deadline and not ask.future.done():
        if ask.future.set_running_or_notify_cancel():
            ask.future.set_exception(DeadlineError(f"the time was up after {ask.steps} of {ask.limit} steps"))
        return True
    return ask.future.done()

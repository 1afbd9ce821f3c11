"""An engine in another process: the same answers, and everyone is told when it dies."""

import asyncio
import os
import pickle
import signal
import struct
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from test_engine import Diary, ask

import deepen
from deepen.engine import Ask, ClosedError, DeadlineError, Engine, FullError
from deepen.remote import Line, RemoteEngine
from deepen.service import make_engine
from deepen.shapes import Encoded


def diary_engine():
    return Engine(Diary(), slots=2, most_waiting=sys.maxsize)


class Slow(Diary):
    def step(self):
        time.sleep(0.01)
        return super().step()


def slow_engine():
    return Engine(Slow(), slots=2, most_waiting=sys.maxsize)


class Outside:
    """A remote engine whose event loop runs in another thread; calls return when they are done there."""

    def __init__(self, make, most_waiting):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.engine = RemoteEngine(make, 2, most_waiting)

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def __call__(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout=60)

    def start(self):
        self(self.engine.start())

    def close(self):
        self(self.engine.close())

    def submit(self, asks):
        self(_called(self.engine.submit, asks))

    def cancel(self, one):
        return self(_called(one.future.cancel))


async def _called(function, *arguments):
    return function(*arguments)


@pytest.fixture
def started():
    """Starts engines; those that a test leaves behind are ended, or this process would wait for them."""
    engines = []

    def start(make, most_waiting=10):
        engines.append(Outside(make, most_waiting))
        engines[-1].start()
        return engines[-1]

    yield start
    for engine in engines:
        engine.abandon()


def test_answers_steps_and_closing(started):
    engine = started(diary_engine)
    seen = []
    asks = [
        ask(3, trace=[]),
        ask(5),
        ask(2, watch=lambda step, probability: seen.append((step, probability))),
    ]
    engine.submit(asks)
    engine.close()
    assert [one.future.result(timeout=0).steps for one in asks] == [3, 5, 2]
    assert [one.steps for one in asks] == [3, 5, 2]
    assert asks[0].future.result().trace == [0.25] * 3, "the second shortest"
    assert seen == [(1, 0.75), (2, 0.75)]
    with pytest.raises(ClosedError):
        engine.submit([ask(1)])
    assert engine.numbers().steps_taken == 10


def test_cancelling_deadlines_and_a_full_queue(started):
    engine = started(slow_engine)
    forever = [ask(10**6) for _ in range(2)]
    late = ask(10**6, deadline=time.monotonic() + 0.3)
    engine.submit([*forever, late])
    with pytest.raises(FullError) as refused:
        engine.submit([ask(1) for _ in range(10)])
    assert 1 <= refused.value.retry_after <= 60
    with pytest.raises(DeadlineError, match="the time was up"):
        late.future.result(timeout=10)
    short = ask(2)
    engine.submit([short])
    assert short.future.result(timeout=10).steps == 2, "a slot is kept for short ones"
    for one in forever:
        assert engine.cancel(one)
    engine.close()  # nothing is left to finish
    assert not engine.is_open


def test_those_who_wait_are_told_when_the_process_dies(started):
    engine = started(slow_engine)
    waiting = ask(10**6)
    engine.submit([waiting])
    os.kill(engine._process.pid, signal.SIGKILL)
    with pytest.raises(ClosedError, match="has ended"):
        waiting.future.result(timeout=10)
    assert not engine.is_open
    with pytest.raises(ClosedError):
        engine.submit([ask(1)])
    engine.close()


def test_asking_and_cancelling_again_and_again(started):
    """Once the other process counted those who were cancelled, and died of having too many."""
    engine = started(slow_engine)
    for _ in range(200):
        asks = [ask(5) for _ in range(12)]
        engine.submit(asks)
        for one in asks:
            engine.cancel(one)
    last = ask(2)
    engine.submit([last])
    assert last.future.result(timeout=30).steps == 2
    engine.close()


def test_large_questions_and_long_traces_do_not_block_each_other(started):
    """Once a full pipe was waited for with the lock held that the listener needs."""
    engine = started(diary_engine, most_waiting=100)
    large = Encoded(tokens=np.zeros(200_000, dtype=np.int64))
    asks = [Ask(encoded=large, limit=5_000, settles=False, trace=[]) for _ in range(20)]
    began = time.monotonic()
    for one in asks:
        engine.submit([one])
    assert time.monotonic() - began < 1, "nobody waits for the pipe"
    assert {len(one.future.result(timeout=60).trace) for one in asks} == {5_000}
    engine.close()


def test_a_process_that_is_abandoned(started):
    engine = started(slow_engine)
    waiting = ask(10**6)
    engine.submit([waiting])
    engine.abandon()
    with pytest.raises(ClosedError):
        waiting.future.result(timeout=10)
    engine.close()


def not_there():
    raise ValueError("no such model")


def test_a_process_that_does_not_start(capfd, started):
    with pytest.raises(RuntimeError, match="did not start"):
        started(not_there)


def test_a_real_model_answers_as_it_does_here(started):
    reasoner = deepen.load("graph")
    engine = started(partial(make_engine, "graph", 2, "cpu", 1))
    drawn = [one.question for one in deepen.examples("graph", "cut", 6, num=6)]
    asks = [Ask(encoded=reasoner.encode(one), limit=7, settles=False, trace=[]) for one in drawn]
    engine.submit(asks)
    for one, question in zip(asks, drawn, strict=True):
        expected = reasoner.answer(question, steps=7)
        assert one.future.result(timeout=60).trace == pytest.approx(expected.trace, abs=1e-5)
    engine.close()


def test_messages_arrive_whole_however_they_are_cut():
    heard, ended = [], []
    line = Line(heard.append, lambda: ended.append(True))
    messages = [None, {"a": 1}, list(range(1000))]
    packed = [pickle.dumps(one) for one in messages]
    sent = b"".join(struct.pack("!i", len(one)) + one for one in packed)
    for size in (1, 3, 7, 1000, len(sent)):
        for begin in range(0, len(sent), size):
            line.data_received(sent[begin : begin + size])
        assert heard == messages
        heard.clear()
    line.connection_lost(None)
    assert ended

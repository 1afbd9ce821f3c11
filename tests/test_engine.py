"""The engine: exact schedules with thinkers that only write down what happens, then with real models."""

from concurrent.futures import CancelledError
from time import monotonic

import numpy as np
import pytest
import torch
from conftest import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

import deepen
from deepen.engine import LONG, Ask, DeadlineError, Engine, FullError
from deepen.evidence.memory_probe import peak_live_bytes
from deepen.layout import SMALL
from deepen.peers import build
from deepen.reasoner import Reasoner
from deepen.shapes import Encoded
from deepen.thinkers import Lanes

NOTHING = Encoded(tokens=np.array([1]))


class Diary:
    """Thinkers that think nothing: a line for each tick, with the keys of those who took a step."""

    patience = 2

    def __init__(self):
        self.here, self.ticks, self.stoppers = set(), [], {}

    def enter(self, entries):
        self.here |= entries.keys()

    def step(self):
        if "break" in self.stoppers:
            raise RuntimeError("broken")
        self.ticks.append(sorted(self.here))
        return {key for key in self.here if len(self.ticks) in self.stoppers.get(key, ())}

    def read(self, keys):
        return {key: 0.25 if key % 2 else 0.75 for key in keys}

    def leave(self, keys):
        assert keys <= self.here
        self.here -= keys

    def clear(self):
        self.here.clear()


def ask(limit, settles=False, **rest):
    return Ask(encoded=NOTHING, limit=limit, settles=settles, **rest)


def run(engine):
    while engine.active or engine.num_waiting:
        engine.tick()


def test_a_free_slot_is_taken_at_once():
    diary = Diary()
    engine = Engine(diary, slots=2)
    asks = [ask(limit) for limit in (1, 3, 4, 5)]
    engine.submit(asks)
    run(engine)
    assert diary.ticks == [[0, 1], [1, 2], [1, 2], [2, 3], [2, 3], [3], [3], [3]]
    assert [one.future.result().steps for one in asks] == [1, 3, 4, 5]
    assert [one.future.result().label for one in asks] == [True, False, True, False]
    assert not diary.here
    assert engine.steps_taken == 13


def test_slots_count_as_taken_while_others_wait_for_them():
    """Once numbers told with an answer said that nobody was thinking, under full load too."""
    engine = Engine(Diary(), slots=2)
    assert engine.numbers().active == 0
    engine.submit([ask(2) for _ in range(4)])
    seen = []
    while not engine.is_idle:
        engine.tick()
        seen.append(engine.numbers().active)
    assert seen == [2, 2, 2, 0]


def test_first_comes_who_would_have_been_done_first():
    engine = Engine(Diary(), slots=2)
    done = []

    def noted(name, limit):
        one = ask(limit)
        one.future.add_done_callback(lambda _: done.append(name))
        return one

    engine.submit([noted("a", 9), noted("b", 9)])
    engine.tick()
    engine.submit([noted("ten", 10), noted("eight", 8), noted("two", 2)])
    for _ in range(5):
        engine.tick()
    engine.submit([noted("late five", 5), noted("late four", 4)])
    run(engine)
    assert done == ["a", "b", "two", "late four", "eight", "late five", "ten"]


def test_who_settles_stops_after_enough_wants_in_a_row():
    diary = Diary()
    diary.stoppers = {0: {1, 3, 4}, 1: {1, 2}}
    engine = Engine(diary, slots=2)
    asks = [ask(9, settles=True), ask(9, settles=False), ask(9, settles=True)]
    engine.submit(asks)
    run(engine)
    assert [one.future.result().steps for one in asks] == [4, 9, 9], "1 may not settle, 2 never wants to"


def test_a_quarter_of_the_slots_is_kept_for_short_questions():
    diary = Diary()
    engine = Engine(diary, slots=4)
    long = [ask(LONG + 5) for _ in range(4)]
    engine.submit(long)
    short = [ask(2) for _ in range(3)]
    engine.submit(short)
    run(engine)
    assert diary.ticks[0] == [0, 1, 2, 3], "the short ones, and the first long one"
    assert diary.ticks[2] == [3, 4, 5], "one slot stays free for others"
    assert diary.ticks[LONG + 5] == [4, 5, 6]
    assert len(diary.ticks) == 2 * (LONG + 5)


def test_a_stream_of_short_questions_does_not_starve_a_long_one():
    diary = Diary()
    engine = Engine(diary, slots=2)
    engine.submit([ask(3), ask(3)])
    late = ask(LONG + 1)
    engine.submit([late])
    for _ in range(3 * LONG):  # more than two slots can serve
        engine.submit([ask(3)])
        engine.tick()
    assert late.future.done()


def test_a_trace_and_who_watches():
    engine = Engine(Diary(), slots=2)
    seen = []
    one, other = ask(3, trace=[]), ask(2, watch=lambda step, probability: seen.append((step, probability)))
    engine.submit([one, other])
    run(engine)
    assert one.future.result().trace == [0.25] * 3
    assert seen == [(1, 0.75), (2, 0.75)], "the shorter one is the first"
    assert other.future.result().trace == []


def test_who_is_cancelled_gives_up_its_slot_or_its_place():
    diary = Diary()
    engine = Engine(diary, slots=2)
    asks = [ask(5), ask(5), ask(5), ask(1)]
    engine.submit(asks)
    engine.tick()
    assert asks[0].future.cancel()
    assert asks[2].future.cancel()
    run(engine)
    assert diary.ticks == [[0, 1], [2], [2], [2], [2], [2]], "0 is the shortest, 1 the first, 2 the second"
    with pytest.raises(CancelledError):
        asks[0].future.result()


def test_a_deadline():
    engine = Engine(Diary(), slots=2)
    past, future = ask(5, deadline=monotonic() - 1), ask(5, deadline=monotonic() + 100)
    engine.submit([past, future])
    run(engine)
    with pytest.raises(DeadlineError, match="after 0 of 5 steps"):
        past.future.result()
    assert future.future.result().steps == 5
    thinking = ask(1000, deadline=monotonic() + 0.05)
    engine.submit([thinking])
    began = monotonic()
    while engine.active or engine.num_waiting:
        engine.tick()
        assert monotonic() - began < 5 or thinking.future.done()
    if thinking.future.exception() is None:
        assert monotonic() - began < 0.05, "a diary is quick"


def test_a_full_queue_takes_all_or_none():
    engine = Engine(Diary(), slots=2, most_waiting=3)
    engine.submit([ask(1), ask(1)])
    with pytest.raises(FullError, match="try again in 2 s") as refused:
        engine.submit([ask(1), ask(1)])
    assert refused.value.retry_after == 2.0, "two steps, and no speed known yet"
    assert engine.num_waiting == 2
    engine.submit([ask(1)])
    with pytest.raises(ValueError, match="at least 2 slots"):
        Engine(Diary(), slots=1)


def test_an_error_reaches_those_who_were_thinking_and_nobody_else():
    diary = Diary()
    engine = Engine(diary, slots=2)
    diary.stoppers["break"] = ()
    first = ask(3)
    engine.submit([first])
    engine.tick_or_fail()
    with pytest.raises(RuntimeError, match="broken"):
        first.future.result(timeout=0)
    diary.stoppers.clear()
    second = ask(3)
    engine.submit([second])
    run(engine)
    assert second.future.result(timeout=0).steps == 3


def reasoner_of(task, preset, **changes):
    config = tiny(task, preset, **changes)
    torch.manual_seed(0)
    return Reasoner(build(config.model), config)


# The untrained model changes its mind at every step, so that any mix-up of depths or companions shows.
KINDS = {
    "graph, as published": lambda: (reasoner_of("graph", "paper"), "paper", (1, 3, 8)),
    "graph, certified": lambda: (reasoner_of("graph", "frontier"), "certified", (1, 3, 8)),
    "logic": lambda: (reasoner_of("logic", "paper"), "paper", (2, 4, 6)),
    "family": lambda: (reasoner_of("family", "paper"), "paper", (2, 3, 5)),
    "logic in phrases": lambda: (reasoner_of("logic", "frontier"), "certified", (2, 8, 12)),
    "family in phrases": lambda: (reasoner_of("family", "frontier"), "paper", (2, 3, 5)),
}


@pytest.fixture(scope="module", params=list(KINDS))
def known(request):
    """A reasoner, questions of several sizes, and what it says to each alone, step by step."""
    reasoner, distribution, difficulties = KINDS[request.param]()
    name = reasoner.task.name
    drawn = [one for d in difficulties for one in deepen.examples(name, distribution, d, seed=5, num=3)]
    questions = [one.question for one in drawn]
    return reasoner, questions, [reasoner.answer(question, steps=30).trace for question in questions]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_answer_is_the_same_alone_and_in_any_company(known, data):
    """Oracle: the reasoner, one question at a time."""
    reasoner, questions, traces = known
    engine = Engine(Lanes(reasoner), slots=data.draw(st.integers(2, 6)))
    asked = []
    for _ in range(data.draw(st.integers(1, 12))):
        chosen = data.draw(st.integers(0, len(questions) - 1))
        limit = data.draw(st.integers(1, 30))
        one = Ask(encoded=reasoner.encode(questions[chosen]), limit=limit, settles=False, trace=[])
        asked.append((chosen, one))
        engine.submit([one])
        for _ in range(data.draw(st.integers(0, 5))):
            engine.tick()
        if data.draw(st.integers(0, 5)) == 0:
            asked.pop(data.draw(st.integers(0, len(asked) - 1)))[1].future.cancel()
    run(engine)
    for chosen, one in asked:
        answer = one.future.result()
        assert answer.steps == one.limit
        assert answer.trace == pytest.approx(traces[chosen][: one.limit], abs=1e-5)


@pytest.mark.parametrize(("task", "far"), [("graph", 15), ("family", 9)])
def test_halting_by_itself_is_the_same_in_company(task, far):
    reasoner = deepen.load(task)
    drawn = [
        one.question for steps in (2, 7, far) for one in deepen.examples(task, "certified", steps, num=4)
    ]
    alone = [reasoner.answer(question) for question in drawn]
    engine = Engine(Lanes(reasoner), slots=5)
    asks = []
    for question in drawn:
        encoded = reasoner.encode(question)
        asks.append(Ask(encoded=encoded, limit=reasoner.limit(None, encoded), settles=True, trace=[]))
        asks.append(Ask(encoded=encoded, limit=9, settles=False))  # some who do not
    engine.submit(asks)
    run(engine)
    for one, expected in zip(asks[::2], alone, strict=True):
        assert one.future.result().steps == expected.steps
        assert one.future.result().trace == pytest.approx(expected.trace, abs=1e-5)


def test_large_and_dense_graphs_think_beside_the_others():
    """A hub with more in-neighbours than a lane has room for, a clique, and a graph kept as an edge list."""
    reasoner = reasoner_of("graph", "frontier", model__perception__crowd=4)
    hub = {"edges": [[f"n{k}", "hub"] for k in range(60)] + [["hub", "t"]], "source": "n3", "target": "t"}
    clique = {"edges": [[a, b] for a in range(40) for b in range(40)], "source": 1, "target": 2}
    some = {"edges": [[k, "m"] for k in range(12)] + [["m", "t"]], "source": 3, "target": "t"}
    chain = {"edges": [[k, k + 1] for k in range(SMALL + 100)], "source": 0, "target": SMALL}
    small = deepen.examples("graph", "paper", 3)[0].question
    engine = Engine(Lanes(reasoner), slots=8)
    for settles in (False, True):
        asks = [
            Ask(encoded=reasoner.encode(question), limit=limit, settles=settles)
            for question in (hub, clique, chain, small, some)
            for limit in (2, 7)
        ]
        engine.submit(asks)
        run(engine)
        if not settles:
            answers = [
                reasoner.answer(question, steps=limit)
                for question in (hub, clique, chain, small, some)
                for limit in (2, 7)
            ]
            for one, expected in zip(asks, answers, strict=True):
                assert one.future.result().probability == pytest.approx(expected.probability, abs=1e-5)


def test_memory_does_not_depend_on_the_number_of_steps():
    reasoner = reasoner_of("logic", "paper")
    encoded = [reasoner.encode(one.question) for one in deepen.examples("logic", "paper", 4, num=12)]

    def think(steps):
        engine = Engine(Lanes(reasoner), slots=4)
        engine.submit([Ask(encoded=one, limit=steps, settles=False) for one in encoded])
        run(engine)

    few, many = (peak_live_bytes(lambda steps=steps: think(steps)) for steps in (4, 60))
    assert many == pytest.approx(few, rel=0.02)


def test_only_models_with_one_shared_step():
    with pytest.raises(ValueError, match=r"only a model with one shared step .* preset 'transformer'"):
        Lanes(reasoner_of("graph", "transformer"))

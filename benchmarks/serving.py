"""Questions of mixed depths, as a server meets them: the engine against two ways of making batches.

Everyone gets the same stream and sees as many questions ahead as twice the slots. *To the largest T*
takes the first of them, as many as there are slots, and thinks until the deepest is done. *Sorted by T*
puts those in sight in order first, so that a batch holds questions of like depth.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch

import deepen
from deepen.batches import collate
from deepen.bench import Work
from deepen.engine import Ask, Engine
from deepen.peers import build
from deepen.presets import get_preset
from deepen.reasoner import Reasoner
from deepen.shapes import Encoded
from deepen.thinkers import Lanes
from deepen.unroll import Fixed, unroll

SLOTS = 32
FEWEST, MOST = 2, 40  # steps
NUM = {"graph": 600, "logic": 128}
DEEPEST = {"graph": MOST, "logic": 12}  # difficulty: published expressions have at most 127 symbols


def draw_steps(rng: Random) -> int:
    """Long-tailed: half of the questions take 3 steps or fewer, one in twenty 30 or more."""
    return min(MOST, max(FEWEST, int(FEWEST * rng.paretovariate(1.1))))


@dataclass(frozen=True)
class Stream:
    """Questions with the steps they take, and who answers them."""

    reasoner: Reasoner
    encoded: list[Encoded]
    steps: list[int]


def stream(task: str) -> Stream:
    """The shipped graph model; on texts a model of the published size, whose speed needs no training."""
    torch.set_num_threads(1)
    if task == "graph":
        reasoner, distribution = deepen.load("graph"), "cut"
    else:
        config = get_preset(task, "paper")
        reasoner, distribution = Reasoner(build(config.model), config), "paper"
    rng = Random("mixed depths")
    steps = [draw_steps(rng) for _ in range(NUM[task])]
    questions = [
        deepen.examples(task, distribution, min(T, DEEPEST[task]), seed=place)[0].question
        for place, T in enumerate(steps)
    ]
    return Stream(reasoner, [reasoner.encode(question) for question in questions], steps)


def engine(task: str) -> Callable[[], Work]:
    """Every question leaves when it is done."""
    given = stream(task)

    def turn() -> Work:
        works = Engine(Lanes(given.reasoner), slots=SLOTS, most_waiting=len(given.steps))
        pairs = zip(given.encoded, given.steps, strict=True)
        works.submit([Ask(encoded=one, limit=T, settles=False) for one, T in pairs])
        while works.active or works.num_waiting:
            works.tick()
        return Work(units=len(given.steps))

    return turn


def in_batches(task: str, in_order: bool) -> Callable[[], Work]:
    """A batch is answered when its deepest question is."""
    given = stream(task)

    def turn() -> Work:
        for places in _batches(given.steps, in_order):
            _answer(given, places)
        return Work(units=len(given.steps))

    return turn


def _batches(steps: Sequence[int], in_order: bool) -> Iterator[list[int]]:
    for begin in range(0, len(steps), 2 * SLOTS):
        sight = list(range(begin, min(begin + 2 * SLOTS, len(steps))))
        if in_order:
            sight.sort(key=lambda place: steps[place])
        yield sight[:SLOTS]
        yield sight[SLOTS:]


@torch.inference_mode()
def _answer(given: Stream, places: Sequence[int]) -> list[float]:
    if not places:
        return []
    batch = collate([given.encoded[place] for place in places], [False] * len(places))
    step, scene = given.reasoner.model.begin(batch, given.reasoner.step)
    deepest = Fixed(max(given.steps[place] for place in places))
    answers: list[float] = unroll(step, given.reasoner.model.read, scene, deepest).answer.sigmoid().tolist()
    return answers

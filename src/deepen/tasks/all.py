"""All three tasks at once, told in one language, so that one model can learn them with one set of weights.

    {"edges": [["a", "b"]], "source": "a", "target": "b"}          a graph
    !(T&F)                                                         an expression
    {"facts": ["Ann is the parent of Bo"], "query": "Bo is the child of Ann"}

A question is a question of one of the tasks, and shows by its form of which. The words of the tasks have
numbers of their own; names, of nodes or people, are the same names.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded, Lesson
from deepen.tasks.family import Family
from deepen.tasks.graph import Graph
from deepen.tasks.logic import Logic
from deepen.tasks.task import Example, QuestionError, Sampler, Split, Task

# How hard a task's questions get in the mixture (as hard as in the published training).
MIXTURE: dict[Task, int] = {Graph(): 5, Logic(): 8, Family(): 5}
HARDEST = max(MIXTURE.values())
LESSONS = {"graph": "cut", "logic": "long-lessons", "family": "lessons"}
OFTEN = {"graph": 2, "logic": 3, "family": 5}  # the slower to learn, the more often
# How many words of other tasks come before the words of each; the number 0 is no word in any.
BEFORE = dict(zip(MIXTURE, accumulate((task.num_words - 1 for task in MIXTURE), initial=0), strict=False))


class All(Task):
    name = "all"
    difficulty_name = "hops or depth"
    too_many = "names"
    num_words = 1 + sum(task.num_words - 1 for task in MIXTURE)

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        single = {f"certified-{task.name}": task.samplers["certified"] for task in MIXTURE}
        return {"lessons": _sample_mixture, **single}

    def source(self, distribution: str) -> tuple[str, str]:
        if distribution == "lessons":
            raise ValueError(f"the mixture is for training: measure one of {_listed_singles()}")
        certified, _, task = distribution.partition("-")
        return task, certified

    def verify(self, question: Any) -> bool:
        return task_of(question).verify(question)

    def certifies(self, example: Example) -> bool:
        return task_of(example.question).certifies(example)

    def encode(self, question: Any) -> Encoded:
        raise ValueError("task 'all' is told in phrases only: its perception must be 'phrases'")

    def phrases(self, question: Any, words: int) -> Encoded:
        task = task_of(question)
        return _translated(task, task.phrases(question, words))

    def lesson(self, example: Example, words: int, num: int, hardest: int, rng: Random) -> Lesson:
        task = task_of(example.question)
        found = task.lesson(example, words, num, _own(task, hardest), rng)
        claims = tuple(word + BEFORE[task] if word else 0 for word in found.words)
        return replace(found, encoded=_translated(task, found.encoded), words=claims)

    def parse(self, text: str) -> Any:
        """As the task whose form the text has: JSON, symbols, or sentences."""
        if text.lstrip().startswith("{"):
            return Graph().parse(text)  # JSON; a family's question can be written so as well
        return (Family() if " is " in text else Logic()).parse(text)


def task_of(question: Any) -> Task:
    """The task whose form a question has."""
    keys = set(question) if isinstance(question, Mapping) else set()
    graph, logic, family = MIXTURE
    if isinstance(question, str):
        return logic
    if keys & {"facts", "query"}:
        return family
    if keys & {"edges", "source", "target"}:
        return graph
    raise QuestionError(
        "a question is a string like '!(T&F)|T', or a mapping with 'edges', 'source' and 'target', or with"
        f" 'facts' and 'query'; got {sorted(map(str, keys)) if keys else type(question).__name__}"
    )


def _sample_mixture(rng: Random, difficulty: int, positive: bool, split: Split) -> Example:
    """A lesson of one of the tasks, as hard for it as the difficulty is for the hardest of them."""
    if difficulty > HARDEST:
        raise ValueError(f"the mixture ends at {HARDEST}: try one of {_listed_singles()}")
    (task,) = rng.choices(list(MIXTURE), [OFTEN[task.name] for task in MIXTURE])
    return task.samplers[LESSONS[task.name]](rng, _own(task, difficulty), positive, split)


def _own(task: Task, difficulty: int) -> int:
    """The difficulty of a task that is what this one is of all."""
    return min(-(-difficulty * MIXTURE[task] // HARDEST), MIXTURE[task])


def _listed_singles() -> str:
    return ", ".join(f"certified-{task.name}" for task in MIXTURE)


def _translated(task: Task, encoded: Encoded) -> Encoded:
    """The same phrases in the words of all tasks."""
    tokens = encoded.tokens
    shift = np.where(tokens < task.num_words, BEFORE[task], All.num_words - task.num_words)
    return replace(encoded, tokens=np.where(tokens == 0, 0, tokens + shift))

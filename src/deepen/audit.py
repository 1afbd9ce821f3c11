"""What a shortcut can score on a task, and what so many steps of honest work allow.

Each shortcut is a look-up table from what an observer sees to the more frequent answer, fitted on the
training difficulties and tested on every difficulty. A gradient-boosted classifier on all surface
statistics is the catch-all. Where the examples are certified, each row says what was promised.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

from deepen.config import Range, Record
from deepen.observers import OBSERVERS
from deepen.stats import wilson
from deepen.tasks import Example, Split, get_task
from deepen.tasks.family import chance_after

TOLERANCE = 0.02  # above what the certificate promises
CATCH_ALL = "all surface statistics, boosted trees"
STEPS = "steps of work"
CEILING_EXAMPLES = 500  # a difficulty, for the ceilings drawn into a heatmap

Table = dict[Hashable, float]


class Row(Record):
    """One shortcut on one difficulty."""

    shortcut: str
    steps: int | None
    """Steps of honest work that it uses; None for statistics that need none."""
    difficulty: int
    accuracy: float
    low: float
    high: float
    num: int
    promised: float | None
    """The most it can score if the certificate holds; None where nothing is promised."""

    @property
    def breaks_its_promise(self) -> bool:
        return self.promised is not None and self.accuracy > self.promised + TOLERANCE


class Audit(Record):
    """All shortcuts on all difficulties."""

    task: str
    difficulty_name: str
    distribution: str
    train_difficulties: Range
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Lookups:
    """Look-up tables fitted on the training difficulties."""

    task: str
    surfaces: dict[str, Table]
    steps: list[Table]

    @classmethod
    def fitted(cls, task: str, drawn: Sequence[Example], most_steps: int) -> Self:
        observer = OBSERVERS[task]
        labels = [example.label for example in drawn]
        seen = [observer.surfaces(example.question) for example in drawn]
        views = [observer.after_steps(example.question, most_steps) for example in drawn]
        return cls(
            task=task,
            surfaces={name: fit([one[name] for one in seen], labels) for name in seen[0]},
            steps=[fit([view[steps] for view in views], labels) for steps in range(most_steps + 1)],
        )

    def scores(self, drawn: Sequence[Example]) -> dict[tuple[str, int | None], float]:
        """(shortcut, steps of work) -> accuracy."""
        observer = OBSERVERS[self.task]
        labels = [example.label for example in drawn]
        seen = [observer.surfaces(example.question) for example in drawn]
        views = [observer.after_steps(example.question, len(self.steps) - 1) for example in drawn]
        found: dict[tuple[str, int | None], float] = {
            (name, None): score(table, [one[name] for one in seen], labels)
            for name, table in self.surfaces.items()
        }
        for steps, table in enumerate(self.steps):
            found[STEPS, steps] = score(table, [view[steps] for view in views], labels)
        return found


def audit(
    task: str,
    distribution: str,
    train_difficulties: Range,
    difficulties: Sequence[int],
    num_examples: int = 2000,
    seed: int = 0,
    watch: Callable[[int], None] = lambda num_done: None,
) -> Audit:
    """Fit every shortcut on the training difficulties, score it on each difficulty."""
    numbers = OBSERVERS[task].numbers
    fitted_on = _draw_training(task, distribution, train_difficulties, num_examples, seed)
    lookups = Lookups.fitted(task, fitted_on, max(difficulties))
    predict = _boosted([numbers(one.question) for one in fitted_on], [one.label for one in fitted_on])
    rows: list[Row] = []
    for done, difficulty in enumerate(difficulties, start=1):
        drawn = _draw(task, distribution, "test", difficulty, num_examples, seed)
        scores = lookups.scores(drawn)
        guesses = predict([numbers(example.question) for example in drawn])
        right = [guess == example.label for guess, example in zip(guesses, drawn, strict=True)]
        scores[CATCH_ALL, None] = sum(right) / len(right)
        for (shortcut, steps), accuracy in scores.items():
            low, high = wilson(accuracy, num_examples)
            rows.append(
                Row(
                    shortcut=shortcut,
                    steps=steps,
                    difficulty=difficulty,
                    accuracy=accuracy,
                    low=low,
                    high=high,
                    num=num_examples,
                    promised=promise(task, distribution, shortcut, steps, difficulty),
                )
            )
        watch(done)
    return Audit(
        task=task,
        difficulty_name=get_task(task).difficulty_name,
        distribution=distribution,
        train_difficulties=train_difficulties,
        rows=tuple(rows),
    )


def ceiling(
    task: str, distribution: str, train_difficulties: Range, difficulties: Sequence[int]
) -> Callable[[int, int], float]:
    """(difficulty, steps) -> the best that any look-up scores with at most so many steps of work.

    As many steps as the difficulty are enough to know the answer: 1.
    """
    fitted_on = _draw_training(task, distribution, train_difficulties, CEILING_EXAMPLES, 0)
    lookups = Lookups.fitted(task, fitted_on, max(difficulties))
    scores = {
        difficulty: lookups.scores(_draw(task, distribution, "valid", difficulty, CEILING_EXAMPLES, 0))
        for difficulty in difficulties
    }

    def best(difficulty: int, steps: int) -> float:
        if steps >= difficulty:
            return 1.0
        return max(
            accuracy for (_, used), accuracy in scores[difficulty].items() if used is None or used <= steps
        )

    return best


def promise(task: str, distribution: str, shortcut: str, steps: int | None, difficulty: int) -> float | None:
    """What the certificate says a shortcut can score at most."""
    if not distribution.startswith("certified"):
        return None
    if shortcut == "facts that name the queried people":
        steps = 2  # the first hop and the last
    if steps is None:
        return 0.5
    if steps >= difficulty:
        return None
    if task != "family" or steps == 0:
        return 0.5
    return chance_after(difficulty, steps) if distribution == "certified" else None


def fit(keys: Sequence[Hashable], labels: Sequence[bool]) -> Table:
    """A look-up table: key -> share of positives."""
    counts: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0])
    for key, label in zip(keys, labels, strict=True):
        counts[key][label] += 1
        if isinstance(key, tuple):
            counts[key[:1]][label] += len(key) > 1  # what to fall back on for a key that is new
    return {key: yes / (no + yes) for key, (no, yes) in counts.items() if no + yes}


def score(table: Table, keys: Sequence[Hashable], labels: Sequence[bool]) -> float:
    """Accuracy of answering as the table leans; where it does not lean, a coin decides."""
    right = 0.0
    for key, label in zip(keys, labels, strict=True):
        fall_back = table.get(key[:1], 0.5) if isinstance(key, tuple) else 0.5
        lean = table.get(key, fall_back)
        right += 0.5 if lean == 0.5 else (lean > 0.5) == label
    return right / len(labels)


def _draw_training(task: str, distribution: str, difficulties: Range, num: int, seed: int) -> list[Example]:
    low, high = difficulties
    drawn = (_draw(task, distribution, "train", one, num, seed) for one in range(low, high + 1))
    return list(chain.from_iterable(drawn))


def _draw(task: str, distribution: str, split: Split, difficulty: int, num: int, seed: int) -> list[Example]:
    return [get_task(task).example(distribution, split, seed, difficulty, index) for index in range(num)]


def _boosted(numbers: list[list[float]], labels: list[bool]) -> Callable[[list[list[float]]], list[bool]]:
    """Gradient-boosted trees on all surface statistics."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError:
        raise ValueError("the audit needs scikit-learn: pip install 'deepen[audit]'") from None
    trees = HistGradientBoostingClassifier(random_state=0).fit(numbers, labels)
    return lambda unseen: [bool(guess) for guess in trees.predict(unseen)]

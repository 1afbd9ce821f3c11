"""What a shortcut can score on a task, and what so many steps of honest work allow.

Each shortcut is a look-up table from what an observer sees to the more frequent answer. Surface
statistics are fitted on the training difficulties, and so is the catch-all, a gradient-boosted
classifier on all of them. What k steps of work tell is fitted on training examples of the tested
difficulty: the most that can be made of them. Certified rows say what was promised.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain

from deepen.config import Range, Record
from deepen.observers import OBSERVERS
from deepen.stats import wilson
from deepen.tasks import Example, Split, get_task
from deepen.tasks.family_samplers import chance_after

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


def audit(
    task: str,
    distribution: str,
    train_difficulties: Range,
    difficulties: Sequence[int],
    num_examples: int = 2000,
    seed: int = 0,
    watch: Callable[[int], None] = lambda num_done: None,
) -> Audit:
    """Score every shortcut on each difficulty."""
    numbers = OBSERVERS[task].numbers
    fitted_on = _draw_training(task, distribution, train_difficulties, num_examples, seed)
    tables = _fit_surfaces(task, fitted_on)
    predict = _boosted([numbers(one.question) for one in fitted_on], [one.label for one in fitted_on])
    rows: list[Row] = []
    for done, difficulty in enumerate(difficulties, start=1):
        own = _draw(task, distribution, "train", difficulty, num_examples, seed)
        drawn = _draw(task, distribution, "test", difficulty, num_examples, seed)
        scores = _scores(task, tables, own, drawn, most_steps=max(difficulties))
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

    As many steps as the difficulty are enough to know the answer: 1. Fewer give what the certificate
    promises, where there is one, else what is measured.
    """
    tables = _fit_surfaces(task, _draw_training(task, distribution, train_difficulties, CEILING_EXAMPLES, 0))
    scores = {}
    for difficulty in difficulties:
        own = _draw(task, distribution, "train", difficulty, CEILING_EXAMPLES, 0)
        drawn = _draw(task, distribution, "valid", difficulty, CEILING_EXAMPLES, 0)
        scores[difficulty] = _scores(task, tables, own, drawn, most_steps=difficulty)

    def best(difficulty: int, steps: int) -> float:
        if steps >= difficulty:
            return 1.0
        promised = promise(task, distribution, STEPS, steps, difficulty)
        if promised is not None:
            return promised
        usable = [name for name in scores[difficulty] if name[1] is None or name[1] <= steps]
        return max(scores[difficulty][name] for name in usable)

    return best


def _fit_surfaces(task: str, drawn: Sequence[Example]) -> dict[str, Table]:
    """A table for each surface statistic."""
    seen = [OBSERVERS[task].surfaces(example.question) for example in drawn]
    labels = [example.label for example in drawn]
    return {name: fit([one[name] for one in seen], labels) for name in seen[0]}


def _scores(
    task: str,
    tables: Mapping[str, Table],
    own: Sequence[Example],
    drawn: Sequence[Example],
    most_steps: int,
) -> dict[tuple[str, int | None], float]:
    """(shortcut, steps of work) -> accuracy on `drawn`; what steps tell is fitted on `own`."""
    observer = OBSERVERS[task]
    labels = [example.label for example in drawn]
    seen = [observer.surfaces(example.question) for example in drawn]
    found: dict[tuple[str, int | None], float] = {
        (name, None): score(table, [one[name] for one in seen], labels) for name, table in tables.items()
    }
    own_labels = [example.label for example in own]
    own_views = [observer.after_steps(example.question, most_steps) for example in own]
    views = [observer.after_steps(example.question, most_steps) for example in drawn]
    for steps in range(most_steps + 1):
        table = fit([view[steps] for view in own_views], own_labels)
        found[STEPS, steps] = score(table, [view[steps] for view in views], labels)
    return found


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

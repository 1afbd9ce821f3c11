"""Run x (difficulty x steps) -> grid: where does a model solve what, given how many steps?

One unroll per difficulty reads the answer after every step, so a row of the grid costs as much as its
last cell. Two numbers sum a grid up: `reach`, how deep it goes, and `slack`, how many steps it wastes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepen.audit import ceiling
from deepen.batches import encode, in_batches
from deepen.config import GridConfig, Range, Record, RunConfig
from deepen.model import Model
from deepen.parallel import in_parallel, num_workers
from deepen.shapes import Batch, Output
from deepen.stats import wilson
from deepen.tasks import Example, Split, examples, get_task
from deepen.unroll import Fixed

SOLVED = 0.99


class Cell(Record):
    """Accuracy on one difficulty after one number of steps."""

    difficulty: int
    steps: int
    accuracy: float
    low: float
    """Lower end of the 95 % interval of the accuracy."""
    high: float
    """Upper end of it."""
    true_positive_rate: float | None
    """Share of the positives answered yes; None without positives."""
    true_negative_rate: float | None
    """Share of the negatives answered no; None without negatives."""
    num: int
    """Number of examples."""
    ceiling: float
    """The best that a look-up scores with at most so many steps of honest work."""


class Grid(Record):
    """All cells of one measurement, and what it takes to read them."""

    task: str
    difficulty_name: str
    run_id: str
    config: GridConfig
    train_difficulties: Range
    train_steps: Range
    cells: tuple[Cell, ...]
    """The configured steps, and T = 2 x difficulty, for each difficulty."""
    reach: int | None
    """The largest difficulty solved at >= .99 given T = 2 x difficulty; None if none is."""
    slack: dict[int, int | None]
    """Difficulty -> the smallest T - difficulty at which it is solved at >= .99; None if never."""

    def cell(self, difficulty: int, steps: int) -> Cell:
        """One cell."""
        for cell in self.cells:
            if (cell.difficulty, cell.steps) == (difficulty, steps):
                return cell
        raise ValueError(f"difficulty {difficulty} at {steps} steps was not measured")


def measure(
    model: Model,
    run: RunConfig,
    config: GridConfig,
    watch: Callable[[int], None] = lambda num_answered: None,
) -> Grid:
    """Measure a grid; `watch` is told how many questions have been answered."""
    model.eval()
    source = get_task(run.task).source(config.distribution)
    best = ceiling(*source, run.data.difficulties, config.difficulties)
    rows: dict[int, list[Cell]] = {}
    for difficulty in config.difficulties:
        before = len(rows) * config.num_examples
        rows[difficulty] = _measure_row(model, run, config, difficulty, best, before, watch)
    kept = [
        cell
        for difficulty, row in rows.items()
        for cell in row
        if cell.steps in config.steps or cell.steps == 2 * difficulty
    ]
    return Grid(
        task=run.task,
        difficulty_name=get_task(run.task).difficulty_name,
        run_id=run.run_id,
        config=config,
        train_difficulties=run.data.difficulties,
        train_steps=run.train.steps,
        cells=tuple(kept),
        reach=reach(kept),
        slack={difficulty: slack(row) for difficulty, row in rows.items()},
    )


def reach(cells: Iterable[Cell]) -> int | None:
    """The largest difficulty solved at >= .99 given T = 2 x difficulty."""
    solved = (
        cell.difficulty for cell in cells if cell.steps == 2 * cell.difficulty and cell.accuracy >= SOLVED
    )
    return max(solved, default=None)


def slack(row: Iterable[Cell]) -> int | None:
    """The smallest T - difficulty at which a difficulty is solved at >= .99."""
    solved = (cell.steps - cell.difficulty for cell in row if cell.accuracy >= SOLVED)
    return min(solved, default=None)


@dataclass(frozen=True)
class Tally:
    """How many of each label were answered right after each number of steps."""

    right: Tensor  # (2, T) integers: negatives, positives
    num: Tensor  # (2,)

    @property
    def total(self) -> int:
        return int(self.num.sum())

    def accuracy(self, steps: int) -> float:
        return int(self.right[:, steps - 1].sum()) / self.total

    def rate(self, label: bool, steps: int) -> float | None:
        """Share of one label's examples that were answered right; None without any."""
        return (
            int(self.right[int(label), steps - 1]) / int(self.num[int(label)])
            if self.num[int(label)]
            else None
        )


def tally(
    model: Model,
    run: RunConfig,
    asked: Sequence[Example],
    most: int,
    watch: Callable[[int], None] = lambda num_answered: None,
) -> Tally:
    """Answer all examples with 1, 2, ..., `most` steps; a model that takes at least so many takes these."""
    task = get_task(run.task)
    encoded = [encode(task, example.question, run.model.perception) for example in asked]
    least = model.least_steps
    last = max(most, least)
    right = torch.zeros(2, last, dtype=torch.long)
    num = torch.zeros(2, dtype=torch.long)
    device = next(model.parameters()).device

    def logits_of(batch_at: tuple[list[int], Batch]) -> tuple[Tensor, Tensor]:
        _, batch = batch_at
        output: Output = model(batch.to(device), Fixed(last), keep=range(1, last + 1))
        return output.logits.cpu(), batch.labels

    labels = [example.label for example in asked]
    batches = in_batches(encoded, labels, run.model.core.feedforward, num_workers=num_workers(device))
    for logits, truth in in_parallel(logits_of, batches, device):
        for label in (0, 1):
            chosen = logits[truth == label]
            right[label] += ((chosen > 0) == bool(label)).sum(dim=0)
            num[label] += len(chosen)
        watch(int(num.sum()))
    right[:, : least - 1] = right[:, least - 1 : least]
    return Tally(right[:, :most], num)


def draw_examples(task: str, config: GridConfig, difficulty: int, split: Split = "test") -> list[Example]:
    """The examples of one row of a grid."""
    return examples(task, config.distribution, difficulty, config.seed, config.num_examples, split)


def _measure_row(
    model: Model,
    run: RunConfig,
    config: GridConfig,
    difficulty: int,
    best: Callable[[int, int], float],
    num_before: int,
    watch: Callable[[int], None],
) -> list[Cell]:
    """One difficulty, every number of steps."""
    most = max(*config.steps, 2 * difficulty)
    asked = draw_examples(run.task, config, difficulty)
    found = tally(model, run, asked, most, lambda num: watch(num_before + num))
    cells = []
    for steps in range(1, most + 1):
        accuracy = found.accuracy(steps)
        low, high = wilson(accuracy, found.total)
        cells.append(
            Cell(
                difficulty=difficulty,
                steps=steps,
                accuracy=accuracy,
                low=low,
                high=high,
                true_positive_rate=found.rate(True, steps),
                true_negative_rate=found.rate(False, steps),
                num=found.total,
                ceiling=best(difficulty, steps),
            )
        )
    return cells

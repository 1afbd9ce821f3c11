"""Contenders in training and in measuring grids. Each is set up first; what it returns is timed."""

from collections.abc import Callable
from functools import cache
from random import Random

import torch
from torch.nn import functional as F

from benchmarks.plain import LARGEST, PlainBatch, plain_model
from deepen.batches import Stream, in_batches
from deepen.bench import Work
from deepen.config import RunConfig
from deepen.memory import keep_freed_memory
from deepen.model import DepthRecurrent
from deepen.parallel import in_parallel, num_workers
from deepen.presets import get_preset
from deepen.shapes import Encoded
from deepen.tasks import examples, get_task
from deepen.train import training_loss
from deepen.unroll import Fixed

CPU = torch.device("cpu")

# Training: examples times steps a second at the published settings.

UPDATES = {"graph": 16, "logic": 8, "family": 8}  # ours in one turn: whole windows of batches
PLAIN_UPDATES = {"graph": 16, "logic": 1, "family": 1}  # all alike, since all padded to the same size


def _published(task: str) -> RunConfig:
    """The published settings, with a training set just large enough for the updates of one turn."""
    config = get_preset(task, "paper")
    data = config.data.model_copy(update={"train_set": UPDATES[task] * config.data.batch})
    return config.model_copy(update={"data": data})


def _steps(config: RunConfig, num: int) -> list[int]:
    """T for each of `num` updates, spread evenly over the range."""
    low, high = config.train.steps
    return [low + int((high - low + 1) * (number + 0.5) / num) for number in range(num)]


def train_ours(task: str) -> Callable[[], Work]:
    keep_freed_memory()
    config = _published(task)
    model = DepthRecurrent(config.model).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-2, fused=True)
    stream = Stream(config)
    at = {
        steps: config.model_copy(update={"train": config.train.model_copy(update={"steps": (steps, steps)})})
        for steps in range(1, 17)
    }
    order = Random(0).sample(_steps(config, UPDATES[task]), UPDATES[task])

    def turn() -> Work:
        for update, steps in enumerate(order):
            loss, _ = training_loss(model, stream[update], at[steps], update)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return Work(units=sum(order) * config.data.batch)

    return turn


def train_plain(task: str, kept: bool = False) -> Callable[[], Work]:
    if kept:
        keep_freed_memory()
    config = _published(task)
    model = plain_model(config.model).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-2)
    size = config.data.batch
    low, high = config.data.difficulties
    drawn = [
        one for difficulty in range(low, high + 1) for one in examples(task, difficulty=difficulty, num=size)
    ]
    Random(0).shuffle(drawn)
    encode = get_task(task).encode
    batches = []
    for number in range(PLAIN_UPDATES[task]):
        chosen = Random(number).sample(drawn, size)
        encoded = [encode(one.question) for one in chosen]
        batches.append(PlainBatch(encoded, [one.label for one in chosen], LARGEST[task]))
    order = _steps(config, len(batches))

    def turn() -> Work:
        for batch, steps in zip(batches, order, strict=True):
            loss = F.binary_cross_entropy_with_logits(model(batch, steps), batch.labels)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return Work(units=sum(order) * size)

    return turn


# Grids: the published cells, one unroll per difficulty against one per cell.

# Of each difficulty; fewer texts, since the plain way takes long on them.
GRID_EXAMPLES = {"graph": 500, "logic": 8, "family": 8}


@cache
def _grid_questions(task: str) -> tuple[tuple[list[Encoded], list[bool]], ...]:
    """Of each difficulty of the published grid."""
    encode = get_task(task).encode
    rows = []
    for difficulty in get_preset(task, "paper").grid.difficulties:
        drawn = examples(task, difficulty=difficulty, num=GRID_EXAMPLES[task])
        rows.append(([encode(one.question) for one in drawn], [one.label for one in drawn]))
    return tuple(rows)


def grid_ours(task: str) -> Callable[[], Work]:
    keep_freed_memory()
    config = get_preset(task, "paper")
    model = DepthRecurrent(config.model).eval()
    rows, steps = _grid_questions(task), config.grid.steps

    def turn() -> Work:
        for encoded, labels in rows:
            batches = in_batches(encoded, labels, config.model.core.feedforward, num_workers=num_workers(CPU))
            for _ in in_parallel(
                lambda one: model(one[1], Fixed(max(steps)), range(1, max(steps) + 1)), batches, CPU
            ):
                pass
        return Work(units=len(rows) * len(steps))

    return turn


def grid_plain(task: str) -> Callable[[], Work]:
    config = get_preset(task, "paper")
    model = plain_model(config.model).eval()
    steps = config.grid.steps
    batches = [
        [
            PlainBatch(encoded[at : at + 64], labels[at : at + 64], LARGEST[task])
            for at in range(0, len(encoded), 64)
        ]
        for encoded, labels in _grid_questions(task)
    ]

    @torch.no_grad()
    def turn() -> Work:
        for row in batches:
            for num_steps in steps:
                for batch in row:
                    model(batch, num_steps)
        return Work(units=len(batches) * len(steps))

    return turn

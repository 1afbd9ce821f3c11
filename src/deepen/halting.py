"""A halting rule that is learned: a small head on a trained model says when it has thought enough.

It looks at the whole question (mean and largest value of every channel over its positions, of the state
and of its last move) and is trained, with the model frozen, on the model's own training examples: it
should stop once as many steps are taken as training allows an example before it is asked. What it does on
longer ones, nobody told it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from deepen.batches import collate, encode, training_example
from deepen.config import RunConfig, changed
from deepen.model import Model
from deepen.shapes import Batch, Scene, State
from deepen.tasks import get_task

BATCH = 32
RATE = 3e-3
BEYOND = 4  # steps past the hardest example, seen in training


class HaltingHead(nn.Module):
    """LN - Linear - GELU - Linear over a whole question; above 0: stop."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.hidden = nn.Linear(4 * width, 32)
        self.logit = nn.Linear(32, 1)

    def forward(self, before: State, after: State, scene: Scene) -> Tensor:
        seen = torch.cat([after.hidden, (after.hidden - before.hidden).abs()], dim=-1)
        logit: Tensor = self.logit(nn.functional.gelu(self.hidden(self.norm(_summary(seen, scene)))))
        return logit.squeeze(-1)


def _summary(seen: Tensor, scene: Scene) -> Tensor:
    """(questions, 2 C): mean and maximum of (B, L, C) over the positions of each question."""
    num, rows = len(scene.read_at), seen.flatten(0, 1)
    if scene.graphs is None:
        owner = torch.arange(num, device=seen.device)[:, None].expand(seen.shape[:2]).flatten()
    else:
        owner = scene.graphs.owner[: seen.shape[1]]
    valid = scene.valid[:, : seen.shape[1]].flatten()
    rows, owner = rows[valid], owner[valid]
    into = owner[:, None].expand_as(rows)
    empty = rows.new_zeros(num, rows.shape[1])
    mean = empty.scatter_reduce(0, into, rows, "mean", include_self=False)
    largest = empty.scatter_reduce(0, into, rows, "amax", include_self=False)
    return torch.cat([mean, largest], dim=-1)


@dataclass(frozen=True)
class LearnedHalting:
    """Until the head says so."""

    max_steps: int
    head: HaltingHead
    patience: int = 1

    def wants_to_stop(self, before: State, after: State, scene: Scene, t: int | Tensor) -> Tensor:
        wants: Tensor = self.head(before, after, scene) > 0
        return wants


def fit_head(model: Model, config: RunConfig, updates: int = 300, seed: int = 0) -> HaltingHead:
    """Train a head for a trained model, on examples of its training range that it was not trained on."""
    torch.manual_seed(seed)
    head = HaltingHead(config.model.core.width)
    optimiser = torch.optim.AdamW(head.parameters(), lr=RATE)
    most = config.data.difficulties[1] + BEYOND
    fresh = changed(config, seed=config.seed + 1, data__curriculum=0.0, data__train_set=None)
    for update in range(updates):
        batch = _examples(fresh, range(update * BATCH, (update + 1) * BATCH))
        assert batch.difficulty is not None
        losses = []
        for t, (before, after, scene) in enumerate(_way(model, batch, most), start=1):
            enough = (batch.difficulty + (config.train.slack or 0) <= t).float()
            losses.append(cross_entropy(head(before, after, scene), enough))
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(losses).mean())
        optimiser.step()
    return head.eval()


def _examples(config: RunConfig, indices: Sequence[int]) -> Batch:
    task = get_task(config.task)
    drawn = [training_example(config, index) for index in indices]
    encoded = [encode(task, one.question, config.model.perception) for one in drawn]
    return collate(encoded, [one.label for one in drawn], [one.difficulty for one in drawn], whole=True)


@torch.no_grad()
def _way(model: Model, batch: Batch, most: int) -> list[tuple[State, State, Scene]]:
    """Every step of a batch: the state before it and after it."""
    step, scene = model.eval().begin(batch)
    state = State(hidden=scene.first)
    way = []
    for t in range(1, most + 1):
        after = step(state, scene, t, state.hidden.shape[1])
        way.append((state, after, scene))
        state = after
    return way

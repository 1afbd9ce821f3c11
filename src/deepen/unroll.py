"""Any step, T times. This file owns T and never knows what a step is.

A halting rule says after each step which questions want to stop. A question halts once it has wanted
to for `patience` steps in a row, or at `max_steps`; the others go on. What is kept of the way is asked
for beforehand: logits of some steps, of every step, or of the last one only.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from deepen.shapes import Output, Scene, State

Step = Callable[[State, Scene, int], State]
Read = Callable[[State, Scene], Tensor]


class HaltingRule(Protocol):
    """When to stop thinking."""

    @property
    def max_steps(self) -> int: ...

    @property
    def patience(self) -> int | None:
        """Wants in a row that make a question stop; None: no question stops before max_steps."""
        ...

    def wants_to_stop(self, before: State, after: State, scene: Scene) -> Tensor:
        """(B,) booleans."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Exactly T steps for everyone."""

    max_steps: int
    patience: None = None

    def wants_to_stop(self, before: State, after: State, scene: Scene) -> Tensor:
        return torch.zeros(len(after.hidden), dtype=torch.bool, device=after.hidden.device)


@dataclass(frozen=True)
class Convergence:
    """Until no position's state moves by more than `tolerance` of its own size."""

    max_steps: int
    tolerance: float = 0.01
    patience: int = 3

    def wants_to_stop(self, before: State, after: State, scene: Scene) -> Tensor:
        moved = (after.hidden - before.hidden).norm(dim=-1)
        settled = moved <= self.tolerance * after.hidden.norm(dim=-1)
        everywhere: Tensor = (settled | ~scene.valid).all(dim=-1)
        return everywhere


def unroll(
    step: Step,
    read: Read,
    scene: Scene,
    halt: HaltingRule,
    keep: Collection[int] | None = None,
    start: State | None = None,
    taken: int = 0,
) -> Output:
    """Think until everyone has halted; read the answer after each step in `keep`, or after the last.

    `start` continues from a state that `taken` steps have led to.
    """
    if halt.max_steps < 1:
        raise ValueError(f"steps must be at least 1, got {halt.max_steps}")
    state = start or State(hidden=scene.first)
    num = len(scene.first)
    in_a_row = torch.zeros(num, dtype=torch.long, device=scene.first.device)
    num_steps = torch.full_like(in_a_row, halt.max_steps)
    running = torch.ones_like(in_a_row, dtype=torch.bool)
    kept: list[tuple[int, Tensor]] = []
    for t in range(1, halt.max_steps + 1):
        before, state = state, step(state, scene, taken + t)
        if halt.patience is not None:
            in_a_row = torch.where(halt.wants_to_stop(before, state, scene), in_a_row + 1, 0)
            stops = running & (in_a_row >= halt.patience)
            num_steps[stops] = t
            running = running & ~stops
        last = t == halt.max_steps or not running.any()
        if (keep is not None and t in keep) or (last and not kept):
            kept.append((t, read(state, scene)))
        if last:
            break
    return Output(
        steps=tuple(t for t, _ in kept),
        logits=torch.stack([logits for _, logits in kept], dim=1),
        state=state,
        num_steps=num_steps,
    )

"""Any step, T times. This file owns T and never knows what a step is.

A halting rule says after each step which questions want to stop. A question halts once it has wanted to
for `patience` steps in a row, or at its limit. Who has halted leaves the batch: the others' next step
does not carry them along. What is kept of the way is asked for beforehand.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import nan
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from deepen.blocks import first
from deepen.shapes import Output, Scene, State

Step = Callable[[State, Scene, int, int], State]
"""State, scene, t and a number of positions to the next state of so many of the first positions."""
Read = Callable[[State, Scene], Tensor]


class HaltingRule(Protocol):
    """When to stop thinking."""

    @property
    def max_steps(self) -> int: ...

    @property
    def patience(self) -> int | None:
        """Wants in a row that make a question stop; None: no question stops before its limit."""
        ...

    def wants_to_stop(self, before: State, after: State, scene: Scene, t: int | Tensor) -> Tensor:
        """(questions,) booleans after step t, which may differ from question to question."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Exactly T steps for everyone."""

    max_steps: int
    patience: None = None

    def wants_to_stop(self, before: State, after: State, scene: Scene, t: int | Tensor) -> Tensor:
        return torch.zeros(len(scene.read_at), dtype=torch.bool, device=scene.read_at.device)


@dataclass(frozen=True)
class Convergence:
    """Until no position's state moves by more than `tolerance` of its own size, nor by more than `pace` / t,
    and those the answer is read from by no more than `reading`.

    Only positions count that the answer can depend on, as far as the scene knows them. The longer a question
    has taken, the stiller its state must be: at this pace it would not move by more than `pace` of its size
    if it went on for as long again. A gate that lets a tenth through makes the way a tenth as far, and a
    state that has not begun to think look settled: so the move is divided by how far the gate is open.
    """

    max_steps: int
    pace: float
    tolerance: float = 0.6
    reading: float = 0.25
    patience: int = 1

    def wants_to_stop(self, before: State, after: State, scene: Scene, t: int | Tensor) -> Tensor:
        moved = (after.hidden - before.hidden).norm(dim=-1)
        if after.gate is not None:
            moved = moved / after.gate.mean(dim=-1)
        size = after.hidden.norm(dim=-1)
        t = torch.as_tensor(t, dtype=moved.dtype, device=moved.device)
        limit = scene.spread((self.pace / t).clamp(max=self.tolerance), moved.shape[1])
        still = moved <= limit * size
        wants: Tensor = (moved <= self.reading * size)[scene.rows, scene.read_at].all(dim=-1)
        return wants & scene.everywhere(still if scene.matters is None else still | ~scene.matters)


@dataclass(frozen=True)
class AnswerConvergence:
    """Until the probability moves by no more than `tolerance`: it may stand still and then jump."""

    max_steps: int
    read: Read
    tolerance: float = 0.01
    patience: int = 4

    def wants_to_stop(self, before: State, after: State, scene: Scene, t: int | Tensor) -> Tensor:
        then, now = (self.read(state, scene).sigmoid() for state in (before, after))
        return (now - then).abs() <= self.tolerance


def unroll(
    step: Step,
    read: Read,
    scene: Scene,
    halt: HaltingRule,
    keep: Collection[int] = (),
    *,
    limits: Tensor | None = None,
    start: State | None = None,
    taken: int = 0,
    ahead: int = 0,
) -> Output:
    """Think until everyone has halted; read the logits after each step in `keep`, and after the last.

    `limits` (B,) are the questions' own largest numbers of steps, below the rule's. `start` continues
    from a state that `taken` steps have led to. `ahead` is how many more steps will be taken from the
    state in the output: what cannot change the answer by then is not computed, and no answer is read.
    """
    num, device = len(scene.read_at), scene.first.device
    limits = torch.full((num,), halt.max_steps, device=device) if limits is None else limits
    ends = set(limits.tolist())
    if min(ends) < 1:
        raise ValueError(f"steps must be at least 1, got {min(ends)}")
    may_stop_early = halt.patience is not None  # then every position is needed, to judge by
    if start is None:
        num_first = scene.first.shape[1] if may_stop_early else scene.num_needed(ahead + max(ends))
        start = State(hidden=first(scene.first, num_first))
    state = start
    here = torch.arange(num, device=device)  # the questions that have not left
    in_a_row = torch.zeros_like(limits)
    num_steps = torch.zeros_like(limits)
    answer = torch.full((num,), nan, dtype=scene.first.dtype, device=device)
    kept: list[tuple[int, Tensor]] = []
    for t in range(1, max(ends) + 1):
        num_needed = scene.first.shape[1] if may_stop_early else scene.num_needed(ahead + max(ends) - t)
        after = step(state, scene, taken + t, num_needed)
        stops = limits[here] == t
        if halt.patience is not None:
            in_a_row = torch.where(halt.wants_to_stop(state, after, scene, taken + t), in_a_row + 1, 0)
            stops = stops | (in_a_row >= halt.patience)
        state = after  # and nothing else holds on to the state before it
        someone_stops = t in ends or (may_stop_early and bool(stops.any()))
        if t in keep or (someone_stops and not ahead):
            logits = read(state, scene)
        if t in keep:
            kept.append((t, torch.full_like(answer, nan).index_copy(0, here, logits)))
        if someone_stops:
            if not ahead:
                answer = answer.index_copy(0, here[stops], logits[stops])
            num_steps[here[stops]] = t
            stay = (~stops).nonzero().squeeze(1)
            if not len(stay):
                break
            if len(stay) < len(here):
                here, in_a_row = here[stay], in_a_row[stay]
                scene, pick = scene.select(stay)
                state = state.picked(pick)
    every = [logits for _, logits in kept]
    return Output(
        answer=answer,
        steps=tuple(t for t, _ in kept),
        logits=torch.stack(every, dim=1) if every else answer.new_empty(num, 0),
        state=state,
        num_steps=num_steps,
    )


def unroll_in_segments(
    step: Step,
    read: Read,
    scene: Scene,
    num_steps: int,
    segment: int,
    keep: Collection[int] = (),
    *,
    start: State | None = None,
    taken: int = 0,
) -> Output:
    """A fixed T whose gradient needs the memory of T / segment states and of `segment` whole steps.

    Between the segments only the state is kept; on the way back each segment is taken a second time.
    """

    def think(state: State | None, done: int) -> Output:
        num = min(segment, num_steps - done)
        return unroll(
            step,
            read,
            scene,
            Fixed(num),
            [t - done for t in keep],
            start=state,
            taken=taken + done,
            ahead=num_steps - done - num,
        )

    if segment >= num_steps:
        return think(start, 0)
    every: list[Tensor] = []
    kept: list[int] = []
    for done in range(0, num_steps, segment):
        output: Output = checkpoint(think, start, done, use_reentrant=False)
        start = output.state
        kept += [done + t for t in output.steps]
        every.append(output.logits)
    return Output(
        answer=output.answer,
        steps=tuple(kept),
        logits=torch.cat(every, dim=1),
        state=output.state,
        num_steps=torch.full_like(output.num_steps, num_steps),
    )

"""The records that travel down the road, and the one legend of dimension letters.

Letters: B batch, L positions (nodes or tokens), D width, H heads, T steps, K kept steps.
Each record is what one station hands to the next: `Encoded` (task to batches), `Batch` (batches to
perception), `Scene` (perception to core), `State` (step to step), `Output` (unroll to everyone else).

A text is a row of its own, padded. The graphs of a batch share one row (B = 1, L all their nodes).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from deepen.layout import Blocks, EdgeList, IntArray, Movable


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """One question as numbers, before it meets others in a batch."""

    tokens: IntArray  # (L,); of phrases (L, words), 0 where one has no more
    num_asking: int = 0  # so many of the first phrases ask: no other looks at them
    edges: IntArray | None = None  # (E, 2) rows (from, to); None for text
    query: tuple[int, int] | None = None  # positions of source and target; None for text


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A text with one or more questions about it, and their answers."""

    encoded: Encoded
    asked: tuple[int, ...]  # the positions that are read
    labels: tuple[bool, ...]
    difficulties: tuple[int, ...]
    words: tuple[int, ...]  # tokens that would have been right to claim; 0 where nobody knows


@dataclass(frozen=True, kw_only=True)
class Batch(Movable):
    """Questions together. Tasks and models meet here and nowhere else."""

    tokens: Tensor  # (B, L) integers; of phrases (B, L, words)
    valid: Tensor  # (B, L) false on padding
    graphs: Blocks | EdgeList | None  # who has an edge to whom; None for texts
    query: Tensor | None  # (questions, 2) where source and target are in the row; None for texts
    num_asking: Tensor | None = None  # (B,) how many of the first phrases only ask; None unless phrases
    asked: Tensor | None = None  # (questions, 2) row and position; None: each row's first position, or graphs
    labels: Tensor  # (questions,) 0.0 or 1.0
    difficulty: Tensor | None  # (questions,) the steps a positive needs; None where nobody knows
    words: Tensor | None = None  # (questions,) tokens that would have been right to claim; 0: not known
    num_padding: int  # how many positions are padding


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is perceived: the first hidden state and how positions may attend to each other."""

    first: Tensor  # (B, L, D), the paper's H(0)
    mask: Tensor | None  # additive, broadcasts to (B, H, L, L), or to slots of blocks; None: no mask
    graphs: Blocks | EdgeList | None = None
    sharpness: Tensor | None = None  # (L,) factors of the attention scores of graphs; None: 1
    rotary: Tensor | None = None  # (L, D / H / 2), unit complex numbers that turn queries and keys
    valid: Tensor  # (B, L)
    matters: Tensor | None = None  # (B, L) what the answer can depend on; None: everything
    read_at: Tensor  # (questions, 1 or 2) positions the readout looks at, in the question's row
    asked_in: Tensor | None = None  # (questions, 1) the row, where a row has several questions
    recalled: Tensor | None = None  # (B, L, D), what the core adds at every step
    strips: dict[float, Tensor] = field(default_factory=dict)  # in training: what dropout masks are cut from

    @cached_property
    def rows(self) -> Tensor:
        """(questions, 1), the row of each question."""
        if self.asked_in is not None:
            return self.asked_in
        rows = torch.arange(len(self.read_at), device=self.read_at.device)[:, None]
        return rows if self.graphs is None else torch.zeros_like(rows)

    def num_needed(self, num_steps: int) -> int:
        """How many of a row's first positions can still change an answer `num_steps` steps later."""
        if self.asked_in is not None:
            return self.first.shape[1]
        # A text is read at its first position, and every position may see every other.
        needed = (1, self.first.shape[1]) if self.graphs is None else self.graphs.needed
        return needed[min(num_steps, len(needed) - 1)]

    def spread(self, numbers: Tensor, num: int) -> Tensor:
        """What belongs to each question, at the first `num` positions; a single number stays one."""
        if numbers.dim() == 0:
            return numbers
        return numbers[:, None] if self.graphs is None else numbers[self.graphs.owner[:num]][None]

    def everywhere(self, true: Tensor) -> Tensor:
        """(questions,): whether (B, L) booleans are true at every position of a question."""
        if self.graphs is None:
            return (true | ~self.valid).all(dim=-1)[self.rows[:, 0]]
        num_false = torch.zeros(len(self.read_at), device=true.device)
        return num_false.index_add_(0, self.graphs.owner[: true.shape[1]], (~true[0]).float()) == 0

    def select(self, stay: Tensor) -> tuple[Self, Callable[[Tensor], Tensor]]:
        """The scene of some of the questions, and what picks their part of a (B, L, ...) tensor."""
        if isinstance(self.graphs, Blocks):
            graphs, kept, new_place = self.graphs.select(stay)
            scene = replace(
                self,
                first=self.first[:, kept],
                mask=None if self.mask is None else self.mask[stay],
                graphs=graphs,
                sharpness=None if self.sharpness is None else self.sharpness[kept],
                valid=self.valid[:, kept],
                read_at=new_place[self.read_at[stay]],
                recalled=None if self.recalled is None else self.recalled[:, kept],
            )
            return scene, lambda x: x[:, kept[kept < x.shape[1]]]
        scene = replace(
            self,
            first=self.first[stay],
            mask=None if self.mask is None else self.mask[stay],
            valid=self.valid[stay],
            matters=None if self.matters is None else self.matters[stay],
            read_at=self.read_at[stay],
            recalled=None if self.recalled is None else self.recalled[stay],
        )
        return scene, lambda x: x[stay]


@dataclass(frozen=True, kw_only=True)
class State:
    """The latent thought between two steps, of the positions that still matter."""

    hidden: Tensor  # (B, L, D), the paper's H(t)
    gate: Tensor | None = None  # (B, L, D), the z(t) that led here; None without a gate

    def picked(self, pick: Callable[[Tensor], Tensor]) -> Self:
        """Some of it; the gate, which no step looks at, is left behind."""
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "gate"}
        return type(self)(**{name: pick(value) for name, value in kept.items()})


@dataclass(frozen=True, kw_only=True)
class Output:
    """Everything an unroll was asked to keep, for each question."""

    answer: Tensor  # (questions,) the logit after the question's own last step
    steps: tuple[int, ...]  # (K,) the steps whose logits were kept
    logits: Tensor  # (questions, K); not a number where a question had already halted
    state: State  # after the last step, of the questions that took it
    num_steps: Tensor  # (questions,) the step at which each halted

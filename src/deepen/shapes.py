"""The records that travel down the road, and the one legend of dimension letters.

Letters: B batch, L positions (nodes or tokens), D width, H heads, T steps, K kept steps.
Each record is what one station hands to the next: `Encoded` (task to batches), `Batch` (batches to
perception), `Scene` (perception to core), `State` (step to step), `Output` (unroll to everyone else).
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from torch import Tensor, device

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """One question as numbers, before it meets others in a batch."""

    tokens: IntArray  # (L,)
    edges: IntArray | None = None  # (E, 2) rows (from, to); None for text
    query: tuple[int, int] | None = None  # positions of source and target; None for text


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Questions padded to one length. Tasks and models meet here and nowhere else."""

    tokens: Tensor  # (B, L) integers
    valid: Tensor  # (B, L) true where there is a node or token, false on padding
    edges: Tensor | None  # (B, L, L) true at [b, v, u] if u -> v is an edge; None for text
    query: Tensor | None  # (B, 2) positions of source and target; None for text
    labels: Tensor  # (B,) 0.0 or 1.0
    num_padding: int  # how many of the B x L positions are padding

    def to(self, target: device) -> Self:
        """The same batch on another device."""
        return replace(
            self,
            tokens=self.tokens.to(target),
            valid=self.valid.to(target),
            edges=None if self.edges is None else self.edges.to(target),
            query=None if self.query is None else self.query.to(target),
            labels=self.labels.to(target),
        )


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is perceived: the first hidden state and how positions may attend to each other."""

    first: Tensor  # (B, L, D), the paper's H(0)
    mask: Tensor | None  # additive, broadcasts to (B, H, L, L); None lets everyone see everyone
    rotary: tuple[Tensor, Tensor] | None  # cosines and sines, (L, D / H) each
    valid: Tensor  # (B, L)
    read_at: Tensor  # (B, 1) or (B, 2) positions the readout looks at


@dataclass(frozen=True, kw_only=True)
class State:
    """The latent thought between two steps."""

    hidden: Tensor  # (B, L, D), the paper's H(t)
    gate: Tensor | None = None  # (B, L, D), the z(t) that led here; None without a gate


@dataclass(frozen=True, kw_only=True)
class Output:
    """Everything an unroll was asked to keep."""

    steps: tuple[int, ...]  # (K,) the steps whose logits were kept
    logits: Tensor  # (B, K)
    state: State  # after the last step
    num_steps: Tensor  # (B,) the step at which each question halted

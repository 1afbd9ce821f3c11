"""Batch -> Scene: the first hidden state H(0) and how positions may attend to each other.

Three interfaces of falling structural bias (paper, "Task-Specific Perception Interfaces"):
topological sees a graph's edges, hierarchical and unstructured see tokens in order. The last two are
the same module; what differs is the data, whose shuffled facts make distance meaningless.
"""

from typing import Final

import torch
from torch import Tensor, nn

from deepen.blocks import rotary_table
from deepen.config import ModelConfig
from deepen.shapes import Batch, Scene


class Topological(nn.Module):
    """A node attends to its in-neighbours and itself, nothing else."""

    num_read: Final = 2  # the readout looks at source and target

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.has_identity = config.perception.vocabulary > 1
        self.tokens = nn.Embedding(config.perception.vocabulary, config.core.width)
        self.roles = nn.Parameter(torch.empty(2, config.core.width))  # source, target
        self.norm = nn.LayerNorm(config.core.width)
        self.dropout = nn.Dropout(config.core.dropout)

    def forward(self, batch: Batch) -> Scene:
        assert batch.edges is not None
        assert batch.query is not None
        ids = batch.tokens if self.has_identity else torch.zeros_like(batch.tokens)
        places = torch.arange(ids.shape[1], device=ids.device)
        has_role = batch.query[:, :, None] == places  # (B, 2, L)
        hidden = self.tokens(ids) + has_role.to(self.roles.dtype).transpose(1, 2) @ self.roles
        return Scene(
            first=self.dropout(self.norm(hidden)),
            mask=adjacency_mask(batch.edges, hidden.dtype),
            rotary=None,
            valid=batch.valid,
            read_at=batch.query,
        )


class Sequential(nn.Module):
    """Tokens with rotary positions; padding is never attended to."""

    num_read: Final = 1  # the readout looks at <cls>

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width = config.core.width // config.core.heads
        self.rotary_base = config.perception.rotary_base
        self.tokens = nn.Embedding(config.perception.vocabulary, config.core.width)
        self.norm = nn.LayerNorm(config.core.width)
        self.dropout = nn.Dropout(config.core.dropout)

    def forward(self, batch: Batch) -> Scene:
        hidden = self.dropout(self.norm(self.tokens(batch.tokens)))
        padded = batch.num_padding > 0
        return Scene(
            first=hidden,
            mask=additive(batch.valid[:, None, None, :], hidden.dtype) if padded else None,
            rotary=rotary_table(hidden.shape[1], self.head_width, self.rotary_base, like=hidden),
            valid=batch.valid,
            read_at=torch.zeros_like(batch.tokens[:, :1]),
        )


PERCEPTIONS: dict[str, type[Topological | Sequential]] = {
    "topological": Topological,
    "hierarchical": Sequential,
    "unstructured": Sequential,
}


def adjacency_mask(edges: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask M of the topological interface, (B, 1, L, L), with self-loops."""
    itself = torch.eye(edges.shape[1], dtype=torch.bool, device=edges.device)
    return additive((edges | itself)[:, None], dtype)


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed, minus infinity where it is not."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, float("-inf"))

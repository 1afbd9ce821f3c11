"""Batch -> Scene: the first hidden state H(0) and how positions may attend to each other.

Three interfaces of falling structural bias (paper, "Task-Specific Perception Interfaces"):
topological sees a graph's edges, hierarchical and unstructured see tokens in order. The last two are
the same module; what differs is the data, whose shuffled facts make distance meaningless.
"""

from typing import Final

import torch
from torch import Tensor, nn

from deepen.blocks import rotary_table, sharpness
from deepen.config import ModelConfig
from deepen.layout import Blocks
from deepen.shapes import Batch, Scene


class Topological(nn.Module):
    """A node attends to its in-neighbours and itself, nothing else."""

    num_read: Final = 2  # the readout looks at source and target

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.has_identity = config.perception.vocabulary > 1
        self.crowd = config.perception.crowd
        self.tokens = nn.Embedding(config.perception.vocabulary, config.core.width)
        self.roles = nn.Parameter(torch.empty(2, config.core.width))  # source, target
        self.norm = nn.LayerNorm(config.core.width)
        self.dropout = nn.Dropout(config.core.dropout)

    def forward(self, batch: Batch) -> Scene:
        assert batch.graphs is not None
        assert batch.query is not None
        ids = batch.tokens if self.has_identity else torch.zeros_like(batch.tokens)
        has_role = torch.zeros(*ids.shape, 2, dtype=self.roles.dtype, device=ids.device)
        has_role[0, batch.query, torch.arange(2, device=ids.device)] = 1.0
        hidden = self.tokens(ids) + has_role @ self.roles
        graphs = batch.graphs
        return Scene(
            first=self.dropout(self.norm(hidden)),
            mask=additive(graphs.allowed[:, None], hidden.dtype) if isinstance(graphs, Blocks) else None,
            graphs=graphs,
            sharpness=self._sharpness(graphs.num_in),
            valid=batch.valid,
            read_at=batch.query,
        )

    def _sharpness(self, num_in: Tensor) -> Tensor | None:
        """None where no node has a crowd of in-neighbours, as in training."""
        if self.crowd is None or num_in.max() <= self.crowd:
            return None
        return sharpness(num_in, self.crowd)


class Sequential(nn.Module):
    """Tokens with rotary positions, and maybe a look at their neighbours; padding is never attended to."""

    num_read: Final = 1  # the readout looks at <cls>

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width = config.core.width // config.core.heads
        self.perceives = config.perception
        width, span = config.core.width, config.perception.neighbours
        self.tokens = nn.Embedding(config.perception.vocabulary, width)
        self.neighbours = (
            nn.Conv1d(width, width, span, padding=span // 2, groups=width, bias=False) if span else None
        )
        self.norm = nn.LayerNorm(config.core.width)
        self.dropout = nn.Dropout(config.core.dropout)

    def forward(self, batch: Batch) -> Scene:
        hidden = self.tokens(batch.tokens)
        if self.neighbours is not None:
            there = hidden * batch.valid[:, :, None]  # what padding is must not be seen
            hidden = hidden + self.neighbours(there.transpose(1, 2)).transpose(1, 2)
        hidden = self.dropout(self.norm(hidden))
        sees = self.perceives
        padded = batch.num_padding > 0
        return Scene(
            first=hidden,
            mask=additive(batch.valid[:, None, None, :], hidden.dtype) if padded else None,
            rotary=rotary_table(
                hidden.shape[1], self.head_width, sees.rotary_base, like=hidden, share=sees.rotary_share
            ),
            valid=batch.valid,
            read_at=torch.zeros_like(batch.tokens[:, :1]),
        )


PERCEPTIONS: dict[str, type[Topological | Sequential]] = {
    "topological": Topological,
    "hierarchical": Sequential,
    "unstructured": Sequential,
}


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed, minus infinity where it is not."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, float("-inf"))

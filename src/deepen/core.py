"""One thinking step: the paper's shared block, and four ingredients it lacks.

    input      x  = H + e_t + R H(0)                          depth embedding, recall
    attention  x' = x + g_attn * MHSA(LN(x), M)               LayerScale g
    candidate  C  = x' + g_ffn * FFN(LN(x'))
    gate       z  = sigmoid([C; H] W_z + b_z)
    update     H <- LN(z * C + (1 - z) * H) + noise           state norm, state noise in training

Each ingredient is a config field that can be switched off. With recall, state norm and state noise
off this is the paper's core ("The Invariant Reasoning Core"); without a gate the update is C itself.
"""

import torch
from torch import Tensor, nn

from deepen.blocks import Attention, FeedForward
from deepen.config import CoreConfig
from deepen.shapes import Scene, State


class Core(nn.Module):
    """step(state, scene, t) -> state; nothing is remembered on the module."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__()
        width = config.width
        self.state_noise = config.state_noise
        self.depth = nn.Embedding(config.depth_rows, width) if config.depth_rows else None
        self.recall = nn.Linear(width, width, bias=False) if config.recall else None
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, config.heads, config.attention_dropout)
        self.attention_scale = _layer_scale(config)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, config.feedforward, config.activation, config.dropout)
        self.feedforward_scale = _layer_scale(config)
        self.gate = nn.Linear(2 * width, width) if config.gate_bias is not None else None
        self.state_norm = nn.LayerNorm(width) if config.state_norm else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, state: State, scene: Scene, t: int) -> State:
        """H(t-1) to H(t); t counts from 1."""
        before = state.hidden
        candidate = self._candidate(before, scene, t)
        z = None
        after = candidate
        if self.gate is not None:
            z = torch.sigmoid(self.gate(torch.cat([candidate, before], dim=-1)))
            after = torch.lerp(before, candidate, z)  # z * candidate + (1 - z) * before
        if self.state_norm is not None:
            after = self.state_norm(after)
        if self.training and self.state_noise:
            after = after + self.state_noise * torch.randn_like(after)
        return State(hidden=after, gate=z)

    def _candidate(self, hidden: Tensor, scene: Scene, t: int) -> Tensor:
        """The block f_theta: H(t-1) and t to the candidate state."""
        x = hidden
        if self.depth is not None:
            x = x + self.depth.weight[min(t, self.depth.num_embeddings) - 1]
        if self.recall is not None:
            x = x + self.recall(scene.first)
        attended = self.attention(self.attention_norm(x), scene.mask, scene.rotary)
        x = x + _scaled(self.attention_scale, self.dropout(attended))
        return x + _scaled(self.feedforward_scale, self.dropout(self.feedforward(self.feedforward_norm(x))))


def _layer_scale(config: CoreConfig) -> nn.Parameter | None:
    return None if config.layer_scale is None else nn.Parameter(torch.empty(config.width))


def _scaled(scale: Tensor | None, branch: Tensor) -> Tensor:
    return branch if scale is None else scale * branch

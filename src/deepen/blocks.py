"""Attention, feed-forward and rotary positions: the plain parts of a Transformer, nothing recurrent."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class Attention(nn.Module):
    """Multi-head self-attention, softmax(Q K^T / sqrt(d_k) + M) V."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        B, L, D = x.shape
        projected = self.query_key_value(x).view(B, L, 3, self.heads, D // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # each (B, H, L, D / H)
        if rotary is not None:
            query, key = rotate(query, *rotary), rotate(key, *rotary)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(B, L, D))
        return joined


class FeedForward(nn.Module):
    """W2 activation(W1 x + b1) + b2."""

    def __init__(self, width: int, hidden: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.enter = nn.Linear(width, hidden)
        self.dropout = nn.Dropout(dropout)
        self.leave = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.enter(x)))
        out: Tensor = self.leave(hidden)
        return out


def rotary_table(length: int, channels: int, base: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (L, channels) each, of the rotary angles m * base^(-2i / channels)."""
    half = channels // 2
    frequency = base ** (-torch.arange(half, device=like.device, dtype=like.dtype) / half)
    angle = torch.arange(length, device=like.device, dtype=like.dtype)[:, None] * frequency
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn channel pairs (i, i + half) by the angle of their position."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin

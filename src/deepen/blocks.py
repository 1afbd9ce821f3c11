"""The plain parts of a Transformer, as functions: attention, rotary positions, dropout masks.

Nothing recurrent and no parameters. Attention comes in two forms, over a mask and over the edges of one
large graph; a test holds them against each other, gradients included.
"""

from collections.abc import Callable
from functools import cache
from math import inf, log, prod
from random import Random
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from deepen.layout import Blocks, EdgeList

ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu_,
    "gelu": torch.ops.aten.gelu_,
}
"""In place."""


class Attention(nn.Module):
    """The parameters of multi-head self-attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)


class FeedForward(nn.Module):
    """The parameters of W2 activation(W1 x + b1) + b2."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(width, hidden)
        self.leave = nn.Linear(hidden, width)


def first(x: Tensor, num: int) -> Tensor:
    """The first `num` positions of (B, L, ...). All of them is no slice, whose gradient would be a copy."""
    return x if num == x.shape[1] else x[:, :num]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, drop: Tensor | None) -> Tensor:
    """softmax(Q K^T + M) V over (B, H, L, D / H); the queries are already divided by sqrt(D / H).

    M is added, or says where attention is allowed. `drop` multiplies the attention weights, which the fused
    kernel cannot.
    """
    if drop is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
    scores = query @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill_(~mask, -inf) if mask.dtype == torch.bool else scores.add_(mask)
    return (scores.softmax(dim=-1) * drop) @ value


class _Rearranged(torch.autograd.Function):
    """Rows `take` of x. The gradient of each row of x stands in row `give` of the result's, or is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, take: Tensor, give: Tensor | None) -> Tensor:
        ctx.num = len(x)
        ctx.save_for_backward(take, give)
        return x.index_select(0, take)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        take, give = ctx.saved_tensors
        if give is not None:
            return gradient.index_select(0, give), None, None
        return gradient.new_zeros(ctx.num, gradient.shape[1]).index_copy_(0, take, gradient), None, None


def _rearrange(x: Tensor, take: Tensor, give: Tensor | None) -> Tensor:
    apply: Callable[..., Tensor] = _Rearranged.apply
    return apply(x, take, give)


def into_slots(x: Tensor, blocks: Blocks) -> Tensor:
    """Nodes (N, C) of the row, or its first ones, to (B, S, C); a slot without a node holds another's."""
    num = len(x)
    S = blocks.num_slots[num]
    take = blocks.places[:, :S].clamp(max=num - 1)
    # No attention goes from or to a slot without a node, so that its gradient is 0 and can be left out.
    give = blocks.owner[:num] * S + blocks.slot[:num]
    return _rearrange(x, take.flatten(), give).view(*take.shape, -1)


def from_slots(x: Tensor, blocks: Blocks, num: int) -> Tensor:
    """Slots (B, S, C) to the first `num` nodes of the row, (num, C)."""
    take = blocks.owner[:num] * x.shape[1] + blocks.slot[:num]
    return _rearrange(x.flatten(0, 1), take, None)


def attend_over_edges(
    query: Tensor, key_value: Tensor, edges: EdgeList, drop: Tensor | None = None
) -> Tensor:
    """The same for the first nodes of an edge list: linear in the number of edges.

    Queries are (nodes, H, D / H), keys and values (N, 2, H, D / H).
    """
    num, used = len(query), 0
    parts, places = [], []
    for bucket in edges.buckets:
        here = num if len(edges.buckets) == 1 else int(torch.searchsorted(bucket.nodes, num))
        nodes, sources, present = bucket.nodes[:here], bucket.sources[:here], bucket.present[:here]
        near = key_value.index_select(0, sources.flatten()).view(*sources.shape, *key_value.shape[1:])
        key, value = near.permute(2, 0, 3, 1, 4)  # (nodes, H, in-neighbours, D / H) each
        shape = (here, query.shape[1], 1, sources.shape[1])
        cut = None if drop is None else drop[used : used + prod(shape)].view(shape)
        used += prod(shape)
        asking = query if here == num else query[nodes]
        parts.append(attend(asking[:, :, None], key, value, present[:, None, None], cut).squeeze(2))
        places.append(nodes)
    return parts[0] if len(parts) == 1 else torch.cat(parts)[torch.cat(places).argsort()]


def sharpness(num_in: Tensor, crowd: int) -> Tensor:
    """max(1, log n / log crowd) for a node with n in-neighbours.

    With scores that are s apart, one neighbour among n gets the weight 1 / (1 + (n - 1) exp(-s)), which
    vanishes as n grows. With scores s log n / log crowd apart it is 1 / (1 + (n - 1) n^(-s / log crowd)):
    an s that tells one neighbour from `crowd` others tells it from any number of them.
    """
    return (num_in.clamp(min=1).to(torch.float32).log() / log(crowd)).clamp(min=1.0)


def rotary_table(channels: int, base: float, share: float, place: Tensor) -> Tensor:
    """exp(i m base^(-j / n)) for place m and pair j of the n that turn, a share of all; 1 for the others.

    Places (L,) to (L, channels / 2).
    """
    half = channels // 2
    num = round(share * half)
    pair = torch.arange(num, device=place.device, dtype=place.dtype)
    angle = torch.zeros(len(place), half, device=place.device, dtype=place.dtype)
    angle[:, :num] = place[:, None] * base ** (-pair / max(num, 1))
    return torch.polar(torch.ones_like(angle), angle)


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    """Turn the channel pairs (2j, 2j + 1) of (..., L, H, channels) by the angle of their position."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotary[..., None, :]).flatten(-2)


def pairs_together(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of a projection so that channels j and j + half of each head stand side by side."""
    half = len(weight) // heads // 2
    return weight.view(heads, 2, half, -1).transpose(1, 2).reshape(weight.shape)


def dropout_strip(num: int, dropout: float, like: Tensor) -> Tensor:
    """Zeros with chance `dropout`, else 1 / (1 - dropout): a supply that masks are cut from.

    Drawing a mask costs more than the products it stands between. So random numbers, 16 bits each, are
    drawn once an update, a quarter more than the largest mask needs, and every mask is another window.
    """
    length = num + num // 4 + 4096
    bits = torch.empty((length + 3) // 4, dtype=torch.int64, device=like.device).random_(-(2**63), None)
    threshold = round(dropout * 2**16) - 2**15
    if threshold == 2**15:  # as good as everything; no number of 16 bits is as large
        return torch.zeros(length, dtype=like.dtype, device=like.device)
    keeps = (bits.view(torch.int16)[:length] >= threshold).to(like.dtype)
    return keeps.mul_(1 / (1 - dropout))


def dropout_mask(strip: Tensor, shape: tuple[int, ...], t: int, place: int) -> Tensor:
    """The mask of one place in step t: a window whose offset is the same whenever it is asked for."""
    num = prod(shape)
    offset = _offset(t, place, len(strip) - num)
    return strip[offset : offset + num].view(shape)


@cache
def _offset(t: int, place: int, largest: int) -> int:
    """Drawn, since a formula would give some places or steps the same window."""
    return Random(f"{t}/{place}").randrange(largest)

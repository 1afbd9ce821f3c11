"""One thinking step: the paper's shared block, and four ingredients it lacks.

    input      x  = H + e_t + R H(0)                          depth embedding, recall
    attention  x' = x + g_attn * MHSA(LN(x), M)               LayerScale g
    candidate  C  = x' + g_ffn * FFN(LN(x'))
    gate       z  = sigmoid([C; H] W_z + b_z)
    update     H <- LN(z * C + (1 - z) * H) + noise           state norm, state noise in training

Each ingredient is a config field that can be switched off. With recall, state norm and state noise
off this is the paper's core ("The Invariant Reasoning Core"); without a gate the update is C itself.

`Core` holds the parameters. `Core.prepare` folds into the weights what is the same at every step (the
norms' scales and shifts, LayerScale, 1 / sqrt(D / H)); the `Step` it returns is what is taken T times.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepen.blocks import (
    ACTIVATIONS,
    Attention,
    FeedForward,
    attend,
    attend_over_edges,
    dropout_mask,
    dropout_strip,
    first,
    from_slots,
    into_slots,
    pairs_together,
    rotate,
)
from deepen.config import CoreConfig
from deepen.fused import Weights, update
from deepen.layout import Blocks, EdgeList
from deepen.shapes import Scene, State

Affine = Callable[[Tensor], Tensor]
"""x W^T + b."""
Pack = Callable[[Tensor, Tensor | None], Affine]
"""Weight and bias to the product that uses them."""


def float32(weight: Tensor, bias: Tensor | None) -> Affine:
    """The product as it is."""
    return partial(F.linear, weight=weight, bias=bias)


class Core(nn.Module):
    """The parameters of the shared step; nothing is remembered on the module."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__()
        width = config.width
        self.config = config
        self.depth = nn.Embedding(config.depth_rows, width) if config.depth_rows else None
        self.recall = nn.Linear(width, width, bias=False) if config.recall else None
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.attention_scale = _layer_scale(config)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, config.feedforward)
        self.feedforward_scale = _layer_scale(config)
        self.gate = nn.Linear(2 * width, width) if config.gate_bias is not None else None
        self.state_norm = nn.LayerNorm(width) if config.state_norm else None

    def forward(self, state: State, scene: Scene, t: int) -> State:
        """H(t-1) to H(t), every position; t counts from 1."""
        step = self.prepare()
        return step(state, step.enter(scene), t, state.hidden.shape[1])

    def prepare(self, pack: Pack = float32) -> "Step":
        """The step with everything folded into its weights; gradients flow through the folding."""
        out, out_bias = _scaled(self.attention.out, self.attention_scale)
        enter, enter_bias = _after_norm(self.feedforward.enter, self.feedforward_norm)
        leave, leave_bias = _scaled(self.feedforward.leave, self.feedforward_scale)
        width = self.config.width
        gate, gate_bias = (None, None) if self.gate is None else (self.gate.weight, self.gate.bias)
        return Step(
            config=self.config,
            training=self.training,
            depth=None if self.depth is None else self.depth.weight,
            recall=None if self.recall is None else self.recall.weight,
            query_key_value=pack(*self._query_key_value()),
            weights=Weights(out, out_bias, enter, enter_bias, leave, leave_bias, gate, gate_bias),
            out=pack(out, out_bias),
            enter_feedforward=pack(enter, enter_bias),
            leave_feedforward=pack(leave, leave_bias),
            gate_candidate=None if gate is None else pack(gate[:, :width], gate_bias),
            gate_before=None if gate is None else pack(gate[:, width:], None),
            state_norm=self.state_norm,
        )

    def _query_key_value(self) -> tuple[Tensor, Tensor]:
        """The joint projection; channels that rotary positions turn together stand side by side."""
        heads, width = self.config.heads, self.config.width
        folded = []
        for whole in _after_norm(self.attention.query_key_value, self.attention_norm):
            query, key, value = whole.chunk(3)
            query = query / sqrt(width // heads)
            folded.append(torch.cat([pairs_together(query, heads), pairs_together(key, heads), value]))
        weight, bias = folded
        return weight, bias


@dataclass(frozen=True, kw_only=True)
class Step:
    """step(state, scene, t, num) -> state: H(t) of the first `num` positions."""

    config: CoreConfig
    training: bool
    depth: Tensor | None
    recall: Tensor | None
    query_key_value: Affine
    weights: Weights
    out: Affine
    enter_feedforward: Affine
    leave_feedforward: Affine
    gate_candidate: Affine | None
    gate_before: Affine | None
    state_norm: Affine | None

    def enter(self, scene: Scene) -> Scene:
        """Add to the scene what is the same at every step: the recalled input, the random numbers."""
        if self.recall is not None:
            scene = replace(scene, recalled=F.linear(scene.first, self.recall))
        if self.training:
            B, L, D = scene.first.shape
            num_scores = B * L * L if scene.graphs is None else scene.graphs.num_scores
            largest = max(B * L * max(D, self.config.feedforward), self.config.heads * num_scores)
            chances = {self.config.dropout, self.config.attention_dropout} - {0.0}
            strips = {chance: dropout_strip(largest, chance, like=scene.first) for chance in sorted(chances)}
            scene = replace(scene, strips=strips)
        return scene

    def __call__(self, state: State, scene: Scene, t: int | Tensor, num: int) -> State:
        """H(t-1) to H(t); t counts from 1, and outside training may be several that broadcast to (B, L)."""
        x, mixed = self.attend(state, scene, t, num)
        return self.think(x, mixed, first(state.hidden, num), scene, t)

    def attend(self, state: State, scene: Scene, t: int | Tensor, num: int) -> tuple[Tensor, Tensor]:
        """Of the first `num` positions the step's input x, and what they attend to."""
        x = state.hidden
        if self.depth is not None:
            last = len(self.depth) - 1
            x = x + self.depth[min(t - 1, last) if isinstance(t, int) else (t - 1).clamp(max=last)]
        if scene.recalled is not None:
            x = x + first(scene.recalled, x.shape[1])
        mixed = self._attend(F.layer_norm(x, x.shape[-1:]), scene, t, num)
        return first(x, num), mixed

    def think(self, x: Tensor, mixed: Tensor, before: Tensor, scene: Scene, t: int | Tensor) -> State:
        """All that follows the attention, for any positions (B, L, D)."""
        sizes = self.config.width, self.config.feedforward, self.config.width
        masks = [
            self._mask(scene, self.config.dropout, (*x.shape[:2], size), t, place)
            for place, size in enumerate(sizes, start=1)
        ]
        if torch.is_grad_enabled():
            after, z = update(x, mixed, before, self.config.activation, masks, self.weights)
        else:
            after, z = self._update(x, mixed, before, *masks)
        if self.state_norm is not None:
            after = self.state_norm(after)
        if self.training and self.config.state_noise:
            after = after + self.config.state_noise * torch.randn_like(after)
        return State(hidden=after, gate=z)

    def _attend(self, x: Tensor, scene: Scene, t: int | Tensor, num: int) -> Tensor:
        """Multi-head self-attention of the first `num` positions, before its output map."""
        B, L, D = x.shape
        heads, graphs = self.config.heads, scene.graphs
        projected = self.query_key_value(x)
        if scene.sharpness is not None:
            query, others = torch.split(projected, [D, 2 * D], dim=-1)
            projected = torch.cat([query * scene.sharpness[:L, None], others], dim=-1)
        if isinstance(graphs, EdgeList):
            query, key_value = torch.split(projected.view(L, 3, heads, D // heads), [1, 2], dim=1)
            drop = self._mask(scene, self.config.attention_dropout, (heads * graphs.num_scores,), t, place=0)
            return attend_over_edges(query[:num, 0], key_value, graphs, drop).view(B, num, D)
        rows, num_rows = projected, num
        if isinstance(graphs, Blocks):
            rows, num_rows = into_slots(projected[0], graphs), graphs.num_slots[num]
        rows = rows.view(*rows.shape[:2], 3, heads, D // heads)
        if scene.rotary is None:
            query, key, value = rows.unbind(2)
        else:
            query_key, value = torch.split(rows, [2, 1], dim=2)
            query, key = rotate(query_key, scene.rotary[:L, None]).unbind(2)
            value = value.squeeze(2)
        query, key, value = (part.transpose(1, 2) for part in (first(query, num_rows), key, value))
        mask = None if scene.mask is None else scene.mask[:, :, :num_rows, : key.shape[2]]
        shape = (*query.shape[:3], key.shape[2])
        drop = self._mask(scene, self.config.attention_dropout, shape, t, place=0)
        mixed = attend(query, key, value, mask, drop).transpose(1, 2).flatten(2)
        return from_slots(mixed, graphs, num)[None] if isinstance(graphs, Blocks) else mixed

    def _update(
        self, x: Tensor, mixed: Tensor, before: Tensor, *masks: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """All that follows the attention; `Update` in fused.py is the same with a gradient of its own."""
        after_out, after_activation, after_leave = masks
        x = _dropped(self.out(mixed), after_out).add_(x)
        thought = self.enter_feedforward(F.layer_norm(x, x.shape[-1:]))
        thought = _dropped(ACTIVATIONS[self.config.activation](thought), after_activation)
        candidate = _dropped(self.leave_feedforward(thought), after_leave).add_(x)
        if self.gate_candidate is None or self.gate_before is None:
            return candidate, None
        z = self.gate_candidate(candidate).add_(self.gate_before(before)).sigmoid_()
        return torch.lerp(before, candidate, z), z  # z * candidate + (1 - z) * before

    def _mask(
        self, scene: Scene, chance: float, shape: tuple[int, ...], t: int | Tensor, place: int
    ) -> Tensor | None:
        if chance not in scene.strips:
            return None
        assert isinstance(t, int)
        return dropout_mask(scene.strips[chance], shape, t, place)


def _layer_scale(config: CoreConfig) -> nn.Parameter | None:
    return None if config.layer_scale is None else nn.Parameter(torch.empty(config.width))


def _after_norm(linear: nn.Linear, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """W (a x + b) + c = (W a) x + (W b + c)."""
    return linear.weight * norm.weight, torch.addmv(linear.bias, linear.weight, norm.bias)


def _scaled(linear: nn.Linear, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """g (W x + c) = (g W) x + g c."""
    if scale is None:
        return linear.weight, linear.bias
    return scale[:, None] * linear.weight, scale * linear.bias


def _dropped(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask

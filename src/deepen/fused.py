"""The part of a training step behind the attention, as one operation with a gradient of its own.

    x' = x + drop(A W_o + b_o)
    C  = x' + drop(drop(activation(LN(x') W_1 + b_1)) W_2 + b_2)
    z  = sigmoid(C W_c + H W_h + b_z)
    H <- z * C + (1 - z) * H

Left to the framework's own gradients, a small model spends as long on keeping books of a hundred little
operations a step as on its matrix products. Here they are half as many, in place where nobody looks any
more. `Step._update` in core.py is the readable twin, and what inference uses.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

EPSILON = 1e-5  # of LayerNorm


class Weights(NamedTuple):
    """Matrices are (out, in); the gate's is [W_c; W_h] side by side."""

    out: Tensor
    out_bias: Tensor
    enter: Tensor
    enter_bias: Tensor
    leave: Tensor
    leave_bias: Tensor
    gate: Tensor | None
    gate_bias: Tensor | None


class Update(torch.autograd.Function):
    """(x, A, H) -> (H, z), each (B, L, D); the masks hold 0 or 1 / (1 - chance), None without dropout."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mixed: Tensor,
        before: Tensor,
        activation: str,
        mask_out: Tensor | None,
        mask_thought: Tensor | None,
        mask_leave: Tensor | None,
        *weights: Any,  # as in Weights; the framework takes tensors, not records of them
    ) -> tuple[Tensor, Tensor | None]:
        w = Weights(*weights)
        shape, width = x.shape, x.shape[-1]
        x, mixed, before = _flat(x), _flat(mixed), _flat(before)
        masks = [None if mask is None else _flat(mask) for mask in (mask_out, mask_thought, mask_leave)]
        middle = _residual(x, torch.addmm(w.out_bias, mixed, w.out.t()), masks[0])
        normed, mean, rstd = torch.native_layer_norm(middle, [width], None, None, EPSILON)
        entered = torch.addmm(w.enter_bias, normed, w.enter.t())
        thought = entered.relu_() if activation == "relu" else F.gelu(entered)
        if masks[1] is not None:
            thought = thought * masks[1]
        candidate = _residual(middle, torch.addmm(w.leave_bias, thought, w.leave.t()), masks[2])
        after, z = candidate, None
        if w.gate is not None and w.gate_bias is not None:
            z = torch.addmm(w.gate_bias, before, w.gate[:, width:].t())
            z = z.addmm_(candidate, w.gate[:, :width].t()).sigmoid_()
            after = torch.lerp(before, candidate, z)
        ctx.activation, ctx.shape = activation, shape
        kept = (mixed, before, middle, normed, mean, rstd, entered, thought, candidate, z)
        ctx.save_for_backward(*kept, *masks, *weights)
        if z is None:
            return after.view(shape), None
        z = z.view(shape)
        ctx.mark_non_differentiable(z)
        return after.view(shape), z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_after: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # asked for once: segments make it anew each time
        mixed, before, middle, normed, mean, rstd, entered, thought, candidate, z = saved[:10]
        mask_out, mask_thought, mask_leave = saved[10:13]
        w = Weights(*saved[13:])
        width = middle.shape[1]
        d_candidate = d_after = _flat(d_after)
        d_before = d_gate = d_gate_bias = None
        if z is not None and w.gate is not None:
            d_candidate = d_after * z
            d_before = d_after - d_candidate
            d_z = torch.ops.aten.sigmoid_backward((candidate - before).mul_(d_after), z)
            d_gate = torch.cat([d_z.t() @ candidate, d_z.t() @ before], dim=1)
            d_gate_bias = d_z.sum(dim=0)
            d_candidate.addmm_(d_z, w.gate[:, :width])
            d_before.addmm_(d_z, w.gate[:, width:])
        d_branch = _masked(d_candidate, mask_leave)
        d_leave, d_leave_bias = d_branch.t() @ thought, d_branch.sum(dim=0)
        d_thought = d_branch @ w.leave
        if mask_thought is not None:
            d_thought.mul_(mask_thought)
        if ctx.activation == "relu":
            d_entered = torch.ops.aten.threshold_backward(d_thought, entered, 0)
        else:
            d_entered = torch.ops.aten.gelu_backward(d_thought, entered)
        d_enter, d_enter_bias = d_entered.t() @ normed, d_entered.sum(dim=0)
        d_middle = torch.ops.aten.native_layer_norm_backward(
            d_entered @ w.enter, middle, [width], mean, rstd, None, None, [True, False, False]
        )[0].add_(d_candidate)
        d_branch = _masked(d_middle, mask_out)
        d_out, d_out_bias = d_branch.t() @ mixed, d_branch.sum(dim=0)
        d_inputs = (d_middle.view(ctx.shape), (d_branch @ w.out).view(ctx.shape))
        d_weights = (d_out, d_out_bias, d_enter, d_enter_bias, d_leave, d_leave_bias, d_gate, d_gate_bias)
        d_before = None if d_before is None else d_before.view(ctx.shape)
        return (*d_inputs, d_before, None, None, None, None, *d_weights)


def update(
    x: Tensor,
    mixed: Tensor,
    before: Tensor,
    activation: str,
    masks: Sequence[Tensor | None],
    weights: Weights,
) -> tuple[Tensor, Tensor | None]:
    """`Update`, typed."""
    apply: Callable[..., tuple[Tensor, Tensor | None]] = Update.apply
    return apply(x, mixed, before, activation, *masks, *weights)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _residual(x: Tensor, branch: Tensor, mask: Tensor | None) -> Tensor:
    return branch.add_(x) if mask is None else torch.addcmul(x, branch, mask)


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask

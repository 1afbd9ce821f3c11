"""The plain way: what a good engineer writes in an afternoon from the paper, and no faster.

A stock encoder layer (graph) or a hand-written block with rotary positions (logic, family) in a Python
loop; every question padded to the largest size of its task; dropout drawn anew at each step; one full
unroll for each cell of a grid. It is correct, it takes the weights of a Deepen model and gives the same
answers (tests/test_model.py), and it is what the benchmarks measure Deepen against.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepen.config import CoreConfig, ModelConfig
from deepen.shapes import Encoded

LARGEST = {"graph": 20, "logic": 128, "family": 128}  # nodes or tokens, as published


class PlainBatch:
    """Questions padded to the largest size of their task."""

    def __init__(self, encoded: Sequence[Encoded], labels: Sequence[bool], size: int) -> None:
        num = len(encoded)
        self.tokens = torch.zeros(num, size, dtype=torch.long)
        self.valid = torch.zeros(num, size, dtype=torch.bool)
        self.adjacency = torch.zeros(num, size, size, dtype=torch.bool)
        self.query = torch.zeros(num, 2, dtype=torch.long)
        self.labels = torch.tensor(labels, dtype=torch.float32)
        for row, question in enumerate(encoded):
            length = len(question.tokens)
            self.tokens[row, :length] = torch.from_numpy(question.tokens)
            self.valid[row, :length] = True
            if question.edges is not None and question.query is not None:
                start, end = torch.from_numpy(question.edges).T
                self.adjacency[row, end, start] = True
                self.query[row] = torch.tensor(question.query)


class PlainGraph(nn.Module):
    """The published graph model: a stock pre-norm encoder layer under an adjacency mask, and a gate."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        core = config.core
        self.heads = core.heads
        self.embedding = nn.Embedding(config.perception.vocabulary, core.width)
        self.roles = nn.Parameter(torch.randn(2, core.width) * config.perception.role_scale)
        self.norm = nn.LayerNorm(core.width)
        self.dropout = nn.Dropout(core.dropout)
        self.depth = nn.Embedding(core.depth_rows or 1, core.width)
        self.layer = nn.TransformerEncoderLayer(
            core.width,
            core.heads,
            core.feedforward,
            core.dropout,
            activation=core.activation,
            norm_first=True,
            batch_first=True,
        )
        self.gate = nn.Linear(2 * core.width, core.width)
        self.readout = _readout(core, num_positions=2)

    def forward(self, batch: PlainBatch, num_steps: int) -> Tensor:
        rows = torch.arange(len(batch.tokens))
        hidden = self.embedding(batch.tokens)
        roles = torch.zeros_like(hidden)
        roles[rows, batch.query[:, 0]] += self.roles[0]
        roles[rows, batch.query[:, 1]] += self.roles[1]
        hidden = self.dropout(self.norm(hidden + roles))
        allowed = batch.adjacency | torch.eye(hidden.shape[1], dtype=torch.bool)
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))
        mask = mask.repeat_interleave(self.heads, dim=0)
        for step in range(num_steps):
            candidate = self.layer(hidden + self.depth.weight[step], src_mask=mask)
            z = torch.sigmoid(self.gate(torch.cat([candidate, hidden], dim=-1)))
            hidden = z * candidate + (1 - z) * hidden
        source, target = hidden[rows, batch.query[:, 0]], hidden[rows, batch.query[:, 1]]
        return self.readout(torch.cat([source, target], dim=-1)).squeeze(-1)


class PlainSequence(nn.Module):
    """The published logic and family model: an own block with rotary positions, LayerScale and a gate."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        core = config.core
        self.embedding = nn.Embedding(config.perception.vocabulary, core.width)
        self.norm = nn.LayerNorm(core.width)
        self.dropout = nn.Dropout(core.dropout)
        self.depth = nn.Embedding(core.depth_rows or 1, core.width)
        self.block = PlainBlock(core, config.perception.rotary_base)
        self.gate = nn.Linear(2 * core.width, core.width)
        self.readout = _readout(core, num_positions=1)

    def forward(self, batch: PlainBatch, num_steps: int) -> Tensor:
        hidden = self.dropout(self.norm(self.embedding(batch.tokens)))
        return self.readout(self.think(hidden, batch.valid, num_steps)[:, 0]).squeeze(-1)

    def think(self, hidden: Tensor, valid: Tensor, num_steps: int) -> Tensor:
        """The core alone, T steps."""
        for step in range(num_steps):
            candidate = self.block(hidden + self.depth.weight[step], valid)
            z = torch.sigmoid(self.gate(torch.cat([candidate, hidden], dim=-1)))
            hidden = z * candidate + (1 - z) * hidden
        return hidden


class PlainBlock(nn.Module):
    """Pre-norm attention with rotary positions and a feed-forward layer, each with LayerScale."""

    def __init__(self, core: CoreConfig, rotary_base: float) -> None:
        super().__init__()
        self.heads = core.heads
        self.rotary_base = rotary_base
        self.attention_norm = nn.LayerNorm(core.width)
        self.query_key_value = nn.Linear(core.width, 3 * core.width)
        self.out = nn.Linear(core.width, core.width)
        self.attention_scale = nn.Parameter(torch.full((core.width,), core.layer_scale or 1.0))
        self.feedforward_norm = nn.LayerNorm(core.width)
        self.feedforward = nn.Sequential(
            nn.Linear(core.width, core.feedforward),
            nn.GELU(),
            nn.Dropout(core.dropout),
            nn.Linear(core.feedforward, core.width),
        )
        self.feedforward_scale = nn.Parameter(torch.full((core.width,), core.layer_scale or 1.0))
        self.dropout = nn.Dropout(core.dropout)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        )
        query, key = self.rotate(query), self.rotate(key)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=valid[:, None, None, :])
        attended = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        x = x + self.attention_scale * self.dropout(attended)
        return x + self.feedforward_scale * self.dropout(self.feedforward(self.feedforward_norm(x)))

    def rotate(self, x: Tensor) -> Tensor:
        length, channels = x.shape[-2:]
        frequency = self.rotary_base ** (-torch.arange(0, channels, 2) / channels)
        angle = torch.arange(length)[:, None] * frequency
        first, second = x.chunk(2, dim=-1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _readout(core: CoreConfig, num_positions: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(num_positions * core.width),
        nn.Linear(num_positions * core.width, core.width),
        nn.GELU(),
        nn.Dropout(core.dropout),
        nn.Linear(core.width, 1),
    )


def names(ours: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a published Deepen model by the names they have here."""
    of = dict(ours.named_parameters())
    same = {
        "embedding.weight": "perception.tokens.weight",
        "roles": "perception.roles",
        "norm.weight": "perception.norm.weight",
        "norm.bias": "perception.norm.bias",
        "depth.weight": "core.depth.weight",
        "gate.weight": "core.gate.weight",
        "gate.bias": "core.gate.bias",
        "readout.0.weight": "readout.norm.weight",
        "readout.0.bias": "readout.norm.bias",
        "readout.1.weight": "readout.hidden.weight",
        "readout.1.bias": "readout.hidden.bias",
        "readout.4.weight": "readout.logit.weight",
        "readout.4.bias": "readout.logit.bias",
        "block.attention_scale": "core.attention_scale",
        "block.feedforward_scale": "core.feedforward_scale",
    }
    for kind in ("weight", "bias"):
        same |= {
            f"layer.self_attn.in_proj_{kind}": f"core.attention.query_key_value.{kind}",
            f"layer.self_attn.out_proj.{kind}": f"core.attention.out.{kind}",
            f"layer.linear1.{kind}": f"core.feedforward.enter.{kind}",
            f"layer.linear2.{kind}": f"core.feedforward.leave.{kind}",
            f"layer.norm1.{kind}": f"core.attention_norm.{kind}",
            f"layer.norm2.{kind}": f"core.feedforward_norm.{kind}",
            f"block.query_key_value.{kind}": f"core.attention.query_key_value.{kind}",
            f"block.out.{kind}": f"core.attention.out.{kind}",
            f"block.feedforward.0.{kind}": f"core.feedforward.enter.{kind}",
            f"block.feedforward.3.{kind}": f"core.feedforward.leave.{kind}",
            f"block.attention_norm.{kind}": f"core.attention_norm.{kind}",
            f"block.feedforward_norm.{kind}": f"core.feedforward_norm.{kind}",
        }
    layer = "layer." if "perception.roles" in of else "block."
    return {
        mine: of[theirs]
        for mine, theirs in same.items()
        if theirs in of and (mine.startswith(layer) or not mine.startswith(("layer.", "block.")))
    }


def plain_model(config: ModelConfig) -> PlainGraph | PlainSequence:
    """The plain model of a published config."""
    return PlainGraph(config) if config.perception.kind == "topological" else PlainSequence(config)


def twin(ours: nn.Module, config: ModelConfig) -> PlainGraph | PlainSequence:
    """The plain model with the weights of a published Deepen model."""
    plain = plain_model(config)
    plain.load_state_dict({name: parameter.detach() for name, parameter in names(ours).items()})
    return plain

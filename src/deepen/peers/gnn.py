"""The graph network: every layer takes the mean over in-neighbours and the node itself.

    x' = x + drop(GELU(W mean of LN(x) over in-neighbours and itself))
    H  = x' + drop(FFN(LN(x')))

One layer sees one edge further, and layers have weights of their own, so that as many hops can be
crossed as there are layers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepen.blocks import FeedForward, attend_over_edges, first, from_slots, into_slots
from deepen.config import ModelConfig
from deepen.core import Pack, float32
from deepen.layout import Blocks, EdgeList
from deepen.peers.transformer import Layers, Stack
from deepen.shapes import Scene, State


class GraphLayer(nn.Module):
    """The parameters of one layer."""

    def __init__(self, width: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.mean_norm = nn.LayerNorm(width)
        self.mean = nn.Linear(width, width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, feedforward)
        self.dropout = nn.Dropout(dropout)


@dataclass(frozen=True)
class GraphStep:
    """H(t-1) to H(t) through one layer."""

    layer: GraphLayer

    def enter(self, scene: Scene) -> Scene:
        return scene

    def __call__(self, state: State, scene: Scene, t: int, num: int) -> State:
        layer = self.layer
        mixed = mean_of_neighbours(layer.mean_norm(state.hidden), scene.graphs, num)
        x = first(state.hidden, num) + layer.dropout(F.gelu(layer.mean(mixed)))
        thought = layer.dropout(F.gelu(layer.feedforward.enter(layer.feedforward_norm(x))))
        return State(hidden=x + layer.dropout(layer.feedforward.leave(thought)))


def mean_of_neighbours(x: Tensor, graphs: Blocks | EdgeList | None, num: int) -> Tensor:
    """For the first `num` nodes of the row (1, L, D): the mean over in-neighbours and the node itself."""
    if isinstance(graphs, EdgeList):
        # Attention with equal scores is a mean.
        nodes = x[0][:, None, None].expand(-1, 2, -1, -1)  # as keys and as values
        return attend_over_edges(torch.zeros_like(nodes[:num, 0]), nodes, graphs).view(1, num, -1)
    assert isinstance(graphs, Blocks)
    slots = into_slots(x[0], graphs)
    S = graphs.num_slots[num]
    allowed = graphs.allowed[:, :S, : slots.shape[1]].to(x.dtype)
    means = allowed @ slots / graphs.allowed[:, :S].sum(dim=-1, keepdim=True)
    return from_slots(means, graphs, num)[None]


class GraphNetwork(Stack):
    """Mean layers."""

    def make_core(self, config: ModelConfig) -> nn.ModuleList:
        assert config.stack is not None
        core = config.core
        return nn.ModuleList(
            GraphLayer(core.width, core.feedforward, core.dropout) for _ in range(config.stack.layers)
        )

    def prepare(self, pack: Pack = float32) -> Layers:
        return Layers([GraphStep(layer) for layer in self.core if isinstance(layer, GraphLayer)])

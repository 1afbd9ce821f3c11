"""The fixed-depth Transformer: layers with weights of their own, taken once each.

    H(t) = block_t(H(t-1)) for t = 1 .. number of layers

A layer is the shared step of core.py without gate and depth embedding. Steps beyond the last layer
change nothing: this model cannot be given more time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from deepen.blocks import first
from deepen.config import ModelConfig
from deepen.core import Core, Pack, float32
from deepen.model import Model, Step
from deepen.shapes import Scene, State
from deepen.unroll import Fixed, HaltingRule


@dataclass(frozen=True)
class Layers:
    """One step after the other; the random numbers of the first serve all."""

    layers: Sequence[Step]

    def enter(self, scene: Scene) -> Scene:
        return self.layers[0].enter(scene)

    def __call__(self, state: State, scene: Scene, t: int, num: int) -> State:
        if t > len(self.layers):
            return State(hidden=first(state.hidden, num))
        return self.layers[t - 1](state, scene, t, num)


class Stack(Model):
    """What fixed-depth models share: their number of steps."""

    core: nn.ModuleList

    @property
    def least_steps(self) -> int:
        return len(self.core)

    def halting(self, most: int) -> HaltingRule:
        return Fixed(len(self.core))


class FixedDepth(Stack):
    """Attention layers."""

    def make_core(self, config: ModelConfig) -> nn.ModuleList:
        assert config.stack is not None
        return nn.ModuleList(Core(config.core) for _ in range(config.stack.layers))

    def prepare(self, pack: Pack = float32) -> Layers:
        return Layers([layer.prepare(pack) for layer in self.core if isinstance(layer, Core)])

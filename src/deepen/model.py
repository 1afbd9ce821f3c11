"""Perception, core and readout put together, and every initial value in one place.

A `Model` is what the trainer, the grid and the reasoner know: something that perceives once, takes any
step T times, and reads. `DepthRecurrent` takes one shared step; the models it is compared with, in
`peers/`, take other ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor, nn

from deepen.blocks import Attention
from deepen.config import ModelConfig
from deepen.core import Core, Pack, float32
from deepen.perception import PERCEPTIONS
from deepen.readout import Readout
from deepen.shapes import Batch, Output, Scene, State
from deepen.unroll import Convergence, Fixed, HaltingRule, unroll


class Step(Protocol):
    """A step with everything folded into its weights."""

    def enter(self, scene: Scene) -> Scene:
        """Add to the scene what is the same at every step."""
        ...

    def __call__(self, state: State, scene: Scene, t: int, num: int) -> State:
        """H(t) of the first `num` positions; t counts from 1."""
        ...


class Model(nn.Module, ABC):
    """Perceive once, take T steps, read the answer. Subclasses say what a step is."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.perception = PERCEPTIONS[config.perception.kind](config)
        self.core = self.make_core(config)
        self.readout = Readout(config.core.width, self.perception.num_read, config.core.dropout)
        num_words = config.perception.names_from if config.tells else None
        self.teller = None if num_words is None else nn.Linear(config.core.width, num_words, bias=False)
        self.initialise()

    @abstractmethod
    def make_core(self, config: ModelConfig) -> nn.Module:
        """The parameters of the steps."""

    @abstractmethod
    def prepare(self, pack: Pack = float32) -> Step:
        """The step; gradients flow through the folding."""

    def begin(self, batch: Batch, step: Step | None = None) -> tuple[Step, Scene]:
        """What an unroll needs: the prepared step, and the scene it starts from."""
        step = step or self.prepare()
        return step, step.enter(self.perception(batch))

    def seen(self, state: State) -> Tensor:
        """(B, L, D), what the readout looks at."""
        return state.hidden

    def read(self, state: State, scene: Scene) -> Tensor:
        """The logits, (questions,)."""
        logits: Tensor = self.readout(self.seen(state), scene)
        return logits

    def tell(self, state: State, scene: Scene) -> Tensor:
        """(questions, words): the logits of what would have been right to claim."""
        assert self.teller is not None
        logits: Tensor = self.teller(self.seen(state)[scene.rows[:, 0], scene.read_at[:, 0]])
        return logits

    def forward(self, batch: Batch, halt: HaltingRule, keep: Collection[int] = ()) -> Output:
        """Answer a batch; `keep` names the steps to read at besides the last."""
        step, scene = self.begin(batch)
        return unroll(step, self.read, scene, halt, keep)

    def halting(self, most: int) -> HaltingRule:
        """When this model stops by itself, at the latest after `most` steps."""
        return Convergence(most, self.config.halting_pace)

    def halting_in_training(self, num_steps: int) -> HaltingRule:
        """When it stops in an update for which T was drawn."""
        return Fixed(num_steps)

    def cost(self, output: Output, scene: Scene) -> Tensor | float:
        """What the loss adds for the way the answer was found."""
        return 0.0

    @property
    def least_steps(self) -> int:
        """A model that must take more steps than it is given takes these."""
        return 1

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @torch.no_grad()
    def initialise(self) -> None:
        """Set every tensor.

        | tensor                              | start                                        |
        |-------------------------------------|----------------------------------------------|
        | token and depth tables              | N(0, 1)                                      |
        | source and target vectors           | N(0, role_scale^2)                           |
        | query, key, value weights           | Xavier uniform over the joint (3D, D) matrix |
        | query, key, value and output biases | 0                                            |
        | other linear weights and biases     | U(-1/sqrt(fan in), 1/sqrt(fan in))           |
        | strengths of shared names           | N(0, .2^2)                                   |
        | gate bias                           | gate_bias                                    |
        | bias of the halting unit (ACT)      | halt_bias                                    |
        | LayerScale                          | layer_scale                                  |
        | LayerNorm weight, bias              | 1, 0                                         |
        """
        config = self.config
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight)
            elif isinstance(module, nn.Linear):
                bound = 1 / sqrt(module.in_features)
                nn.init.uniform_(module.weight, -bound, bound)
                if module.bias is not None:
                    nn.init.uniform_(module.bias, -bound, bound)
            elif isinstance(module, nn.LayerNorm):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, Attention):
                nn.init.xavier_uniform_(module.query_key_value.weight)
                nn.init.zeros_(module.query_key_value.bias)
                nn.init.zeros_(module.out.bias)
        for name, parameter in self.named_parameters():
            if name == "perception.roles":
                nn.init.normal_(parameter, std=config.perception.role_scale)
            elif name == "perception.names":
                nn.init.normal_(parameter, std=0.2)
            elif name == "core.gate.bias" and config.core.gate_bias is not None:
                nn.init.constant_(parameter, config.core.gate_bias)
            elif name == "core.halt.bias" and config.act is not None:
                nn.init.constant_(parameter, config.act.halt_bias)
            elif name.endswith("_scale") and config.core.layer_scale is not None:
                nn.init.constant_(parameter, config.core.layer_scale)


class DepthRecurrent(Model):
    """The depth-recurrent Transformer: one shared step."""

    core: Core

    def make_core(self, config: ModelConfig) -> Core:
        return Core(config.core)

    def prepare(self, pack: Pack = float32) -> Step:
        return self.core.prepare(pack)

    def flop_per_step(self, num_rows: int, length: int) -> int:
        """Operations of the matrix products in one step over `num_rows` rows of `length` positions."""
        core = self.config.core
        D = core.width
        a_position = 2 * D * (4 * D + 2 * core.feedforward + (2 * D if core.gate_bias is not None else 0))
        return num_rows * length * (a_position + 4 * length * D)

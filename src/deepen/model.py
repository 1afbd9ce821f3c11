"""Perception, core and readout put together, and every initial value in one place."""

from collections.abc import Collection
from math import sqrt

import torch
from torch import nn

from deepen.config import ModelConfig
from deepen.core import Core, Step
from deepen.perception import PERCEPTIONS
from deepen.readout import Readout
from deepen.shapes import Batch, Output, Scene
from deepen.unroll import HaltingRule, unroll


class DepthRecurrent(nn.Module):
    """The depth-recurrent Transformer: perceive once, think T times, read the answer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.perception = PERCEPTIONS[config.perception.kind](config)
        self.core = Core(config.core)
        self.readout = Readout(config.core.width, self.perception.num_read, config.core.dropout)
        self.initialise()

    def forward(self, batch: Batch, halt: HaltingRule, keep: Collection[int] = ()) -> Output:
        """Answer a batch; `keep` names the steps to read at besides the last."""
        step, scene = self.begin(batch)
        return unroll(step, self.readout, scene, halt, keep)

    def begin(self, batch: Batch, step: Step | None = None) -> tuple[Step, Scene]:
        """What an unroll needs: the prepared step, and the scene it starts from."""
        step = step or self.core.prepare()
        return step, step.enter(self.perception(batch))

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def flop_per_step(self, num_rows: int, length: int) -> int:
        """Operations of the matrix products in one step over `num_rows` rows of `length` positions."""
        core = self.config.core
        D = core.width
        a_position = 2 * D * (4 * D + 2 * core.feedforward + (2 * D if core.gate_bias is not None else 0))
        return num_rows * length * (a_position + 4 * length * D)

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
        | gate bias                           | gate_bias                                    |
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
        attention = self.core.attention
        nn.init.xavier_uniform_(attention.query_key_value.weight)
        nn.init.zeros_(attention.query_key_value.bias)
        nn.init.zeros_(attention.out.bias)
        for name, parameter in self.named_parameters():
            if name == "perception.roles":
                nn.init.normal_(parameter, std=config.perception.role_scale)
            elif name == "core.gate.bias" and config.core.gate_bias is not None:
                nn.init.constant_(parameter, config.core.gate_bias)
            elif name.endswith("_scale") and config.core.layer_scale is not None:
                nn.init.constant_(parameter, config.core.layer_scale)

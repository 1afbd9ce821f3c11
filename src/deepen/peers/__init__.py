"""The models compared against, each in one file, and what builds a model from its config."""

from deepen.config import ModelConfig
from deepen.model import DepthRecurrent, Model
from deepen.peers.act import AdaptiveTime
from deepen.peers.gnn import GraphNetwork
from deepen.peers.transformer import FixedDepth


def build(config: ModelConfig) -> Model:
    """The model that a config describes, with its initial values."""
    if config.act is not None:
        return AdaptiveTime(config)
    if config.stack is not None:
        return (GraphNetwork if config.stack.mixing == "mean" else FixedDepth)(config)
    return DepthRecurrent(config)

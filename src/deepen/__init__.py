"""Deepen: depth-recurrent Transformers that think deeper instead of longer."""

from deepen.config import ConfigError, RunConfig
from deepen.grid import Grid, measure
from deepen.presets import get_preset
from deepen.reasoner import Answer, Reasoner, load
from deepen.runs import Run, RunError
from deepen.tasks import Example, QuestionError, examples
from deepen.train import TrainingError, train

__all__ = [
    "Answer",
    "ConfigError",
    "Example",
    "Grid",
    "QuestionError",
    "Reasoner",
    "Run",
    "RunConfig",
    "RunError",
    "TrainingError",
    "examples",
    "get_preset",
    "load",
    "measure",
    "train",
]

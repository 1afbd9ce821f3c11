"""Deepen: depth-recurrent Transformers that think deeper instead of longer."""

from deepen.audit import Audit, audit
from deepen.client import Client, ServerError
from deepen.config import ConfigError, GridConfig, RunConfig
from deepen.grid import Grid, measure
from deepen.presets import get_preset
from deepen.reasoner import Answer, Reasoner, load
from deepen.runs import Run, RunError
from deepen.tasks import Example, QuestionError, examples
from deepen.train import TrainingError, train

__all__ = [
    "Answer",
    "Audit",
    "Client",
    "ConfigError",
    "Example",
    "Grid",
    "GridConfig",
    "QuestionError",
    "Reasoner",
    "Run",
    "RunConfig",
    "RunError",
    "ServerError",
    "TrainingError",
    "audit",
    "examples",
    "get_preset",
    "load",
    "measure",
    "train",
]

"""Shared helpers: the one tolerance, small configs, the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deepen.batches import collate
from deepen.config import RunConfig, changed
from deepen.presets import get_preset
from deepen.shapes import Batch
from deepen.tasks import Example, get_task

THREE = ("graph", "logic", "family")
ROOT = Path(__file__).resolve().parents[1]
torch.set_num_threads(1)  # the suite runs in as many processes as there are cores


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Equal up to float32 noise."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def tiny(task: str, preset: str = "paper", **changes: object) -> RunConfig:
    """A preset shrunk until it trains in about a second."""
    small = {
        "model__core__width": 16,
        "model__core__heads": 2,
        "model__core__feedforward": 32,
        "data__batch": 8,
        "train__updates": 40,
        "grid__num_examples": 6,
    }
    if preset == "paper":
        small["data__train_set"] = 64
    return changed(get_preset(task, preset), **{**small, **changes})


def batch_of(task: str, examples: list[Example]) -> Batch:
    encode = get_task(task).encode
    return collate([encode(one.question) for one in examples], [one.label for one in examples])


def deepen(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "deepen", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def spelled(row, tokens):
    """The words of a phrase that have a name."""
    return [tokens[word] for word in row if 0 < word < len(tokens)]

"""Training: schedules, the same bits after any kill, and errors that leave everything intact."""

import json
import os
import signal
import subprocess
import sys
import time
from math import cos, pi

import pytest
import torch
from conftest import batch_of, changed, tiny

from deepen.config import ConfigError
from deepen.model import DepthRecurrent
from deepen.runs import Run, RunError, load_model
from deepen.tasks import examples
from deepen.train import TrainingError, learning_rate, train, training_loss

TASKS = ("graph", "logic", "family")


def test_cosine_falls_from_the_first_update_to_zero():
    config = changed(tiny("logic"), train__updates=100, train__lr=0.5).train
    for update in (0, 17, 50, 99):
        assert learning_rate(config, update) == pytest.approx(0.25 * (1 + cos(pi * update / 100)))


def test_one_cycle_is_the_frameworks_one_cycle():
    config = changed(tiny("graph", "frontier"), train__updates=1000, train__lr=0.5).train
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    stock = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.5, total_steps=1000)
    for update in range(1000):
        assert learning_rate(config, update) == pytest.approx(stock.get_last_lr()[0], abs=2e-3)
        optimiser.step()
        if update < 999:
            stock.step()


@pytest.mark.parametrize("task", TASKS)
def test_training_learns_a_small_set_by_heart(task):
    config = tiny(
        task,
        model__core__width=32,
        model__core__layer_scale=None,
        model__core__dropout=0.0,
        model__core__attention_dropout=0.0,
        data__train_set=16,
        train__updates=200,
        train__steps=(2, 3),
        train__lr=5e-3,
    )
    losses = []
    path = pytest.importorskip("pathlib").Path(os.environ["PYTEST_TMP"]) if "PYTEST_TMP" in os.environ else None
    del path
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", watch=lambda update, loss, accuracy: losses.append(loss))
    assert sum(losses[-20:]) / 20 < 0.1 < 0.5 < losses[0]

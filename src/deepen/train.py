"""train(config) -> run: AdamW on a stream of batches, resumable to the same bits.

Every random draw of update u (its batch, its T, dropout, noise) is a function of (seed, u), and the
learning rate is a function of u. So a checkpoint is weights, optimiser moments and u, nothing else.
"""

import time
import warnings
from collections.abc import Callable
from math import cos, isfinite, pi
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from deepen.batches import Stream, drawn, encode, lesson
from deepen.config import ConfigError, RunConfig, TrainConfig
from deepen.loss import blended_loss, known_within, told_loss
from deepen.model import Model
from deepen.peers import build
from deepen.runs import Progress, Run, RunError, provenance, usable_device
from deepen.shapes import Batch, Output
from deepen.tasks import Split, Task, get_task
from deepen.unroll import Fixed, unroll, unroll_in_segments

ROW_EVERY = 20  # updates averaged in one row of metrics.jsonl
START_RATE, END_RATE = 1 / 25, 1e-4  # one-cycle: first and last rate, relative to the largest


class TrainingError(RuntimeError):
    """Training cannot go on; the message says why and where the last good checkpoint is."""


Watcher = Callable[[int, float, float], None]
"""Told after each update: how many are done, the loss, the accuracy."""


def train(
    config: RunConfig,
    path: str | Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    watch: Watcher = lambda update, loss, accuracy: None,
    checkpoint_seconds: float = 30.0,
) -> Run:
    """Train to the end and leave a complete run folder; with `resume`, go on where it was killed."""
    target = usable_device(device)
    _check(config)
    run = Run(Path(path))
    if run.exists and not resume:
        raise RunError(f"{path} already holds a run: continue it with --resume, or choose another folder")
    with run.alone():
        if not run.exists:
            run.create(config)
        elif run.config.run_id != config.run_id:
            raise RunError(f"{path} holds run {run.config.run_id}, which has another config than this one")
        _warn_if_elsewhere(run)
        torch.manual_seed(config.seed)
        model = build(config.model).to(target).train()
        optimiser = torch.optim.AdamW(
            model.parameters(),
            lr=config.train.lr,
            betas=(0.9, config.train.memory),
            weight_decay=config.train.weight_decay,
            fused=True,
        )
        progress = run.load_checkpoint(model, optimiser)
        if progress.update < config.train.updates:
            _train(config, run, model, optimiser, progress, target, watch, checkpoint_seconds)
        run.save_weights(model)
    return run


def _warn_if_elsewhere(run: Run) -> None:
    """Sums of floats depend on the number of threads and on the library's version."""
    described, here = run.description(), provenance()
    for part, name in (("machine", "threads"), ("libraries", "torch")):
        if described[part][name] != here[part][name]:
            warnings.warn(
                f"{run.path} began with {name} {described[part][name]}, this is {here[part][name]}:"
                " the result will not be the same to the last bit",
                stacklevel=3,
            )


def _train(
    config: RunConfig,
    run: Run,
    model: Model,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    device: torch.device,
    watch: Watcher,
    checkpoint_seconds: float,
) -> None:
    began = saved_at = time.monotonic()
    began -= run.rewind_metrics(progress.update)
    last_checkpoint = progress.update
    stream = Stream(config)
    while progress.update < config.train.updates:
        rate = learning_rate(config.train, progress.update)
        for group in optimiser.param_groups:
            group["lr"] = rate
        batch = stream[progress.update].to(device)
        loss, output = training_loss(model, batch, config, progress.update)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.clip)
        if not (isfinite(loss.item()) and isfinite(norm.item())):
            kept = (
                f"the checkpoint of update {last_checkpoint} is intact"
                if last_checkpoint
                else "nothing was kept"
            )
            raise TrainingError(
                f"update {progress.update + 1}: loss {loss.item()}, gradient norm {norm.item()};"
                f" {kept} in {run.path}; a smaller --train.lr may help"
            )
        now = time.monotonic()
        if now - saved_at >= checkpoint_seconds:
            # Before the step: these weights have just shown that they give a finite loss.
            run.save_checkpoint(progress, model, optimiser)
            saved_at, last_checkpoint = now, progress.update
        optimiser.step()

        progress.update += 1
        progress.losses.append(loss.item())
        right = (output.answer > 0) == (batch.labels > 0.5)
        progress.accuracies.append(right.float().mean().item())
        watch(progress.update, progress.losses[-1], progress.accuracies[-1])
        if progress.update % ROW_EVERY == 0 or progress.update == config.train.updates:
            run.append_metrics(
                {
                    "update": progress.update,
                    "loss": sum(progress.losses) / len(progress.losses),
                    "accuracy": sum(progress.accuracies) / len(progress.accuracies),
                    "lr": rate,
                    "seconds": round(time.monotonic() - began, 2),
                }
            )
            progress.losses.clear()
            progress.accuracies.clear()
    run.save_checkpoint(progress, model, optimiser)


def training_loss(model: Model, batch: Batch, config: RunConfig, update: int) -> tuple[Tensor, Output]:
    """One draw of T, the unroll, and the loss (paper, "Training Step with Silent Thinking")."""
    seed, num_steps, rng = drawn(config, update)
    torch.manual_seed(seed)
    step, scene = model.begin(batch)
    start, taken = None, 0
    if rng.random() < config.train.detached_start * update / config.train.updates:
        taken = rng.randint(1, config.train.steps[1])
        with torch.no_grad():
            start = unroll(step, model.read, scene, Fixed(taken), ahead=num_steps).state
    keep = range(1, num_steps + 1) if config.train.alpha else ()
    if config.train.segment:
        segment = config.train.segment
        output = unroll_in_segments(
            step, model.read, scene, num_steps, segment, keep, start=start, taken=taken
        )
    else:
        halt = model.halting_in_training(num_steps)
        output = unroll(step, model.read, scene, halt, keep, start=start, taken=taken)
    logits = output.logits if config.train.alpha else output.answer[:, None]
    labels = batch.labels
    if config.train.alpha and config.train.step_labels == "within":
        assert batch.difficulty is not None
        steps = taken + torch.tensor(output.steps, device=labels.device)
        labels = known_within(labels, batch.difficulty, steps)
    loss = blended_loss(logits, labels, config.train.alpha) + model.cost(output, scene)
    if batch.words is not None:
        loss = loss + told_loss(model.tell(output.state, scene), batch.words)
    return loss, output


def learning_rate(config: TrainConfig, update: int) -> float:
    """The rate of one update, counted from 0."""
    done = update / config.updates
    if config.schedule == "cosine":
        return config.lr * _cosine(1.0, 0.0, done)
    rising = config.warm_up
    if done < rising:
        return config.lr * _cosine(START_RATE, 1.0, done / rising)
    return config.lr * _cosine(1.0, END_RATE, (done - rising) / (1 - rising))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + cos(pi * share)) / 2


def _check(config: RunConfig) -> None:
    """Find what would fail later, before anything is written."""
    task = get_task(config.task)
    low, high = config.data.difficulties
    trained = [("train", config.data.distribution, difficulty) for difficulty in range(low, high + 1)]
    tested = [("test", config.grid.distribution, difficulty) for difficulty in config.grid.difficulties]
    for split, distribution, difficulty in trained + tested:
        try:
            if split == "test":
                task.source(distribution)
            example = task.example(distribution, cast(Split, split), config.seed, difficulty, 0)
            encode(task, example.question, config.model.perception)
        except ValueError as error:
            raise ConfigError(f"bad config: {error}") from None
    if config.model.tells:
        _check_words(config, task)


def _check_words(config: RunConfig, task: Task) -> None:
    """A model that tells which word would have been right needs one for every word, and lessons with some."""
    names_from = config.model.perception.names_from
    if names_from is None or names_from < task.num_words:
        raise ConfigError(
            f"bad config: model.tells: task '{task.name}' has {task.num_words} words,"
            f" so model.perception.names_from must be at least that, not {names_from}"
        )
    if not any(word for index in range(32) for word in lesson(config, index).words):
        raise ConfigError(f"bad config: model.tells: lessons of '{task.name}' know yes and no, no other word")

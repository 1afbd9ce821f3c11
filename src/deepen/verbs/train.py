"""deepen train: a preset, changed by flags, to a run folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import tyro

from deepen.config import (
    ConfigError,
    DataConfig,
    GridConfig,
    ModelConfig,
    PresetName,
    RunConfig,
    TaskName,
    TrainConfig,
    parse_config,
)
from deepen.console import errors_in_one_line, fail, say
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.train import train

RUNS = Path("runs")


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """Train a model from a preset, changed by any of the flags below; leaves a run folder."""

    task: tyro.conf.Positional[TaskName]
    """What to learn."""
    preset: PresetName
    """Where the config starts: the published protocol, or the best this project knows."""
    seed: int
    """Decides the training examples, the initial weights and every random draw."""
    config: Path | None = None
    """A JSON file with a complete config (a run's config.json will do) instead of a preset."""
    out: Path | None = None
    """The run folder; by default runs/TASK-PRESET-seedN-ID."""
    resume: bool = False
    """Continue a run that was killed; ends in the same bits as one that was not."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    grid: GridConfig


def train_verb(arguments: Sequence[str]) -> None:
    default = _train_default(arguments)
    with errors_in_one_line("train"):
        command = tyro.cli(
            TrainCommand,
            prog="deepen train",
            args=arguments,
            default=default,
            config=(tyro.conf.AvoidSubcommands,),
        )
    config = RunConfig(
        task=command.task,
        preset=command.preset,
        seed=command.seed,
        model=command.model,
        data=command.data,
        train=command.train,
        grid=command.grid,
    )
    path = command.out or RUNS / config.run_name
    with Bar("training", config.train.updates) as bar:
        mean_loss = mean_accuracy = None

        def watch(update: int, loss: float, accuracy: float) -> None:
            nonlocal mean_loss, mean_accuracy
            # Running means: single batches jump too much to read.
            mean_loss = loss if mean_loss is None else 0.95 * mean_loss + 0.05 * loss
            mean_accuracy = accuracy if mean_accuracy is None else 0.95 * mean_accuracy + 0.05 * accuracy
            bar.show(update, f"loss {mean_loss:.3f}  accuracy {mean_accuracy:.3f}")

        try:
            run = train(config, path, device=command.device, resume=command.resume, watch=watch)
        except KeyboardInterrupt:
            fail(f"interrupted; the same command with --resume continues {path}", code=130)
    say(f"trained {config.train.updates} updates in {run.seconds:.0f} s; next: deepen grid {path}")
    print(path)


def _train_default(arguments: Sequence[str]) -> TrainCommand:
    """What the flags change: the preset or the file that the command names."""

    @dataclass(frozen=True)
    class Start:
        task: tyro.conf.Positional[TaskName]
        preset: PresetName | None = None
        seed: int = 0
        config: Path | None = None

    plain = [argument for argument in arguments if argument not in ("-h", "--help")]
    start = Start("graph")
    if plain:
        # The task may come last; in front it cannot be taken for the value of an unknown flag.
        if plain[0].startswith("-") and plain[-1] in get_args(TaskName):
            plain.insert(0, plain.pop())
        with errors_in_one_line("train"):
            start, _ = tyro.cli(Start, prog="deepen train", args=plain, return_unknown_args=True)
    elif list(arguments) == plain:
        fail("train what? expected a task: deepen train graph|logic|family|all")
    if start.config and any(argument.split("=")[0] == "--preset" for argument in plain):
        fail("--config says which preset it came from: leave out --preset")
    preset = start.preset or ("frontier" if start.task == "all" else "paper")
    base = _read_config(start.config) if start.config else get_preset(start.task, preset, start.seed)
    if base.task != start.task:
        fail(f"{start.config} is a config for '{base.task}', not for '{start.task}'")
    return TrainCommand(
        task=base.task,
        preset=base.preset,
        seed=base.seed,
        model=base.model,
        data=base.data,
        train=base.train,
        grid=base.grid,
    )


def _read_config(path: Path) -> RunConfig:
    try:
        content = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    # A run's own config.json holds the config beside where it was run.
    return parse_config(
        content.get("config") if isinstance(content, dict) and "run_id" in content else content
    )

"""The command line: one verb per station.

Flags are made from the config records with tyro. Bad input ends with exit code 2 and one line on
standard error; whatever a program may read goes to standard output.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import tyro
from pydantic import ValidationError

from deepen.audit import audit
from deepen.bench import (
    SUBJECTS,
    BenchError,
    Fit,
    Row,
    bench_table,
    compete_all,
    find_names,
    fit_table,
    grow,
    num_points,
    to_json,
)
from deepen.config import (
    ConfigError,
    DataConfig,
    GridConfig,
    ModelConfig,
    PresetName,
    RunConfig,
    TaskName,
    TrainConfig,
    explain,
    parse_config,
)
from deepen.console import errors_in_one_line, fail, say
from deepen.grid import measure
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.reasoner import find, load, shipped
from deepen.report import audit_table, draw_audit, draw_contests, draw_frontier, draw_growth, sparkline, table
from deepen.runs import Run, load_model, provenance, write_atomically
from deepen.tasks import examples, get_task
from deepen.train import TrainingError, train

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


@dataclass(frozen=True, kw_only=True)
class GridCommand:
    """Measure accuracy over (difficulty x steps), write grid.json, draw frontier.png."""

    run: tyro.conf.Positional[str]
    """A run folder; or, with --out, a weights file or the name of a shipped checkpoint."""
    distribution: str | None = None
    """Which generator makes the test examples; by default as the run's config says."""
    difficulties: tuple[int, ...] | None = None
    """Rows to measure; by default as the run's config says."""
    steps: tuple[int, ...] | None = None
    """Columns to measure; by default as the run's config says."""
    num_examples: int | None = None
    """Examples for each difficulty; by default as the run's config says."""
    out: Path | None = None
    """The folder for grid.json and frontier.png; by default the run folder."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    json: bool = False
    """Print the grid as JSON instead of a table."""


@dataclass(frozen=True, kw_only=True)
class SolveCommand:
    """Answer one question; without a question, an example."""

    task: tyro.conf.Positional[TaskName]
    """What the question is about."""
    question: tyro.conf.Positional[str | None] = None
    """graph: '{"edges": [["a", "b"]], "source": "a", "target": "b"}'; logic: '!(T&F)'; family: 'Ann is the
    parent of Bo. Ann is the parent of Bo?'; - reads it from standard input."""
    steps: int | None = None
    """How long to think; by default until the state settles."""
    model: str | None = None
    """A run folder or model.safetensors; by default the checkpoint that comes with the package."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    json: bool = False
    """Print the answer as JSON."""


@dataclass(frozen=True, kw_only=True)
class AuditCommand:
    """Measure what shortcuts score on a task, write audit.json, draw audit.png."""

    task: tyro.conf.Positional[TaskName]
    """The task to audit."""
    distribution: str = "paper"
    """Which of the task's generators makes the examples."""
    train_difficulties: tuple[int, int] | None = None
    """Shortcuts are fitted on these, ends included; by default the published training range."""
    difficulties: tuple[int, ...] | None = None
    """Shortcuts are scored on these; by default the published test difficulties."""
    num_examples: int = 2000
    """Examples of each difficulty, for fitting and for scoring."""
    out: Path | None = None
    """The folder for audit.json and audit.png; by default audits/TASK-DISTRIBUTION."""
    require_certified: bool = False
    """Exit with 1 if any shortcut scores more than two points above what the certificate promises."""
    json: bool = False
    """Print the audit as JSON instead of a table."""


@dataclass(frozen=True, kw_only=True)
class BenchCommand:
    """Measure speed against the plain way and against peers; writes JSON and a picture for each subject."""

    subject: tyro.conf.Positional[Literal["all", "train", "grid", "infer", "scale"]] = "all"
    """What to measure: training, grids, inference, growth with size, or everything."""
    rounds: int = 5
    """How often the contenders take turns."""
    only: tuple[str, ...] | None = None
    """Only contests and series whose names contain one of these words."""
    out: Path = Path("bench")
    """The folder for the results."""
    json: bool = False
    """Print the results as JSON instead of tables."""


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


def grid_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("grid"):
        command = tyro.cli(GridCommand, prog="deepen grid", args=arguments)
    source = find(command.run)
    if command.out is None and not source.is_dir():
        fail(f"{command.run} is not a run folder: say with --out where grid.json and frontier.png go")
    model, config = load_model(source, command.device)
    changes = {
        name: value
        for name in ("distribution", "difficulties", "steps", "num_examples")
        if (value := getattr(command, name)) is not None
    }
    wanted = GridConfig.model_validate({**config.grid.model_dump(), **changes})
    folder = Run(command.out or source)
    _make_folder(folder.path, config.task, wanted.distribution, wanted.difficulties)
    with Bar("measuring", len(wanted.difficulties) * wanted.num_examples) as bar:
        grid = measure(model, config, wanted, watch=bar.show)
    write_atomically(folder.grid_file, grid.model_dump_json(indent=1).encode() + b"\n")
    draw_frontier(grid, folder.figure_file)
    print(grid.model_dump_json() if command.json else table(grid))
    say(f"the figures are in {folder.grid_file}, the picture is {folder.figure_file.resolve()}")


def audit_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("audit"):
        command = tyro.cli(AuditCommand, prog="deepen audit", args=arguments)
    published = get_preset(command.task, "paper")
    difficulties = command.difficulties or published.grid.difficulties
    low, high = train_difficulties = command.train_difficulties or published.data.difficulties
    if low > high:
        fail(f"--train-difficulties must be the smallest and the largest, got {low} {high}")
    if command.require_certified and not command.distribution.startswith("certified"):
        fail(f"distribution '{command.distribution}' is not certified")
    if command.num_examples < 2:
        fail(f"--num-examples must be at least 2, got {command.num_examples}")
    folder = command.out or Path("audits") / f"{command.task}-{command.distribution}"
    _make_folder(folder, command.task, command.distribution, [*range(low, high + 1), *difficulties])
    with Bar("auditing", len(difficulties)) as bar:
        found = audit(
            command.task,
            command.distribution,
            train_difficulties,
            difficulties,
            command.num_examples,
            watch=bar.show,
        )
    write_atomically(folder / "audit.json", found.model_dump_json(indent=1).encode() + b"\n")
    draw_audit(found, folder / "audit.png")
    print(found.model_dump_json() if command.json else audit_table(found))
    say(f"the figures are in {folder / 'audit.json'}, the picture is {(folder / 'audit.png').resolve()}")
    broken = [row for row in found.rows if row.breaks_its_promise]
    if command.require_certified and broken:
        fail(f"{len(broken)} shortcuts score more than the certificate promises", code=1)


def bench_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("bench"):
        command = tyro.cli(BenchCommand, prog="deepen bench", args=arguments)
    if command.rounds < 1:
        fail(f"--rounds must be at least 1, got {command.rounds}")
    subjects = SUBJECTS if command.subject == "all" else (command.subject,)
    chosen = {subject: names for subject in subjects if (names := find_names(subject, command.only))}
    if not chosen:
        known = ", ".join(name for subject in subjects for name in find_names(subject, None))
        fail(f"nothing to measure is called like {' '.join(command.only or ())} (known: {known})")
    command.out.mkdir(parents=True, exist_ok=True)
    for subject, names in chosen.items():
        _bench(subject, names, command)


def _bench(subject: str, names: Sequence[str], command: BenchCommand) -> None:
    """One subject: its results as JSON, table and picture."""
    rows: Sequence[Row] = ()
    fits: Sequence[Fit] = ()
    if subject == "scale":
        with Bar("measuring", num_points(names)) as bar:
            fits = grow(names, watch=bar.show)
    else:
        with Bar("competing", len(names) * command.rounds) as bar:
            rows = compete_all(names, command.rounds, watch=bar.show)
    file, picture = command.out / f"{subject}.json", command.out / f"{subject}.png"
    content = to_json(fits or rows, provenance())
    write_atomically(file, content)
    if fits:
        draw_growth(fits, picture)
    else:
        draw_contests(rows, picture)
    print(content.decode() if command.json else fit_table(fits) if fits else bench_table(rows))
    say(f"the figures are in {file}, the picture is {picture.resolve()}")


def solve_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("solve"):
        command = tyro.cli(SolveCommand, prog="deepen solve", args=arguments)
    if command.model is None and command.task not in shipped():
        fail(
            f"no checkpoint for '{command.task}' comes with the package: train one with"
            f" 'deepen train {command.task}' and name it with --model"
        )
    reasoner = load(command.model or command.task, command.device)
    if reasoner.task.name != command.task:
        fail(f"{command.model} is a model for '{reasoner.task.name}', not for '{command.task}'")
    question = _question(command)
    answer = reasoner.answer(question, steps=command.steps)
    if command.json:
        print(json.dumps({"question": question, **asdict(answer)}))
        return
    print(f"{'yes' if answer.label else 'no'}  (probability {answer.probability:.4f}, {answer.steps} steps)")
    print(f"after each step: {sparkline(answer.trace)}")


def _question(command: SolveCommand) -> Any:
    """The question asked, or an example, which is printed."""
    if command.question is None:
        example = examples(command.task, difficulty=5)[0]
        say(f"an example of difficulty {example.difficulty}: {json.dumps(example.question)}")
        say(f"the true answer: {'yes' if example.label else 'no'}")
        return example.question
    text = sys.stdin.read() if command.question == "-" else command.question
    return get_task(command.task).parse(text)


VERBS: dict[str, tuple[Callable[[Sequence[str]], None], str]] = {
    "train": (train_verb, "train a model from a preset: deepen train graph --preset frontier"),
    "grid": (grid_verb, "measure and draw where it solves what: deepen grid RUN"),
    "audit": (audit_verb, "measure what shortcuts score on a task: deepen audit family"),
    "bench": (bench_verb, "measure speed against the plain way: deepen bench infer"),
    "solve": (solve_verb, "ask a model a question: deepen solve graph '{...}' --steps 12"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: deepen VERB ...      (deepen VERB --help tells the rest)\n")
        for verb, (_, about) in VERBS.items():
            print(f"  {verb:6} {about}")
        return
    verb = arguments[0]
    if verb not in VERBS:
        fail(f"unknown verb '{verb}' (known: {', '.join(VERBS)})")
    try:
        VERBS[verb][0](arguments[1:])
    except (TrainingError, BenchError) as error:
        fail(str(error), code=1)
    except ValidationError as error:
        fail(explain(error))
    except (ValueError, OSError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", code=130)


def _train_default(arguments: Sequence[str]) -> TrainCommand:
    """What the flags change: the preset or the file that the command names."""

    @dataclass(frozen=True)
    class Start:
        task: tyro.conf.Positional[TaskName]
        preset: PresetName = "paper"
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
        fail("train what? expected a task: deepen train graph|logic|family")
    if start.config and any(argument.split("=")[0] == "--preset" for argument in plain):
        fail("--config says which preset it came from: leave out --preset")
    base = _read_config(start.config) if start.config else get_preset(start.task, start.preset, start.seed)
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


def _make_folder(folder: Path, task: str, distribution: str, difficulties: Sequence[int]) -> None:
    """Before long work: refuse examples that cannot be drawn, and a folder that cannot be written."""
    for difficulty in difficulties:
        examples(task, distribution, difficulty)
    folder.mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    main()

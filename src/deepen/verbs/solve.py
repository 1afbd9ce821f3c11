"""deepen solve: one question, one answer."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tyro

from deepen.config import GridConfig, TaskName
from deepen.console import errors_in_one_line, fail, say
from deepen.reasoner import load
from deepen.report import sparkline
from deepen.tasks import examples, get_task


@dataclass(frozen=True, kw_only=True)
class SolveCommand:
    """Answer one question; without a question, an example."""

    task: tyro.conf.Positional[TaskName]
    """What the question is about; all: any of these, asked of one model that knows them all."""
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


def solve_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("solve"):
        command = tyro.cli(SolveCommand, prog="deepen solve", args=arguments)
    reasoner = load(command.model or command.task, command.device)
    if reasoner.task.name != command.task:
        fail(f"{command.model} is a model for '{reasoner.task.name}', not for '{command.task}'")
    question = _question(command, reasoner.config.grid)
    answer = reasoner.answer(question, steps=command.steps)
    if command.json:
        print(json.dumps({"question": question, **asdict(answer)}))
        return
    print(f"{'yes' if answer.label else 'no'}  (probability {answer.probability:.4f}, {answer.steps} steps)")
    print(f"after each step: {sparkline(answer.trace)}")


def _question(command: SolveCommand, measured: GridConfig) -> Any:
    """The question asked, or an example of those that the model is measured on, which is printed."""
    if command.question is None:
        (example,) = examples(command.task, measured.distribution, difficulty=5, num=1)
        say(f"an example of difficulty {example.difficulty}: {json.dumps(example.question)}")
        say(f"the true answer: {'yes' if example.label else 'no'}")
        return example.question
    text = sys.stdin.read() if command.question == "-" else command.question
    return get_task(command.task).parse(text)

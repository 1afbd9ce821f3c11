"""deepen reproduce: one piece of the paper's evidence, from nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from deepen.config import PaperTask
from deepen.console import errors_in_one_line, fail, say
from deepen.evidence import PIECES
from deepen.evidence.pages import judged
from deepen.evidence.piece import TASKS, Budget, Distribution, Plan, read_evidence
from deepen.evidence.reproduce import reproduce
from deepen.evidence.tables import claims_table, comparison_table


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand:
    """Train what is missing, measure it, and hold it against the published figures."""

    piece: tyro.conf.Positional[str]
    """Which table or figure; 'deepen reproduce list' names them."""
    budget: Budget = "cpu"
    """smoke: under a minute, to see it work; cpu: what two cores can do, from minutes to some hours a piece;
    paper: the published budget. All can be interrupted, and go on where they were."""
    distribution: Distribution = "paper"
    """The published examples, or the certified ones, which no shortcut answers."""
    seeds: tuple[int, ...] | None = None
    """Seeds to train; by default 42 43 44, and 42 alone on texts and certified examples unless the budget is
    paper. Controls and what is ablated after training use the first."""
    tasks: tuple[PaperTask, ...] = TASKS
    """The tasks, where a piece has several."""
    runs: Path = Path("runs")
    """The folder of run folders; finished runs in it are used again."""
    out: Path | None = None
    """The folder for the rows and the picture; by default experiments/PIECE."""
    json: bool = False
    """Print the rows as JSON instead of tables."""


def reproduce_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("reproduce"):
        command = tyro.cli(ReproduceCommand, prog="deepen reproduce", args=arguments)
    if command.piece == "list":
        for name, piece in PIECES.items():
            print(f"{name:18} {piece.title}")
        return
    if command.piece not in PIECES:
        fail(f"unknown piece '{command.piece}' (known: {', '.join(PIECES)})")
    piece = PIECES[command.piece]
    tasks = tuple(task for task in command.tasks if task in piece.tasks)
    if piece.tasks and not tasks:
        asked = " or ".join(command.tasks) or "nothing"
        fail(f"{piece.name} is about {', '.join(piece.tasks)}, not about {asked}")
    if not piece.tasks and command.distribution != "paper":
        fail(f"{piece.name} asks no questions: it has no {command.distribution} ones")
    if not piece.tasks and command.seeds is not None:
        fail(f"{piece.name} trains nothing: it has no seeds")
    plan = Plan(
        budget=command.budget,
        distribution=command.distribution,
        seeds=command.seeds,
        tasks=tasks or TASKS,
    )
    out = command.out or Path("experiments") / piece.name
    file = out / f"{plan.stem}.json"
    if file.exists() and read_evidence(file).plan == plan:
        say(f"{file} is finished, and is only shown; delete it to train and measure anew")
    evidence = reproduce(piece, plan, command.runs, out)
    if command.json:
        print(evidence.model_dump_json())
    else:
        print(f"{piece.title}\n\n{piece.table(evidence)}\n")
        if plan.distribution == "paper":  # there are no published figures on certified examples
            print(f"{comparison_table(piece.compare(evidence))}\n")
        print(claims_table(judged(piece, evidence)))
    figure = (out / f"{plan.stem}.png").resolve()
    say(f"the rows are in {out / plan.stem}.json, the picture is {figure}")

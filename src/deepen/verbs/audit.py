"""deepen audit: what shortcuts score."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from deepen.audit import audit
from deepen.config import PaperTask
from deepen.console import errors_in_one_line, fail, make_folder, say
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import audit_table, draw_audit
from deepen.runs import write_atomically


@dataclass(frozen=True, kw_only=True)
class AuditCommand:
    """Measure what shortcuts score on a task, write audit.json, draw audit.png."""

    task: tyro.conf.Positional[PaperTask]
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
    make_folder(folder, command.task, command.distribution, [*range(low, high + 1), *difficulties])
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

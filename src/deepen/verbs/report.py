"""deepen report: pages and the README's table of claims, from the stored results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from deepen.console import errors_in_one_line, fail, say
from deepen.evidence import PIECES
from deepen.evidence.pages import write_pages


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """Write the tables, verdicts and pictures of every piece that has results; trains nothing."""

    experiments: Path = Path("experiments")
    """The folder with the results, one folder a piece."""
    readme: Path | None = Path("README.md")
    """The page whose table of claims is filled in, between <!-- claims --> and <!-- /claims -->."""


def report_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("report"):
        command = tyro.cli(ReportCommand, prog="deepen report", args=arguments)
    if command.readme is not None and not command.readme.exists():
        fail(f"there is no {command.readme}; --readme None leaves it out")
    written = write_pages(PIECES, command.experiments, command.readme)
    if not written:
        fail(f"no results in {command.experiments}: make some with 'deepen reproduce NAME'")
    for page in written:
        print(page)
    say(f"{len(written)} pages written")

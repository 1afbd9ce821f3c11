"""What the command line says: one line for what went wrong, everything but results on standard error."""

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from deepen.tasks import examples


@contextlib.contextmanager
def errors_in_one_line(verb: str) -> Iterator[None]:
    """What tyro prints in a box becomes one line."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            yield
    except SystemExit as error:
        if error.code in (0, None):
            raise
        words = re.sub(r"╭.*?╮|[│╰╯─]+", " ", printed.getvalue())
        for noise in (r"\[type=.*?\]", r"For further information visit\s+\S+", r"For full helptext.*"):
            words = re.sub(noise, "", words, flags=re.DOTALL)
        fail(f"{' '.join(words.split())} (see deepen {verb} --help)")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fail(text: str, code: int = 2) -> NoReturn:
    say(f"deepen: {text}")
    sys.exit(code)


def make_folder(folder: Path, task: str, distribution: str, difficulties: Sequence[int]) -> None:
    """Before long work: refuse examples that cannot be drawn, and a folder that cannot be written."""
    for difficulty in difficulties:
        examples(task, distribution, difficulty)
    folder.mkdir(parents=True, exist_ok=True)

"""A progress bar on standard error: live in a terminal, a line now and then elsewhere."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINES = 20  # how many lines a whole job prints where there is no terminal


class Bar:
    """with Bar("training", 100) as bar: bar.show(1, "loss 0.7")."""

    def __init__(self, what: str, total: int) -> None:
        console = Console(stderr=True)
        self.what = what
        self.total = total
        self.live = console.is_terminal
        self._progress = Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            disable=not self.live,
        )
        self._job = self._progress.add_task("", total=total)
        self._done = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, done: int, note: str = "") -> None:
        """`done` of the total are finished."""
        self._progress.update(self._job, completed=done, description=note)
        if not self.live and done * LINES // self.total > self._done * LINES // self.total:
            print(f"{self.what} {done}/{self.total}  {note}".rstrip(), file=sys.stderr, flush=True)
        self._done = done

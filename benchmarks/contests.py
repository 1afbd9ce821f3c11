"""The contests of `deepen bench`: Deepen against the plain way and against what people would pick.

Contenders run in processes of their own (see deepen/bench.py); whatever they need is made before the
clock starts. They are in learning.py, thinking.py and serving.py, the series of `deepen bench scale` in
growth.py, the trials of a whole server in trials.py.
"""

from collections.abc import Callable
from functools import partial

from benchmarks.growth import GROWTH
from benchmarks.learning import GRID_EXAMPLES, grid_ours, grid_plain, train_ours, train_plain
from benchmarks.serving import SLOTS, engine, in_batches
from benchmarks.thinking import (
    B,
    L,
    T,
    core_ours,
    core_plain,
    core_x_transformers,
    depths,
    lengths_ours,
    lengths_plain,
    matrix_products,
)
from benchmarks.trials import TRIALS, draw_trials
from deepen.bench import PEAK, Contender, Contest, Work

TASKS = ("graph", "logic", "family")
OURS, PLAIN, KEPT = "deepen", "plain", "plain, memory kept"
SORTED, LARGEST = "batches sorted by T", "batches to the largest T"


def _against_plain(
    ours: Callable[[str], Callable[[], Work]], plain: Callable[[str], Callable[[], Work]], task: str
) -> dict[str, Contender]:
    return {OURS: partial(ours, task), PLAIN: partial(plain, task)}


CONTESTS: dict[str, Contest] = {
    **{
        f"train {task}": Contest(
            about=f"training on {task} at the published settings",
            unit="examples x steps",
            contenders={
                **_against_plain(train_ours, train_plain, task),
                KEPT: partial(train_plain, task, True),
            },
            rival=PLAIN,
        )
        for task in TASKS
    },
    **{
        f"grid {task}": Contest(
            about=f"the published {task} grid, {GRID_EXAMPLES[task]} examples a difficulty",
            unit="cells",
            contenders=_against_plain(grid_ours, grid_plain, task),
            rival=PLAIN,
        )
        for task in TASKS
    },
    **{
        f"infer {what}": Contest(
            about=f"the d = 256 core, {B} rows of {L} positions, {T} steps, {what}",
            unit="rows x steps",
            contenders={
                f"{OURS} float32": partial(core_ours, "float32", whole),
                f"{OURS} int8": partial(core_ours, "int8", whole),
                PLAIN: core_plain,
                KEPT: partial(core_plain, True),
                "x-transformers, tied layers": core_x_transformers,
                PEAK: matrix_products,
            },
            rival=PLAIN,
        )
        for what, whole in (("every state", True), ("to the answer", False))
    },
    **{
        f"infer {name} {task}": Contest(
            about=f"{task} questions of all published {name} difficulties, 12 steps",
            unit="answers",
            contenders={
                OURS: partial(lengths_ours, task, name == "training"),
                PLAIN: partial(lengths_plain, task, name == "training"),
                f"{OURS} int8": partial(lengths_ours, task, name == "training", "int8"),
            },
            rival=PLAIN,
        )
        for name in ("training", "test")
        for task in TASKS
    },
    **{
        f"infer depths {task}": Contest(
            about=f"{task} questions, each with its own budget of 2 to 40 steps",
            unit="answers",
            contenders={
                "each to its own budget": partial(depths, task, True),
                "all to the largest": partial(depths, task, False),
            },
            rival="all to the largest",
        )
        for task in ("graph", "logic")
    },
    **{
        f"serve {task}": Contest(
            about=f"{task} questions of 2 to 40 steps, long-tailed, {SLOTS} at a time",
            unit="answers",
            contenders={
                OURS: partial(engine, task),
                SORTED: partial(in_batches, task, True),
                LARGEST: partial(in_batches, task, False),
            },
            rival=LARGEST,
        )
        for task in ("graph", "logic")
    },
}
SERIES = GROWTH
__all__ = ["CONTESTS", "SERIES", "TRIALS", "draw_trials"]

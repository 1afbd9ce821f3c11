"""The registry of tasks. Adding a task is one file and one line here."""

from deepen.tasks.all import All
from deepen.tasks.family import Family
from deepen.tasks.graph import Graph
from deepen.tasks.logic import Logic
from deepen.tasks.task import Example, QuestionError, Split, Task

TASKS: dict[str, Task] = {task.name: task for task in (Graph(), Logic(), Family(), All())}


def get_task(name: str) -> Task:
    """A task by name."""
    if name not in TASKS:
        raise ValueError(f"unknown task '{name}' (known: {', '.join(TASKS)})")
    return TASKS[name]


def examples(
    task: str,
    distribution: str = "paper",
    difficulty: int = 3,
    seed: int = 0,
    num: int = 1,
    split: Split = "test",
) -> list[Example]:
    """The first `num` examples of one stream; questions are plain data, as `answer` takes them."""
    chosen = get_task(task)
    return [chosen.example(distribution, split, seed, difficulty, index) for index in range(num)]


__all__ = ["TASKS", "Example", "QuestionError", "Split", "Task", "examples", "get_task"]

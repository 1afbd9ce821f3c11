"""Load a trained model and ask it questions.

A `Reasoner` takes questions as plain data, thinks for a given number of steps or until its state has
settled, and returns for each the probability after every step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from deepen.batches import encode, in_batches
from deepen.config import RunConfig
from deepen.core import Pack, float32
from deepen.model import Model
from deepen.packed import int8
from deepen.parallel import in_parallel, num_workers
from deepen.runs import RunError, load_model
from deepen.shapes import Batch, Encoded
from deepen.tasks import QuestionError, get_task
from deepen.unroll import Fixed, HaltingRule, unroll

Precision = Literal["float32", "int8"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a model thinks of one question."""

    probability: float
    """Of "yes", after the last step."""
    label: bool
    """Yes or no."""
    steps: int
    """Thinking steps taken."""
    trace: list[float]
    """The probability after each step."""


class Reasoner:
    """A trained model that answers questions of its task."""

    def __init__(self, model: Model, config: RunConfig, precision: Precision = "float32") -> None:
        self.model = model.eval()
        self.config = config
        self.task = get_task(config.task)
        with torch.inference_mode():
            self.step = self.model.prepare(_pack(model, precision))

    def answer(self, question: Any, steps: int | None = None) -> Answer:
        """Answer one question in `steps` steps; None: until the state settles."""
        return self.answer_many([question], steps)[0]

    def answer_many(
        self, questions: Sequence[Any], steps: int | Iterable[int | None] | None = None
    ) -> list[Answer]:
        """Answer questions of any mix of sizes, in order; `steps` is for all of them, or one for each."""
        budgets = _budgets(steps, len(questions))
        encoded = [self.encode(question, place) for place, question in enumerate(questions)]
        answers: dict[int, Answer] = {}
        for halts_itself in (False, True):
            chosen = [place for place, budget in enumerate(budgets) if (budget is None) == halts_itself]
            # A question that halts by itself is still cut off, at a depth that depends on its own size.
            limits = [self.limit(budgets[place], encoded[place]) for place in chosen]
            found = self._think([encoded[place] for place in chosen], limits, halts_itself)
            answers |= zip(chosen, found, strict=True)
        return [answers[place] for place in range(len(questions))]

    def most_steps(self, encoded: Encoded) -> int:
        """Where a question that never settles is cut off: twice its size and a little."""
        return 2 * len(encoded.tokens) + 16

    def limit(self, budget: int | None, encoded: Encoded) -> int:
        """The most steps it takes, given a budget or not."""
        return max(budget or self.most_steps(encoded), self.model.least_steps)

    def encode(self, question: Any, place: int = 0) -> Encoded:
        """A question as numbers that this model knows; an error names its place among several."""
        try:
            return encode(self.task, question, self.config.model.perception)
        except QuestionError as error:
            raise QuestionError(f"question {place}: {error}" if place else str(error)) from None

    def _think(self, encoded: list[Encoded], limits: list[int], halts_itself: bool) -> list[Answer]:
        device = next(self.model.parameters()).device
        widest = self.config.model.core.feedforward

        def answers_of(batch_at: tuple[list[int], Batch]) -> list[tuple[int, Answer]]:
            places, batch = batch_at
            step, scene = self.model.begin(batch.to(device), self.step)
            own = torch.tensor([limits[place] for place in places], device=device)
            most = int(own.max())
            halt: HaltingRule = self.model.halting(most) if halts_itself else Fixed(most)
            own = own.clamp(max=halt.max_steps)
            output = unroll(step, self.model.read, scene, halt, range(1, most + 1), limits=own)
            traces = output.logits.sigmoid().tolist()
            taken = output.num_steps.tolist()
            return [
                (place, _answer(trace[:num])) for place, trace, num in zip(places, traces, taken, strict=True)
            ]

        batches = in_batches(encoded, [False] * len(encoded), widest, limits, num_workers(device))
        found = in_parallel(answers_of, batches, device)
        answers = dict(pair for pairs in found for pair in pairs)
        return [answers[place] for place in range(len(encoded))]


def _answer(trace: list[float]) -> Answer:
    return Answer(probability=trace[-1], label=trace[-1] > 0.5, steps=len(trace), trace=trace)


def _pack(model: Model, precision: Precision) -> Pack:
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got '{precision}'")
    if precision == "int8" and next(model.parameters()).device.type != "cpu":
        raise ValueError("precision 'int8' needs the device 'cpu'")
    return int8 if precision == "int8" else float32


def _budgets(steps: int | Iterable[int | None] | None, num: int) -> list[int | None]:
    """One budget for each question, checked."""
    each = list(steps) if isinstance(steps, Iterable) and not isinstance(steps, str) else [steps] * num
    if len(each) != num:
        raise ValueError(f"steps has {len(each)} entries for {num} questions")
    return [None if budget is None else _budget(budget) for budget in each]


def _budget(steps: object) -> int:
    if isinstance(steps, bool) or not isinstance(steps, Integral) or steps < 1:
        raise ValueError(f"steps must be a whole number of at least 1, or None, got {steps!r}")
    return int(steps)


def shipped() -> dict[str, Path]:
    """The checkpoints that come with the package, by name."""
    folder = Path(str(files("deepen"))) / "checkpoints"
    return {file.stem: file for file in sorted(folder.glob("*.safetensors"))}


def find(name: str | Path) -> Path:
    """Where a model is: a shipped checkpoint by name, a run folder, or a weights file."""
    path = shipped()[name] if isinstance(name, str) and name in shipped() else Path(name)
    if not path.exists():
        raise RunError(
            f"no run folder or weights file '{name}', and no shipped checkpoint of that name"
            f" (shipped: {', '.join(shipped()) or 'none'})"
        )
    return path


def load(name: str | Path, device: str = "cpu", precision: Precision = "float32") -> Reasoner:
    """A reasoner: a shipped checkpoint by name, a run folder, or a weights file.

    `precision` "int8" thinks with weights of one byte, faster on a CPU and almost as exactly; inputs are
    rounded by the range of their batch, so that its probabilities depend a little on the company.
    """
    return Reasoner(*load_model(find(name), device), precision)

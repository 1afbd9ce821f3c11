"""Requests and answers of the server as records, and what stands behind them: models, each with an engine.

No web framework here: a request goes in as a record, questions go to the engine, errors have a type and
a sentence. Limits are checked before anything is computed.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, Self

import torch
from pydantic import Field, model_validator

from deepen.config import Range, Record
from deepen.engine import Ask, Engine, FullError, Numbers
from deepen.grid import Grid
from deepen.reasoner import Answer, Reasoner, find, load, shipped
from deepen.remote import RemoteEngine
from deepen.runs import Run
from deepen.shapes import Encoded
from deepen.tasks.all import task_of
from deepen.thinkers import Lanes

EXAMPLES: dict[str, Any] = {
    "graph": {"edges": [["a", "b"], ["b", "c"], ["d", "a"]], "source": "d", "target": "c"},
    "logic": "!((T&F)|(!(T|F)))",
    "family": {
        "facts": ["Alice is the parent of Bob", "Bob is the child of Carol"],
        "query": "Alice is the sibling of Carol",
    },
}
EXAMPLES["all"] = EXAMPLES["family"]  # who knows all tasks can be asked about any


class Limits(Record):
    """The most that one request may ask for."""

    body_bytes: int = Field(default=2**20, ge=1)
    """Bytes of a request."""
    body_seconds: float = Field(default=10.0, gt=0)
    """Seconds in which all of it must have arrived."""
    questions: int = Field(default=256, ge=1)
    """Questions in a list."""
    steps: int = Field(default=1_000, ge=1)
    """Thinking steps for a question."""
    nodes: int = Field(default=2_000, ge=2)
    """Nodes of a graph."""
    edges: int = Field(default=20_000, ge=1)
    """Edges of a graph."""
    symbols: int = Field(default=512, ge=1)
    """Characters of an expression."""
    facts: int = Field(default=64, ge=1)
    """Facts about a family."""
    phrases: int = Field(default=512, ge=1)
    """Phrases of a question, for a model that reads phrases: each looks at every other."""


class AnswerRequest(Record):
    """One question, or several."""

    model: str | None = None
    """Which model to ask; may be left out if there is only one for questions of this form."""
    question: Any = None
    """A question, as plain data."""
    questions: list[Any] | None = None
    """Several of them, instead of one."""
    steps: int | None = Field(default=None, ge=1)
    """How many steps to think; null: until the state settles."""
    halt: bool | None = None
    """Whether to stop as soon as the state has settled; by default only without `steps`."""
    deadline_ms: float | None = Field(default=None, gt=0, le=3_600_000)
    """Milliseconds after which nobody waits for the answer any more."""
    trace: bool = False
    """Whether the answer has the probability after each step."""
    stream: bool = False
    """Whether to send the probability after each step at once, as server-sent events."""

    @model_validator(mode="after")
    def _one_or_several(self) -> Self:
        if (self.question is None) == (self.questions is None):
            raise ValueError("a request has either 'question' or 'questions'")
        return self

    @property
    def every_question(self) -> list[Any]:
        return [self.question] if self.questions is None else self.questions


class AnswerRecord(Record):
    """What a model thinks of one question."""

    probability: float
    """Of "yes", after the last step."""
    label: bool
    """Yes or no."""
    steps: int
    """Thinking steps taken."""
    trace: list[float] | None
    """The probability after each step, if asked for."""

    @classmethod
    def of(cls, answer: Answer, trace: bool) -> Self:
        return cls(
            probability=answer.probability,
            label=answer.label,
            steps=answer.steps,
            trace=answer.trace if trace else None,
        )


class AnswerResponse(Record):
    """The answers, in the order of the questions."""

    model: str
    answers: list[AnswerRecord]


class ModelRecord(Record):
    """A model that can be asked."""

    name: str
    task: str
    preset: str
    parameters: int
    difficulty_name: str
    """What difficulty counts: hops, depth."""
    train_difficulties: Range
    train_steps: Range
    has_grid: bool
    """Whether it is known where it solves what."""


class ModelsResponse(Record):
    """All models, and what may be asked of them at once."""

    models: list[ModelRecord]
    limits: Limits


class ErrorBody(Record):
    type: str
    message: str


class ErrorResponse(Record):
    """What went wrong, in one sentence."""

    error: ErrorBody


class RequestError(ValueError):
    """A request that makes no sense."""


class LimitError(ValueError):
    """More than a request may ask for."""


class UnknownModelError(ValueError):
    """A model that is not served."""


class Answers(Protocol):
    """Who answers questions, in the event loop: an engine in another process."""

    slots: int
    most_waiting: int
    is_open: bool
    has_died: bool

    def refusal(self) -> FullError | None: ...

    def numbers(self) -> Numbers: ...

    async def start(self) -> None: ...

    def submit(self, asks: Sequence[Ask]) -> None: ...

    def refuse(self) -> None: ...

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model with its engine."""

    name: str
    reasoner: Reasoner
    engine: Answers
    grid: Grid | None

    def record(self) -> ModelRecord:
        config = self.reasoner.config
        return ModelRecord(
            name=self.name,
            task=config.task,
            preset=config.preset,
            parameters=self.reasoner.model.num_parameters,
            difficulty_name=self.reasoner.task.difficulty_name,
            train_difficulties=config.data.difficulties,
            train_steps=config.train.steps,
            has_grid=self.grid is not None,
        )

    def asks(self, request: AnswerRequest, limits: Limits) -> list[Ask]:
        """The questions of a request, ready for the engine; raises if one is malformed or too large."""
        questions = request.every_question
        _check("questions", len(questions), limits.questions)
        _check("steps", request.steps or 0, limits.steps)
        if not questions:
            raise RequestError("'questions' is an empty list")
        deadline = None if request.deadline_ms is None else monotonic() + request.deadline_ms / 1000
        halts = request.steps is None if request.halt is None else request.halt
        asks = []
        for place, question in enumerate(questions):
            check_size(question, limits)
            encoded = self.reasoner.encode(question, place)
            if self.reasoner.config.model.perception.kind == "phrases":
                _check("phrases", len(encoded.tokens), limits.phrases)
            asks.append(
                Ask(
                    encoded=encoded,
                    limit=self._limit(request, encoded, halts, limits),
                    settles=halts,
                    deadline=deadline,
                    trace=[] if request.trace else None,
                )
            )
        return asks

    def _limit(self, request: AnswerRequest, encoded: Encoded, halts: bool, limits: Limits) -> int:
        if request.steps is None and not halts:
            raise RequestError("with 'halt' false a request needs 'steps'")
        return min(self.reasoner.limit(request.steps, encoded), limits.steps)


def check_size(question: Any, limits: Limits) -> None:
    """Refuse a question that is too large; a malformed one passes, and is refused where it is read."""
    if isinstance(question, str):
        _check("symbols", len(question), limits.symbols)
    if isinstance(question, Mapping):
        for key, most in (("edges", limits.edges), ("nodes", limits.nodes), ("facts", limits.facts)):
            if isinstance(part := question.get(key), Sequence):
                _check(key, len(part), most)
        if isinstance(edges := question.get("edges"), Sequence) and 2 * len(edges) > limits.nodes:
            names = {repr(name) for edge in edges if isinstance(edge, Sequence) for name in edge}
            _check("nodes", len(names), limits.nodes)


def _check(what: str, num: int, most: int) -> None:
    if num > most:
        raise LimitError(f"{num} {what} are more than this server takes, which is {most}")


class Service:
    """All models that are served, by name."""

    def __init__(self, served: Sequence[Served], limits: Limits) -> None:
        self.by_name = {one.name: one for one in served}
        # A list that is longer than the queue would never be taken.
        longest = min([limits.questions, *(one.engine.most_waiting for one in served)])
        self.limits = limits.model_copy(update={"questions": longest})

    def find(self, name: str | None, asked: Sequence[Any] = ()) -> Served:
        """A model by name; without one, the only one for questions of such a form, or for those of every."""
        known = ", ".join(self.by_name)
        if name is None:
            fitting = list(self.by_name)
            if len(fitting) > 1 and asked:
                tasks = {task_of(question).name for question in asked}
                fitting = (self._of_task(tasks.pop()) if len(tasks) == 1 else []) or self._of_task("all")
            if len(fitting) != 1:
                raise UnknownModelError(f"name a 'model': {known}")
            (name,) = fitting
        if name not in self.by_name:
            raise UnknownModelError(f"no model '{name}' here (there is {known})")
        return self.by_name[name]

    def _of_task(self, task: str) -> list[str]:
        return [name for name, one in self.by_name.items() if one.reasoner.task.name == task]

    def models(self) -> ModelsResponse:
        return ModelsResponse(models=[one.record() for one in self.by_name.values()], limits=self.limits)

    async def start(self) -> None:
        """Start the engines, and let each think about something: the first question pays for warming up."""
        for one in self.by_name.values():
            await one.engine.start()
            request = AnswerRequest(question=EXAMPLES[one.reasoner.config.task], steps=2)
            asks = one.asks(request, Limits())
            one.engine.submit(asks)
            await asyncio.wrap_future(asks[0].future)

    def refusal(self) -> FullError | None:
        """What a question to any model would be told if none has room for one more."""
        refusals = [one.engine.refusal() for one in self.by_name.values()]
        return (
            min((one for one in refusals if one), key=lambda one: one.retry_after) if all(refusals) else None
        )

    @property
    def is_alive(self) -> bool:
        """Whether no engine has died; a new start of the whole server brings it back."""
        return not any(one.engine.has_died for one in self.by_name.values())

    @property
    def is_open(self) -> bool:
        """Whether all engines take questions."""
        return all(one.engine.is_open for one in self.by_name.values())

    def refuse(self) -> None:
        """Take nothing new."""
        for one in self.by_name.values():
            one.engine.refuse()

    async def close(self) -> None:
        """Finish what was taken."""
        for one in self.by_name.values():
            await one.engine.close()

    def abandon(self) -> None:
        """End whatever has not ended by now."""
        for one in self.by_name.values():
            one.engine.abandon()


def open_models(
    names: Sequence[str], slots: int, most_waiting: int, device: str = "cpu", threads: int = 1
) -> list[Served]:
    """Load models, each a shipped checkpoint by name or a run folder, which is called by its own name.

    Each thinks in a process of its own, with a copy of the weights; here its questions are read.
    """
    served = []
    for name in names:
        reasoner = load(name, device)
        Lanes(reasoner)  # refuses a model that cannot be served, before any process is started
        short = name if name in shipped() else Path(name).resolve().name
        make = partial(make_engine, name, slots, device, threads)
        engine = RemoteEngine(make, slots, most_waiting, short)
        served.append(Served(name=short, reasoner=reasoner, engine=engine, grid=_grid_of(name)))
    short_names = [one.name for one in served]
    for name in short_names:
        if short_names.count(name) > 1:
            raise ValueError(f"two models are called '{name}': rename one of the folders")
    return served


def make_engine(name: str, slots: int, device: str, threads: int) -> Engine:
    """The engine of one model."""
    torch.set_num_threads(threads)
    # Whoever sends questions keeps their number down; of those who were cancelled this one learns later.
    return Engine(Lanes(load(name, device)), slots, most_waiting=sys.maxsize)


def _grid_of(name: str) -> Grid | None:
    """What was measured of a model: in the run folder, or beside the shipped weights."""
    path = find(name)
    file = Run(path).grid_file if path.is_dir() else path.with_suffix(".grid.json")
    return Grid.model_validate_json(file.read_bytes()) if file.exists() else None

"""One piece of the paper's evidence: what it trains, what it measures, what it holds against the paper.

A piece returns rows, flat and ready for a table: everything else (comparison, verdicts, Markdown,
picture) is computed from the rows, so that it can be made again from a stored file without training.

Budgets: `smoke` takes seconds a run and only shows that everything works; `cpu` is what two cores can do
in some hours, which on graphs is the published training and on texts a part of it; `paper` is the
published budget, exactly.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from deepen.config import PaperTask, Record, RunConfig, changed, explain
from deepen.evidence.noise import Compared
from deepen.model import Model
from deepen.presets import get_preset

Budget = Literal["smoke", "cpu", "paper"]
Distribution = Literal["paper", "certified"]
Verdict = Literal["confirmed", "confirmed, with a caveat", "not confirmed", "not tested"]
Row = dict[str, Any]
SEEDS = (42, 43, 44)
TASKS: tuple[PaperTask, ...] = ("graph", "logic", "family")

SMOKE = {
    "model__core__width": 32,
    "model__core__heads": 2,
    "model__core__feedforward": 64,
    "data__train_set": 64,
    "data__batch": 16,
    "train__updates": 4,
    "grid__num_examples": 8,
}
TEXTS_ON_TWO_CORES = {"train__updates": 800, "data__batch": 32, "grid__num_examples": 600}


class Plan(Record):
    """How much of a piece to do."""

    budget: Budget = "cpu"
    distribution: Distribution = "paper"
    tasks: tuple[PaperTask, ...] = TASKS
    seeds: tuple[int, ...] | None = None
    """None: three; within the budget of a CPU one on texts and on certified examples."""

    @model_validator(mode="after")
    def _lists_are_sets(self) -> Self:
        for name, values in (("tasks", self.tasks), ("seeds", self.seeds)):
            if values is not None and (not values or len(set(values)) < len(values)):
                raise ValueError(f"--{name} must be one or more different ones, got {list(values)}")
        return self

    @property
    def stem(self) -> str:
        """The name of the files with the results."""
        return self.budget if self.distribution == "paper" else f"{self.budget}-{self.distribution}"

    def seeds_for(self, task: str) -> tuple[int, ...]:
        if self.seeds is not None:
            return self.seeds
        is_main = task == "graph" and self.distribution == "paper"
        few = self.budget == "smoke" or (self.budget == "cpu" and not is_main)
        return SEEDS[:1] if few else SEEDS

    def fitted(self, config: RunConfig) -> RunConfig:
        """A published config, on this plan's examples and within its budget."""
        if self.distribution == "certified":
            config = changed(
                config, data__distribution=self.distribution, grid__distribution=self.distribution
            )
            if config.task == "graph":
                # Certified graphs have more nodes than the alphabet has letters: nodes without names.
                config = changed(config, model__perception__vocabulary=1)
            if config.task == "family":
                config = changed(config, model__perception__vocabulary=CERTIFIED_WORDS)
        if self.budget == "smoke":
            return changed(config, **SMOKE)
        if self.budget == "cpu" and config.task != "graph":
            return changed(config, **TEXTS_ON_TWO_CORES)
        return config


CERTIFIED_WORDS = 90  # rows of the token table that certified family texts need


@dataclass(frozen=True)
class Job:
    """One run to train, and what its rows are called."""

    config: RunConfig
    names: Row = field(default_factory=dict)


class Trained(Record):
    """What a result needs to be traced back to its run."""

    run: str
    seed: int
    updates: int
    share: float
    """Updates, relative to the published number."""
    share_of_examples: float
    """Examples seen, relative to the published number; smaller where batches are."""
    batch: int
    parameters: int
    seconds: float
    code: str | None
    threads: int


class Evidence(Record):
    """The rows of one piece, and where they come from."""

    piece: str
    plan: Plan
    rows: tuple[Row, ...]
    runs: tuple[Trained, ...]
    provenance: dict[str, Any]


class EvidenceError(ValueError):
    """A file of results that cannot be read; the message says which and why."""


def read_evidence(file: Path) -> Evidence:
    """Stored results."""
    try:
        return Evidence.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise EvidenceError(f"{file} holds no results: {explain(error)}") from None


class Claim(Record):
    """What the paper says, and what was found."""

    claim: str
    verdict: Verdict
    figures: str


class Piece(ABC):
    """A table or a figure of the paper."""

    name: str
    title: str
    tasks: tuple[PaperTask, ...] = TASKS
    """The tasks it asks questions of; none if it only measures a core."""

    def jobs(self, plan: Plan) -> list[Job]:
        """What must be trained."""
        return []

    def measure(self, model: Model, config: RunConfig, plan: Plan) -> list[Row]:
        """The rows of one run."""
        return []

    def measure_untrained(self, plan: Plan) -> list[Row]:
        """The rows that need no training."""
        return []

    @abstractmethod
    def compare(self, evidence: Evidence) -> list[Compared]:
        """Ours beside the published figures."""

    @abstractmethod
    def claims(self, evidence: Evidence) -> list[Claim]:
        """What the paper says about it, judged by rules."""

    @abstractmethod
    def table(self, evidence: Evidence) -> str:
        """The rows as Markdown."""

    @abstractmethod
    def draw(self, evidence: Evidence, path: Path) -> None:
        """The picture."""


def published_shares(config: RunConfig) -> tuple[float, float]:
    """How many of the published updates a run has, and how many of the examples in them."""
    published = get_preset(config.task, "paper")
    share = config.train.updates / published.train.updates
    return share, share * config.data.batch / published.data.batch


def is_comparable(evidence: Evidence, task: str) -> bool:
    """Whether a task's runs had the whole training; a smoke test shows what would be compared."""
    return evidence.plan.budget == "smoke" or fewest_updates(evidence, task) >= 1


def shares(evidence: Evidence, task: str) -> str:
    """In words, how much of the published training a task's runs had."""
    own = [one for one in evidence.runs if one.run.startswith(task)]
    updates, seen = (
        100 * min((getattr(one, name) for one in own), default=0.0) for name in ("share", "share_of_examples")
    )
    return f"{updates:.2g} % of the published updates ({seen:.2g} % of the examples)"


def fewest_updates(evidence: Evidence, task: str) -> float:
    """The smallest share of the published updates that a task's runs had."""
    return min((one.share for one in evidence.runs if one.run.startswith(task)), default=0.0)

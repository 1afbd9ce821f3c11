"""One piece of the paper's evidence: what it trains, what it measures, what it holds against the paper.

A piece returns rows, flat and ready for a table: everything else (comparison, verdicts, Markdown,
picture) is computed from the rows, so that it can be made again from a stored file without training.

Budgets: `smoke` takes seconds a run and only shows that everything works; `cpu` is what two cores can do
in some hours, which on graphs is the published training and on texts a part of it; `paper` is the
published budget, exactly.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from deepen.config import Record, RunConfig, TaskName, changed, explain
from deepen.model import Model
from deepen.presets import get_preset

Budget = Literal["smoke", "cpu", "paper"]
Distribution = Literal["paper", "certified"]
Verdict = Literal["confirmed", "confirmed, with a caveat", "not confirmed", "not tested"]
Row = dict[str, Any]
SEEDS = (42, 43, 44)
TASKS: tuple[TaskName, ...] = ("graph", "logic", "family")

SMOKE = {
    "model__core__width": 32,
    "model__core__heads": 2,
    "model__core__feedforward": 64,
    "data__train_set": 64,
    "data__batch": 16,
    "train__updates": 4,
    "grid__num_examples": 8,
}
TEXTS_ON_TWO_CORES = {"train__updates": 800, "data__batch": 32}


class Plan(Record):
    """How much of a piece to do."""

    budget: Budget = "cpu"
    distribution: Distribution = "paper"
    tasks: tuple[TaskName, ...] = TASKS
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


class Estimate(Record):
    """A figure, and the two reasons why it would be another one next time."""

    value: float
    sampling: float = 0.0
    """Standard error from the number of examples, which are the same for every seed."""
    spread: float | None = None
    """Standard deviation over trainings with other seeds; None if there is only one."""
    seeds: int = 1


def sampling_error(share: float, num: int) -> float:
    """Of a share of `num` trials; two imagined successes and failures keep 0 and 1 from looking exact."""
    centre = (share * num + 2) / (num + 4)
    return sqrt(centre * (1 - centre) / (num + 4))


def of_share(share: float, num: int) -> Estimate:
    """One model's share of `num` trials."""
    return Estimate(value=share, sampling=sampling_error(share, num))


def of_seeds(values: Sequence[float], sampling: float = 0.0) -> Estimate:
    """The mean over seeds; `sampling` is the error of a single one's figure."""
    spread = stdev(values) if len(values) > 1 else None
    return Estimate(value=mean(values), sampling=sampling, spread=spread, seeds=len(values))


# 97.5 % quantiles of Student's distribution, by degrees of freedom; 0: no seed but one on either side.
STUDENT = (1.96, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


class Compared(Record):
    """One figure of ours beside the published one."""

    what: str
    ours: Estimate
    published: Estimate

    @property
    def difference(self) -> float:
        return self.ours.value - self.published.value

    @property
    def noise(self) -> float:
        """Two such figures differ by less than this about 19 times out of 20, if nothing else differs.

        A side with one seed is taken to vary as the other one does. 0: nothing here is random.
        """
        both = (self.ours, self.published)
        known = [one for one in both if one.spread is not None]
        borrowed = max((one.spread or 0.0 for one in known), default=0.0)
        trained = sum((borrowed if one.spread is None else one.spread) ** 2 / one.seeds for one in both)
        student = STUDENT[min(sum(one.seeds - 1 for one in known), len(STUDENT) - 1)]
        return hypot(student * sqrt(trained), 1.96 * hypot(*(one.sampling for one in both)))

    @property
    def is_noise(self) -> bool:
        return abs(self.difference) <= self.noise + 1e-9


class Claim(Record):
    """What the paper says, and what was found."""

    claim: str
    verdict: Verdict
    figures: str


class Piece(ABC):
    """A table or a figure of the paper."""

    name: str
    title: str
    tasks: tuple[TaskName, ...] = TASKS
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


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows in which all the named columns have the given values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The different values of a column, in the order of their appearance."""
    return list(dict.fromkeys(row[column] for row in rows if column in row))


def listed(values: Iterable[float]) -> str:
    """Fractions with three digits, whole numbers as they are."""
    return ", ".join(f"{value:.3f}" if isinstance(value, float) else str(value) for value in values) or "none"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; fractions are given with three digits."""
    shown = [
        " | ".join(
            "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row
        )
        for row in rows
    ]
    return "\n".join(
        f"| {line} |" for line in [" | ".join(columns), " | ".join("---" for _ in columns), *shown]
    )


def comparison_table(compared: Iterable[Compared]) -> str:
    """Ours, published, the difference, and whether it is inside the noise."""
    rows = []
    for one in compared:
        digits = 0 if one.published.value >= 1000 else 3
        difference = f"{one.difference:+,.{digits}f}"
        figures = [f"{value:,.{digits}f}" for value in (one.ours.value, one.published.value)]
        inside = ("yes" if one.is_noise else "no") if one.noise else "not random"
        rows.append((one.what, *figures, difference, f"{one.noise:.3f}", inside))
    return markdown(("figure", "ours", "published", "difference", "noise", "inside the noise"), rows)


def claims_table(claims: Iterable[Claim]) -> str:
    return markdown(
        ("the paper says", "here", "figures"), [(one.claim, one.verdict, one.figures) for one in claims]
    )


def runs_table(evidence: Iterable[Evidence]) -> str:
    """One line a run: how much of the published training it had, and where."""
    rows = [
        (
            one.run,
            f"{one.updates:,}",
            f"{100 * one.share:.0f} %",
            f"{100 * one.share_of_examples:.0f} %",
            one.batch,
            f"{one.parameters:,}",
            f"{one.seconds:.0f}",
            one.threads,
            one.code,
        )
        for some in evidence
        for one in some.runs
    ]
    named = "run, updates, of the published, of its examples, batch, parameters, seconds, threads, code"
    return markdown(named.split(", "), rows)


def published_shares(config: RunConfig) -> tuple[float, float]:
    """How many of the published updates a run has, and how many of the examples in them."""
    published = get_preset(config.task, "paper")
    share = config.train.updates / published.train.updates
    return share, share * config.data.batch / published.data.batch


def fewest_updates(evidence: Evidence, task: str) -> float:
    """The smallest share of the published updates that a task's runs had."""
    return min((one.share for one in evidence.runs if one.run.startswith(task)), default=0.0)

"""Strict config records: one schema for presets, files and command-line flags.

A run is described completely by one `RunConfig`. Records are frozen, unknown keys are errors that
name the nearest known key, and `None` always means "absent". Presets are in `presets.py`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

PaperTask = Literal["graph", "logic", "family"]
TaskName = Literal[PaperTask, "all"]
PresetName = Literal["paper", "frontier", "weight-tied", "transformer", "gnn", "act"]
Range = tuple[int, int]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]


class ConfigError(ValueError):
    """A config that cannot be used; the message says which key and why."""


class Record(BaseModel):
    """A frozen record that refuses unknown keys and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    near = get_close_matches(str(key), cls.model_fields, n=1)
                    hint = f"; did you mean '{near[0]}'?" if near else ""
                    known = ", ".join(cls.model_fields)
                    raise ValueError(f"unknown key '{key}' in {cls.__name__}{hint} (known: {known})")
        return data


class PerceptionConfig(Record):
    """How a question becomes the first hidden state."""

    kind: Literal["topological", "hierarchical", "unstructured", "phrases"]
    """Adjacency mask over nodes; rotary positions over an expression; the same over shuffled facts; a
    position for each phrase of a text (from parenthesis to parenthesis, a sentence) instead of each token."""
    vocabulary: Positive
    """Rows of the token table. Topological with 1 row: nodes have no identity, only roles."""
    role_scale: float = 0.02
    """Standard deviation at which the source and target vectors start (topological only)."""
    crowd: Annotated[int, Field(ge=2)] | None = None
    """In-degree from which on attention is sharpened, so that one neighbour is not lost among thousands; it
    should be larger than any in-degree in training. None: never (topological only)."""
    rotary_base: float = 10_000.0
    """Base of the rotary angles (ignored by topological)."""
    rotary_share: Share = 1.0
    """Share of each head's channels that rotary positions turn; the others compare what tokens are, wherever
    they stand (ignored by topological)."""
    words: Positive = 12
    """Tokens in a phrase; a longer one becomes several (phrases only)."""
    names_from: Positive | None = None
    """Token ids from this one on are names. Attention can go by which names two phrases share, and at which
    places in them, with strengths that are learned; and names beyond the table share its last row: they need
    no meaning, and there can be any number of them. None: no token is one (phrases only)."""


class CoreConfig(Record):
    """The shared step; every ingredient can be switched off."""

    width: Positive
    """D, the width of the hidden state."""
    heads: Positive
    """H, attention heads."""
    feedforward: Positive
    """Hidden width of the feed-forward sub-layer."""
    activation: Literal["relu", "gelu"] = "gelu"
    """Non-linearity of the feed-forward sub-layer."""
    depth_rows: Positive | None = None
    """Rows of the depth-embedding table (later steps use its last row), or None for no table."""
    layer_scale: float | None = None
    """Initial LayerScale of both sub-layers, or None for none."""
    gate_bias: float | None = None
    """Initial bias of the GRU-like gate, or None for no gate."""
    recall: bool = False
    """Add a linear map of the perceived input to the state at every step."""
    state_norm: bool = False
    """LayerNorm on the state after the update."""
    state_noise: Annotated[float, Field(ge=0)] = 0.0
    """Standard deviation of Gaussian noise on the state after each training step."""
    dropout: Share = 0.0
    """Dropout on the perceived input, on both sub-layers and in the readout."""
    attention_dropout: Share = 0.0
    """Dropout on attention weights; above 0 it rules out fused attention."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"width {self.width} must split into {self.heads} heads of an even number of channels"
            )
        return self


class StackConfig(Record):
    """A peer: layers with weights of their own instead of one shared step."""

    layers: Positive
    """How many; more steps than layers change nothing."""
    mixing: Literal["attention", "mean"] = "attention"
    """A fixed-depth Transformer, or a graph network that takes the mean over in-neighbours."""


class ActConfig(Record):
    """A peer: adaptive computation time, every position halting by itself."""

    cap: Positive
    """No position is updated more often than this."""
    halt_bias: float = -1.0
    """Initial bias of the halting unit: -1 gives a chance of .27 a step, which is 4 updates."""
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """A position halts once its chances add up to 1 - epsilon."""
    ponder: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the mean number of updates in the loss."""
    slots: Positive | None = None
    """On graphs, the number that the sum over nodes is divided by, as if there were so many in each; None:
    by how many there are."""
    drop_remainder: bool = False
    """As published: what the cap leaves of a position's weights is lost, in its state and in the cost."""


class ModelConfig(Record):
    """Perception, core and readout; the readout follows from the perception."""

    perception: PerceptionConfig
    """Question to first hidden state."""
    core: CoreConfig
    """The shared step; of a stack, every layer."""
    tells: bool = False
    """In training it also says which word would have been right to claim, where the task knows: a fuller
    lesson than yes or no (phrases with names only)."""
    halting_pace: Annotated[float, Field(gt=0)] = 3.5
    """It stops by itself once no position moves by more than this / t of its size, t steps from the start,
    and is still enough in other ways (unroll.py: Convergence); less stops later. The trained weights do not
    hang on it, so the run id does not either (ignored by peers)."""
    stack: StackConfig | None = None
    """Layers instead of a shared step."""
    act: ActConfig | None = None
    """Adaptive computation time around the shared step."""

    @model_validator(mode="after")
    def _parts_go_together(self) -> Self:
        if self.stack and self.act:
            raise ValueError("a model is a stack of layers or has adaptive computation time, not both")
        core = self.core
        lacking = core.gate_bias is None and not (core.recall or core.state_norm or core.state_noise)
        if self.stack and not (lacking and core.depth_rows is None):
            raise ValueError("the layers of a stack have no gate, recall, state norm, noise or depth rows")
        if self.stack and self.stack.mixing == "mean" and self.perception.kind != "topological":
            raise ValueError("a stack with the mixing 'mean' needs a graph")
        if self.act and not lacking:
            raise ValueError("adaptive computation time goes without gate, recall, state norm and noise")
        if self.tells and (self.perception.kind != "phrases" or self.perception.names_from is None):
            raise ValueError("tells needs the perception 'phrases' and its names_from: words are not names")
        return self


class DataConfig(Record):
    """What the model is trained on."""

    distribution: str = "paper"
    """Which of the task's generators makes the examples."""
    difficulties: Range
    """Smallest and largest difficulty in training, drawn evenly."""
    curriculum: Share = 0.0
    """Share of the training in which the largest difficulty grows from the smallest to its full size."""
    train_set: Positive | None
    """Size of a fixed training set, or None for endless fresh examples."""
    batch: Positive = 64
    """Examples in one update."""
    questions: Positive = 1
    """Questions about each example in training: its own, and further ones about the same text, none harder
    than the hardest example (phrases only)."""

    @model_validator(mode="after")
    def _a_batch_fits(self) -> Self:
        if self.train_set is not None and self.train_set < self.batch:
            raise ValueError(f"a train_set of {self.train_set} is smaller than one batch of {self.batch}")
        if self.train_set is not None and self.curriculum:
            raise ValueError("a curriculum needs endless fresh examples: train_set must be None")
        return self


class TrainConfig(Record):
    """The objective and the optimiser."""

    updates: Positive
    """Number of optimiser updates."""
    steps: Range
    """T is drawn from this range, ends included, once per batch."""
    slack: Annotated[int, Field(ge=0)] | None = None
    """Only questions are asked whose difficulty is below T by at least so much: what cannot be known by then
    teaches nothing. None: all are, whatever T is."""
    alpha: Share = 0.0
    """Share of per-step supervision in the loss: 0 is silent thinking, 1 is a loss at every step."""
    step_labels: Literal["final", "within"] = "final"
    """With alpha, the label of step t: the final one, or "yes" only from the step on that can know it,
    t = difficulty."""
    segment: Positive | None = None
    """Keep for the gradient only every so many steps' state and take the steps between them twice: memory
    that grows with T / segment + segment instead of T. None: keep everything, which is faster."""
    detached_start: Share = 0.0
    """Share of batches that start from a state that has thought before, up to the largest T, without
    gradient: answers then stay when thinking goes on for longer than T. It grows from none in the first
    update to this in the last."""
    lr: Annotated[float, Field(gt=0)] = 3e-4
    """Largest learning rate."""
    schedule: Literal["cosine", "one-cycle"] = "cosine"
    """Cosine to zero from the start, or one cycle: up, then cosine to zero."""
    warm_up: Share = 0.3
    """Share of a one-cycle schedule that rises."""
    memory: Annotated[float, Field(gt=0, lt=1)] = 0.999
    """AdamW's second beta: how long it remembers the size of gradients; less leaves a plateau sooner."""
    weight_decay: Annotated[float, Field(ge=0)] = 1e-2
    """AdamW weight decay."""
    clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest gradient norm."""


class GridConfig(Record):
    """Where accuracy is measured after training."""

    distribution: str = "paper"
    """Which of the task's generators makes the test examples."""
    difficulties: tuple[Positive, ...]
    """Rows of the grid."""
    steps: tuple[Positive, ...]
    """Columns of the grid."""
    num_examples: Positive = 500
    """Test examples for each difficulty."""
    seed: int = 0
    """Decides the test examples; their stream is apart from that of any training."""

    @model_validator(mode="after")
    def _axes_are_increasing(self) -> Self:
        for name, values in (("difficulties", self.difficulties), ("steps", self.steps)):
            if not values or list(values) != sorted(set(values)):
                raise ValueError(f"{name} must be one or more increasing numbers, got {list(values)}")
        return self


class RunConfig(Record):
    """One run, completely: the same config gives the same weights."""

    task: TaskName
    """The task to learn."""
    preset: PresetName
    """The preset this config started from."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Decides the training examples, the initial weights and every random draw."""
    model: ModelConfig
    """The model."""
    data: DataConfig
    """The training examples."""
    train: TrainConfig
    """The training."""
    grid: GridConfig
    """The measurement."""

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name, (low, high) in (
            ("data.difficulties", self.data.difficulties),
            ("train.steps", self.train.steps),
        ):
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be (low, high) with 1 <= low <= high, got ({low}, {high})")
        return self

    @model_validator(mode="after")
    def _several_questions_need_phrases(self) -> Self:
        if self.data.questions > 1 and self.model.perception.kind != "phrases":
            raise ValueError("data.questions above 1 needs the perception 'phrases'")
        if self.data.questions > 1 and self.data.train_set is not None:
            raise ValueError("data.questions above 1 needs endless fresh examples: train_set must be None")
        if self.data.questions == 1 and self.train.slack is not None:
            raise ValueError("train.slack needs several questions a text: data.questions must be above 1")
        if self.data.questions == 1 and self.model.tells:
            raise ValueError("model.tells needs several questions a text: data.questions must be above 1")
        return self

    @model_validator(mode="after")
    def _peers_train_in_their_own_way(self) -> Self:
        peer, train = self.model.stack or self.model.act, self.train
        if peer and (train.alpha or train.segment or train.detached_start):
            raise ValueError("train.alpha, train.segment and train.detached_start need one shared step")
        if self.model.stack and train.steps != (self.model.stack.layers,) * 2:
            raise ValueError(
                f"a stack takes exactly {self.model.stack.layers} steps: set train.steps to that"
            )
        return self

    @property
    def run_id(self) -> str:
        """Eight hexadecimal digits that change with anything that changes the trained weights.

        Fields left at their defaults are not part of it, so that a new ingredient, absent by default,
        leaves the ids of finished runs as they are. (Hence a default must never change.)
        """
        described = self.model_dump(
            mode="json",
            exclude={"grid": True, "preset": True, "model": {"halting_pace"}},
            exclude_defaults=True,
        )
        canonical = json.dumps(described, sort_keys=True).encode()
        return hashlib.sha256(canonical).hexdigest()[:8]

    @property
    def run_name(self) -> str:
        """The folder name of this run, e.g. graph-frontier-seed0-1a2b3c4d."""
        return f"{self.task}-{self.preset}-seed{self.seed}-{self.run_id}"


class Explained(Protocol):
    """An error that lists what is wrong."""

    def errors(self) -> Sequence[Any]: ...


def explain(error: Explained) -> str:
    """One line for all that is wrong with a config or a request."""
    problems = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        what = item["msg"].removeprefix("Value error, ")
        problems.append(f"{where}: {what}" if where else what)
    return "; ".join(problems)


def parse_config(data: Any) -> RunConfig:
    """A complete config from plain data (a parsed JSON file)."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"bad config: {explain(error)}") from None


def changed(config: RunConfig, **changes: object) -> RunConfig:
    """A config with some fields replaced: changed(config, train__updates=3)."""
    data = config.model_dump()
    for name, value in changes.items():
        *path, last = name.split("__")
        part = data
        for key in path:
            part = part[key]
        part[last] = value
    return parse_config(data)

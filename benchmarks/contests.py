"""The contests of `deepen bench`: Deepen against the plain way and against what people would pick.

Each function sets one contender up and returns what is timed. Contenders run in processes of their own
(see deepen/bench.py); whatever they need is made before the clock starts.
"""

from collections.abc import Callable
from functools import cache, partial
from random import Random

import torch
from torch.nn import functional as F

from benchmarks.growth import GROWTH
from benchmarks.plain import LARGEST, PlainBatch, PlainGraph, PlainSequence, twin
from deepen.batches import Stream, in_batches
from deepen.bench import PEAK, BenchError, Contender, Contest, Work
from deepen.blocks import rotary_table
from deepen.config import RunConfig
from deepen.core import float32
from deepen.memory import keep_freed_memory
from deepen.model import DepthRecurrent
from deepen.packed import int8
from deepen.parallel import in_parallel, num_workers
from deepen.presets import get_preset
from deepen.reasoner import Reasoner, load
from deepen.shapes import Encoded, Scene
from deepen.tasks import examples, get_task
from deepen.train import training_loss
from deepen.unroll import Fixed, unroll

TASKS = ("graph", "logic", "family")
CPU = torch.device("cpu")
OURS, PLAIN, KEPT = "deepen", "plain", "plain, memory kept"


# Training: examples times steps a second at the published settings.

UPDATES = {"graph": 16, "logic": 8, "family": 8}  # ours in one turn: whole windows of batches
PLAIN_UPDATES = {"graph": 16, "logic": 1, "family": 1}  # all alike, since all padded to the same size


def _published(task: str) -> RunConfig:
    """The published settings, with a training set just large enough for the updates of one turn."""
    config = get_preset(task, "paper")
    data = config.data.model_copy(update={"train_set": UPDATES[task] * config.data.batch})
    return config.model_copy(update={"data": data})


def _steps(config: RunConfig, num: int) -> list[int]:
    """T for each of `num` updates, spread evenly over the range."""
    low, high = config.train.steps
    return [low + int((high - low + 1) * (number + 0.5) / num) for number in range(num)]


def train_ours(task: str) -> Callable[[], Work]:
    keep_freed_memory()
    config = _published(task)
    model = DepthRecurrent(config.model).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-2, fused=True)
    stream = Stream(config)
    at = {
        steps: config.model_copy(update={"train": config.train.model_copy(update={"steps": (steps, steps)})})
        for steps in range(1, 17)
    }
    order = Random(0).sample(_steps(config, UPDATES[task]), UPDATES[task])

    def turn() -> Work:
        for update, steps in enumerate(order):
            loss, _ = training_loss(model, stream[update], at[steps], update)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return Work(units=sum(order) * config.data.batch)

    return turn


def train_plain(task: str, kept: bool = False) -> Callable[[], Work]:
    if kept:
        keep_freed_memory()
    config = _published(task)
    model = _plain(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-2)
    size = config.data.batch
    low, high = config.data.difficulties
    drawn = [
        one for difficulty in range(low, high + 1) for one in examples(task, difficulty=difficulty, num=size)
    ]
    Random(0).shuffle(drawn)
    encode = get_task(task).encode
    batches = []
    for number in range(PLAIN_UPDATES[task]):
        chosen = Random(number).sample(drawn, size)
        encoded = [encode(one.question) for one in chosen]
        batches.append(PlainBatch(encoded, [one.label for one in chosen], LARGEST[task]))
    order = _steps(config, len(batches))

    def turn() -> Work:
        for batch, steps in zip(batches, order, strict=True):
            loss = F.binary_cross_entropy_with_logits(model(batch, steps), batch.labels)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return Work(units=sum(order) * size)

    return turn


def _plain(config: RunConfig) -> PlainGraph | PlainSequence:
    return PlainGraph(config.model) if config.task == "graph" else PlainSequence(config.model)


# Grids: the published cells, one unroll per difficulty against one per cell.

# Of each difficulty; fewer texts, since the plain way takes long on them.
GRID_EXAMPLES = {"graph": 500, "logic": 8, "family": 8}


@cache
def _grid_questions(task: str) -> tuple[tuple[list[Encoded], list[bool]], ...]:
    """Of each difficulty of the published grid."""
    encode = get_task(task).encode
    rows = []
    for difficulty in get_preset(task, "paper").grid.difficulties:
        drawn = examples(task, difficulty=difficulty, num=GRID_EXAMPLES[task])
        rows.append(([encode(one.question) for one in drawn], [one.label for one in drawn]))
    return tuple(rows)


def grid_ours(task: str) -> Callable[[], Work]:
    keep_freed_memory()
    config = get_preset(task, "paper")
    model = DepthRecurrent(config.model).eval()
    rows, steps = _grid_questions(task), config.grid.steps

    def turn() -> Work:
        for encoded, labels in rows:
            batches = in_batches(encoded, labels, config.model.core.feedforward, num_workers=num_workers(CPU))
            for _ in in_parallel(
                lambda one: model(one[1], Fixed(max(steps)), range(max(steps) + 1)), batches, CPU
            ):
                pass
        return Work(units=len(rows) * len(steps))

    return turn


def grid_plain(task: str) -> Callable[[], Work]:
    config = get_preset(task, "paper")
    model = _plain(config).eval()
    steps = config.grid.steps
    batches = [
        [
            PlainBatch(encoded[at : at + 64], labels[at : at + 64], LARGEST[task])
            for at in range(0, len(encoded), 64)
        ]
        for encoded, labels in _grid_questions(task)
    ]

    @torch.no_grad()
    def turn() -> Work:
        for row in batches:
            for num_steps in steps:
                for batch in row:
                    model(batch, num_steps)
        return Work(units=len(batches) * len(steps))

    return turn


# Inference: the published d = 256 core, every position used.

B, L, T = 32, 128, 8


def _core_input() -> torch.Tensor:
    return torch.randn(B, L, 256, generator=torch.Generator().manual_seed(0))


def core_ours(precision: str, whole: bool) -> Callable[[], Work]:
    """Every state of every position, or only what leads to the answer."""
    keep_freed_memory()
    config = get_preset("logic", "paper").model
    model = DepthRecurrent(config).eval()
    first = _core_input()
    valid = torch.ones(B, L, dtype=torch.bool)
    rotary = rotary_table(L, 256 // config.core.heads, config.perception.rotary_base, like=first)
    with torch.inference_mode():
        step = model.core.prepare(int8 if precision == "int8" else float32)

    def think(at: int) -> None:
        rows = slice(at, at + at_once)
        read_at = torch.zeros(at_once, 1, dtype=torch.long)
        scene = Scene(first=first[rows], mask=None, rotary=rotary, valid=valid[rows], read_at=read_at)
        unroll(step, model.readout, step.enter(scene), Fixed(T), ahead=int(whole))

    at_once = 8  # what in_batches chooses for this width
    # To the answer, the last step projects every position but does the rest for one.
    rest = model.flop_per_step(B, L) - B * L * 2 * 256 * 3 * 256
    left_out = 0 if whole else rest * (L - 1) // L

    def turn() -> Work:
        list(in_parallel(think, range(0, B, at_once), CPU))
        return Work(units=B * T, flop=T * model.flop_per_step(B, L) - left_out)

    return turn


def core_plain(kept: bool = False) -> Callable[[], Work]:
    if kept:
        keep_freed_memory()
    config = get_preset("logic", "paper").model
    ours = DepthRecurrent(config).eval()
    model = twin(ours, config).eval()
    first, valid = _core_input(), torch.ones(B, L, dtype=torch.bool)

    @torch.no_grad()
    def turn() -> Work:
        model.think(first, valid, T)
        return Work(units=B * T, flop=T * ours.flop_per_step(B, L))

    return turn


def core_x_transformers() -> Callable[[], Work]:
    """Tied layers of the same width, heads, length and number; it has no gate, so 13 % less to do."""
    try:
        from loguru import logger
        from x_transformers import Encoder
    except ImportError:
        raise BenchError("x-transformers is not installed: pip install 'deepen[bench]'") from None
    logger.disable("x_transformers")
    encoder = Encoder(
        dim=256,
        depth=T,
        heads=8,
        attn_dim_head=32,
        ff_mult=4,
        rotary_pos_emb=True,
        attn_flash=True,
        weight_tie_layers=True,
    ).eval()
    first = _core_input()

    @torch.no_grad()
    def turn() -> Work:
        encoder(first)
        without_gate = T * B * L * (2 * 256 * (4 * 256 + 2 * 1024) + 4 * L * 256)
        return Work(units=B * T, flop=without_gate)

    return turn


def matrix_products() -> Callable[[], Work]:
    size, times = 2048, 4
    left, right = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)

    def turn() -> Work:
        for _ in range(times):
            torch.mm(left, right, out=out)
        return Work(units=times, flop=times * 2 * size**3)

    return turn


# Inference on real questions: the lengths, and the depths, of a real mix.

NUM_MIXED = 192


def _mixed(task: str, trained: bool = False) -> tuple[list[object], list[bool]]:
    """Questions of all published difficulties, of the test or of the training, in random order."""
    config = get_preset(task, "paper")
    low, high = config.data.difficulties
    difficulties = range(low, high + 1) if trained else config.grid.difficulties
    drawn = [
        one
        for difficulty in difficulties
        for one in examples(task, difficulty=difficulty, num=-(-NUM_MIXED // len(difficulties)))
    ]
    chosen = Random(0).sample(drawn, NUM_MIXED)
    return [one.question for one in chosen], [one.label for one in chosen]


def _reasoner(task: str, precision: str = "float32") -> Reasoner:
    keep_freed_memory()
    config = get_preset(task, "paper")
    torch.manual_seed(0)
    return Reasoner(DepthRecurrent(config.model), config, "int8" if precision == "int8" else "float32")


def lengths_ours(task: str, trained: bool, precision: str = "float32") -> Callable[[], Work]:
    reasoner = _reasoner(task, precision)
    questions, _ = _mixed(task, trained)

    def turn() -> Work:
        reasoner.answer_many(questions, steps=12)
        return Work(units=len(questions))

    return turn


def lengths_plain(task: str, trained: bool) -> Callable[[], Work]:
    model = _plain(get_preset(task, "paper")).eval()
    questions, labels = _mixed(task, trained)
    encode = get_task(task).encode

    @torch.no_grad()
    def turn() -> Work:
        encoded = [encode(question) for question in questions]
        for at in range(0, len(encoded), B):
            model(PlainBatch(encoded[at : at + B], labels[at : at + B], LARGEST[task]), 12)
        return Work(units=len(questions))

    return turn


def _budgets(num: int) -> list[int]:
    """2 to 40 steps, long-tailed: half of the questions need no more than 5, one in ten the most."""
    rng = Random(0)
    budgets = [min(40, 2 + int(rng.paretovariate(0.9) * 3 - 3)) for _ in range(num)]
    return [*budgets[:-1], 40]


def depths(task: str, own: bool) -> Callable[[], Work]:
    """Every question to its own budget, or all to the largest."""
    reasoner = load("graph") if task == "graph" else _reasoner(task)
    if task == "graph":
        drawn = [one for hops in (2, 4, 8, 12, 16) for one in examples("graph", "cut", hops, num=200)]
        questions = [one.question for one in Random(0).sample(drawn, len(drawn))]
    else:
        questions, _ = _mixed(task)
    budgets = _budgets(len(questions))

    def turn() -> Work:
        reasoner.answer_many(questions, steps=budgets if own else max(budgets))
        return Work(units=len(questions))

    return turn


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
}
SERIES = GROWTH

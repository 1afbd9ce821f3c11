"""Contenders in inference. Each is set up first; what it returns is timed."""

from collections.abc import Callable
from random import Random

import torch

from benchmarks.plain import LARGEST, PlainBatch, plain_model, twin
from deepen.bench import BenchError, Work
from deepen.blocks import rotary_table
from deepen.core import float32
from deepen.memory import keep_freed_memory
from deepen.model import DepthRecurrent
from deepen.packed import int8
from deepen.parallel import in_parallel
from deepen.presets import get_preset
from deepen.reasoner import Reasoner, load
from deepen.shapes import Scene
from deepen.tasks import examples, get_task
from deepen.unroll import Fixed, unroll

CPU = torch.device("cpu")

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
    rotary = rotary_table(
        256 // config.core.heads, config.perception.rotary_base, 1.0, torch.arange(float(L))
    )
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
    model = plain_model(get_preset(task, "paper").model).eval()
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

"""The series of `deepen bench scale`: how time and memory grow with steps, length, nodes and edges."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from deepen.batches import collate
from deepen.bench import Series
from deepen.memory import keep_freed_memory
from deepen.model import DepthRecurrent
from deepen.presets import get_preset
from deepen.shapes import Batch, Encoded
from deepen.train import training_loss
from deepen.unroll import Fixed, unroll

Work = Callable[[bool], None]


def _texts(num: int, length: int) -> Batch:
    rng = np.random.default_rng(0)
    return collate([Encoded(tokens=rng.integers(1, 9, length)) for _ in range(num)], [True] * num)


def _thinks(model: DepthRecurrent, batch: Batch, steps: int) -> Work:
    keep_freed_memory()
    model.eval()

    @torch.inference_mode()
    def work(short: bool) -> None:
        step, scene = model.begin(batch)
        unroll(step, model.readout, scene, Fixed(1 if short else steps))

    return work


def steps(size: float) -> Work:
    return _thinks(DepthRecurrent(get_preset("logic", "paper").model), _texts(16, 128), int(size))


def rows(size: float) -> Work:
    return _thinks(DepthRecurrent(get_preset("logic", "paper").model), _texts(int(size), 128), 4)


def length(size: float) -> Work:
    return _thinks(DepthRecurrent(get_preset("logic", "paper").model), _texts(4, int(size)), 4)


def training_steps(size: float, segment: int | None = None) -> Work:
    keep_freed_memory()
    base = get_preset("logic", "paper")
    model = DepthRecurrent(base.model).train()
    batch = _texts(16, 64)

    def work(short: bool) -> None:
        num = 1 if short else int(size)
        train = base.train.model_copy(update={"steps": (num, num), "segment": segment})
        loss, _ = training_loss(model, batch, base.model_copy(update={"train": train}), 0)
        torch.autograd.backward(loss)

    return work


def random_graph(num_nodes: int, num_edges: int) -> Encoded:
    """A path through every node, so that none can be left out, and random edges."""
    rng = np.random.default_rng(0)
    order = rng.permutation(num_nodes)
    path = np.stack([order[:-1], order[1:]], axis=1)
    others = rng.integers(0, num_nodes, (num_edges - len(path), 2))
    edges = np.concatenate([path, others])
    return Encoded(
        tokens=np.ones(num_nodes, dtype=np.int64), edges=edges, query=(int(order[0]), int(order[-1]))
    )


def matrix_nodes(size: float) -> Work:
    """A matrix: as many edges as fit an eighth of it, which keeps it from being a list."""
    num = int(size)
    graph = random_graph(num, num * num // 8)
    return _thinks(DepthRecurrent(get_preset("graph", "frontier").model), collate([graph], [True]), 8)


def edges(size: float, steps: int = 5) -> Work:
    """A tenth as many nodes as edges."""
    graph = random_graph(int(size) // 10, int(size))
    return _thinks(DepthRecurrent(get_preset("graph", "frontier").model), collate([graph], [True]), steps)


GROWTH: dict[str, Series] = {
    "inference over steps": Series(varied="steps", sizes=(4, 8, 16, 32, 64), prepare=steps),
    "inference over rows": Series(varied="rows", sizes=(4, 8, 16, 32, 64), prepare=rows),
    "inference over length": Series(varied="positions", sizes=(64, 128, 256, 512), prepare=length),
    "training over steps": Series(varied="steps", sizes=(8, 16, 32, 64), prepare=training_steps),
    "training over steps, segments of 8": Series(
        varied="steps", sizes=(8, 16, 32, 64), prepare=partial(training_steps, segment=8)
    ),
    "one graph as a matrix": Series(varied="nodes", sizes=(128, 256, 512, 1024), prepare=matrix_nodes),
    "one graph as an edge list": Series(
        varied="edges", sizes=(62_500, 125_000, 250_000, 500_000, 1_000_000), prepare=edges
    ),
    "the same, 50 steps": Series(
        varied="edges", sizes=(500_000, 1_000_000), prepare=partial(edges, steps=50)
    ),
}

"""Do the fast way and the plain way learn alike? Loss curves of both on the published graph task.

    python benchmarks/curves.py [UPDATES]

The same model, distribution, optimiser and schedule; two seeds each. Dropout masks are cut from one strip an
update on the fast side and drawn anew on the plain side; batches gather like sizes on the fast side and
not on the plain one. Writes results/curves.json and results/curves.png.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.plain import LARGEST, PlainBatch, twin
from deepen.batches import Stream
from deepen.model import DepthRecurrent
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.runs import provenance, write_atomically
from deepen.tasks import examples, get_task
from deepen.train import learning_rate, training_loss

RESULTS = Path(__file__).parent / "results"
SEEDS = (0, 1)
AVERAGED = 50  # updates


def curve(fast: bool, seed: int, updates: int, watch: Callable[[int], None]) -> dict[str, Any]:
    """Train one model: its losses, and its accuracy on 500 unseen graphs of 1 to 5 hops at T = 8."""
    preset = get_preset("graph", "paper", seed)
    config = preset.model_copy(update={"train": preset.train.model_copy(update={"updates": updates})})
    torch.manual_seed(seed)
    ours = DepthRecurrent(config.model).train()
    model = ours if fast else twin(ours, config.model).train()
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=config.train.weight_decay)
    encode = get_task("graph").encode
    stream = Stream(config)
    if not fast:
        low, high = config.data.difficulties
        size = (config.data.train_set or 0) // (high - low + 1)
        drawn = [
            one
            for hops in range(low, high + 1)
            for one in examples("graph", difficulty=hops, seed=seed, num=size, split="train")
        ]
        encoded = [(encode(one.question), one.label) for one in drawn]
    losses = []
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(config.train, update)
        if fast:
            loss, _ = training_loss(ours, stream[update], config, update)
        else:
            rng = Random(f"{seed}/{update}")
            batch = PlainBatch(*zip(*rng.sample(encoded, config.data.batch), strict=True), LARGEST["graph"])
            loss = F.binary_cross_entropy_with_logits(
                model(batch, rng.randint(*config.train.steps)), batch.labels
            )
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.clip)
        optimiser.step()
        losses.append(loss.item())
        watch(update + 1)
    unseen = [
        one for hops in range(1, 6) for one in examples("graph", difficulty=hops, num=100, split="valid")
    ]
    batch = PlainBatch(
        [encode(one.question) for one in unseen], [one.label for one in unseen], LARGEST["graph"]
    )
    judge = twin(ours, config.model) if fast else model
    with torch.no_grad():
        right = ((judge.eval()(batch, 8) > 0) == (batch.labels > 0.5)).float().mean().item()
    return {"fast": fast, "seed": seed, "losses": losses, "accuracy": right, "num": len(unseen)}


def main() -> None:
    updates = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    curves = []
    for fast in (True, False):
        for seed in SEEDS:
            with Bar(f"{'fast' if fast else 'plain'}, seed {seed}", updates) as bar:
                curves.append(curve(fast, seed, updates, bar.show))
    content = {"provenance": provenance(), "updates": updates, "curves": curves}
    write_atomically(RESULTS / "curves.json", json.dumps(content).encode() + b"\n")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for one in curves:
        means = torch.tensor(one["losses"]).unfold(0, AVERAGED, 10).mean(dim=1)
        colour, name = ("#2b6cb0", "Deepen") if one["fast"] else ("#b7791f", "plain")
        label = f"{name}, seed {one['seed']}: {one['accuracy']:.3f} right"
        axes.plot(range(AVERAGED, AVERAGED + 10 * len(means), 10), means, color=colour, label=label)
    axes.set(xlabel="updates", ylabel=f"loss, mean of {AVERAGED} updates", title="graph, published settings")
    axes.legend()
    figure.savefig(RESULTS / "curves.png", dpi=130)


if __name__ == "__main__":
    main()

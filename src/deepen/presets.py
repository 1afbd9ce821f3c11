"""Complete configs by name.

`paper` is the published protocol, `frontier` the best this project knows; `weight-tied`, `transformer`,
`gnn` and `act` are the published peers, each trained as published.
"""

from collections.abc import Callable
from functools import partial

from deepen.config import (
    ConfigError,
    CoreConfig,
    DataConfig,
    GridConfig,
    ModelConfig,
    PerceptionConfig,
    Range,
    RunConfig,
    TrainConfig,
    changed,
)

Preset = Callable[[int], RunConfig]
LAYERS = {"graph": 6, "logic": 8, "family": 5}
SLOTS = {"graph": 20, "logic": None, "family": None}  # what the published ponder cost is a mean over
CAPS = {"graph": 20, "logic": 24, "family": 20}  # steps of the peers, and rows of their depth tables


def paper_graph(seed: int = 0) -> RunConfig:
    """Experiment I: 1-5 hops in training, up to 12 in the test."""
    return RunConfig(
        task="graph",
        preset="paper",
        seed=seed,
        model=ModelConfig(
            perception=PerceptionConfig(kind="topological", vocabulary=27),
            core=CoreConfig(
                width=128,
                heads=4,
                feedforward=256,
                activation="relu",
                depth_rows=20,
                gate_bias=-2.0,
                dropout=0.1,
                attention_dropout=0.1,  # the published graph model uses the framework's stock layer
            ),
        ),
        data=DataConfig(difficulties=(1, 5), train_set=12_000, batch=64),
        train=TrainConfig(updates=7_480, steps=(5, 8)),
        grid=GridConfig(difficulties=(1, 2, 3, 4, 6, 8, 10, 12), steps=(1, 2, 3, 5, 8, 12, 15, 20)),
    )


def paper_logic(seed: int = 0) -> RunConfig:
    """Experiment II: depth 1-8 in training, up to 14 in the test."""
    return RunConfig(
        task="logic",
        preset="paper",
        seed=seed,
        model=_paper_sequence_model("hierarchical", vocabulary=9, depth_rows=28),
        data=DataConfig(difficulties=(1, 8), train_set=64_000, batch=128),
        train=TrainConfig(updates=15_000, steps=(4, 16)),
        grid=GridConfig(difficulties=(2, 4, 6, 8, 10, 12, 14), steps=(1, 2, 4, 6, 8, 10, 12, 16, 20, 24)),
    )


def paper_family(seed: int = 0) -> RunConfig:
    """Experiment III: depth 2-5 in training, up to 9 in the test."""
    return RunConfig(
        task="family",
        preset="paper",
        seed=seed,
        model=_paper_sequence_model("unstructured", vocabulary=54, depth_rows=20),
        data=DataConfig(difficulties=(2, 5), train_set=60_000, batch=128),
        train=TrainConfig(updates=18_720, steps=(1, 12)),
        grid=GridConfig(
            difficulties=(2, 3, 4, 5, 6, 7, 8, 9),
            steps=(1, 2, 4, 6, 8, 10, 12, 16, 20),
            num_examples=2_000,
        ),
    )


def _paper_sequence_model(kind: str, vocabulary: int, depth_rows: int) -> ModelConfig:
    return ModelConfig(
        perception=PerceptionConfig.model_validate({"kind": kind, "vocabulary": vocabulary}),
        core=CoreConfig(
            width=256,
            heads=8,
            feedforward=1024,
            depth_rows=depth_rows,
            layer_scale=1e-4,
            gate_bias=-2.0,
            dropout=0.1,
        ),
    )


def frontier_graph(seed: int = 0) -> RunConfig:
    """No wall: recall, state norm and state noise; nodes without identity; no depth embedding."""
    return RunConfig(
        task="graph",
        preset="frontier",
        seed=seed,
        model=ModelConfig(
            perception=PerceptionConfig(kind="topological", vocabulary=1, role_scale=1.0, crowd=16),
            core=CoreConfig(
                width=64,
                heads=2,
                feedforward=128,
                gate_bias=-2.0,
                recall=True,
                state_norm=True,
                state_noise=0.6,
            ),
        ),
        data=DataConfig(distribution="cut", difficulties=(1, 5), train_set=None, batch=64),
        train=TrainConfig(updates=1_200, steps=(5, 8), lr=1e-3, schedule="one-cycle"),
        grid=GridConfig(
            distribution="cut",
            difficulties=(1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 40),
            steps=(1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 18, 23, 24, 36, 39, 40, 48, 72, 120),
        ),
    )


READER = CoreConfig(width=64, heads=4, feedforward=256, recall=True, state_norm=True, state_noise=0.3)
"""The core that reads phrases."""
ADDER = READER.model_copy(update={"feedforward": 1024})
"""The same with room for every sum and hop, for who must also add."""


def _taught(updates: int, steps: Range, slack: int, detached_start: float = 0.0) -> TrainConfig:
    """How those who read phrases are trained: without a short warm-up and a short memory they learn late."""
    return TrainConfig(
        updates=updates,
        steps=steps,
        slack=slack,
        detached_start=detached_start,
        lr=1e-3,
        schedule="one-cycle",
        warm_up=0.1,
        memory=0.98,
    )


def frontier_logic(seed: int = 0) -> RunConfig:
    """Phrases that know which others are as deeply nested; the nested groups' values are asked as well."""
    return RunConfig(
        task="logic",
        preset="frontier",
        seed=seed,
        model=ModelConfig(
            perception=PerceptionConfig(
                kind="phrases",
                vocabulary=10,
                words=14,
                rotary_base=100.0,
                rotary_share=0.25,
                names_from=9,
            ),
            core=READER,
        ),
        data=DataConfig(
            distribution="long-lessons", difficulties=(1, 8), curriculum=0.1, train_set=None, questions=20
        ),
        train=_taught(updates=4_500, steps=(2, 14), slack=1),
        grid=GridConfig(
            distribution="certified",
            difficulties=(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 20, 32),
            steps=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24),
            num_examples=2_000,
        ),
    )


def frontier_family(seed: int = 0) -> RunConfig:
    """Sentences that see which names they share; many questions a text, from inside its chains too."""
    return RunConfig(
        task="family",
        preset="frontier",
        seed=seed,
        model=ModelConfig(
            perception=PerceptionConfig(
                kind="phrases", vocabulary=90, words=7, rotary_share=0.0, names_from=34
            ),
            core=ADDER.model_copy(update={"state_noise": 0.5}),
            tells=True,
            halting_pace=1.5,  # sums come to rest later than the values of expressions
        ),
        data=DataConfig(
            distribution="lessons",
            difficulties=(1, 5),
            curriculum=0.2,
            train_set=None,
            batch=32,
            questions=16,
        ),
        train=_taught(updates=6_000, steps=(3, 13), slack=2, detached_start=0.5),
        grid=GridConfig(
            distribution="certified",
            difficulties=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
            steps=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24),
            num_examples=2_000,
        ),
    )


def frontier_all(seed: int = 0) -> RunConfig:
    """Three tasks told in one language: attention by shared names, by order and by what phrases mean."""
    return RunConfig(
        task="all",
        preset="frontier",
        seed=seed,
        model=ModelConfig(
            perception=PerceptionConfig(
                kind="phrases",
                vocabulary=49 + 64,  # all words, and names
                words=14,
                rotary_base=100.0,
                rotary_share=0.25,
                names_from=49,
            ),
            core=ADDER,
            tells=True,
            halting_pace=1.0,  # one for all three; a larger one would cut expressions short
        ),
        data=DataConfig(
            distribution="lessons",
            difficulties=(1, 8),
            curriculum=0.2,
            train_set=None,
            batch=48,
            questions=16,
        ),
        train=_taught(updates=7_200, steps=(3, 14), slack=2, detached_start=0.5),
        grid=GridConfig(
            distribution="certified-family",
            difficulties=(1, 2, 3, 4, 5),
            steps=(1, 2, 4, 6, 8, 10),
            num_examples=2_000,
        ),
    )


def _tied(config: RunConfig) -> RunConfig:
    """The shared block without gate and LayerScale, its depth embedding kept."""
    rows = CAPS[config.task]
    return changed(
        config, model__core__gate_bias=None, model__core__layer_scale=None, model__core__depth_rows=rows
    )


def weight_tied(seed: int, paper: Preset) -> RunConfig:
    """Plain residual steps."""
    return changed(_tied(paper(seed)), preset="weight-tied")


def adaptive_time(seed: int, paper: Preset) -> RunConfig:
    """The same, and every position halts by itself."""
    config = _tied(paper(seed))
    cap = CAPS[config.task]
    return changed(
        config,
        preset="act",
        model__act={"cap": cap, "slots": SLOTS[config.task], "drop_remainder": True},
        train__steps=(cap, cap),
        grid__steps=(cap,),
    )


def transformer(seed: int, paper: Preset) -> RunConfig:
    """As many layers as the longest training example needs, and one more on graphs."""
    return _stack(paper(seed), "transformer", "attention")


def graph_network(seed: int, paper: Preset) -> RunConfig:
    """Six layers of means over in-neighbours."""
    return _stack(paper(seed), "gnn", "mean")


def _stack(config: RunConfig, preset: str, mixing: str) -> RunConfig:
    layers = LAYERS[config.task]
    return changed(
        config,
        preset=preset,
        model__core__gate_bias=None,
        model__core__layer_scale=None,
        model__core__depth_rows=None,
        model__stack={"layers": layers, "mixing": mixing},
        train__steps=(layers, layers),
        grid__steps=(layers,),
    )


PAPER: dict[str, Preset] = {"graph": paper_graph, "logic": paper_logic, "family": paper_family}
PEERS = {"weight-tied": weight_tied, "transformer": transformer, "act": adaptive_time}
PRESETS: dict[tuple[str, str], Preset] = {
    **{(task, "paper"): paper for task, paper in PAPER.items()},
    ("graph", "frontier"): frontier_graph,
    ("logic", "frontier"): frontier_logic,
    ("family", "frontier"): frontier_family,
    ("all", "frontier"): frontier_all,
    **{(task, name): partial(peer, paper=PAPER[task]) for name, peer in PEERS.items() for task in PAPER},
    ("graph", "gnn"): partial(graph_network, paper=paper_graph),
}


def get_preset(task: str, name: str, seed: int = 0) -> RunConfig:
    """A preset's complete config."""
    if (task, name) not in PRESETS:
        known = ", ".join(f"{preset} for {of}" for of, preset in PRESETS)
        raise ConfigError(f"no preset '{name}' for task '{task}' (known: {known})")
    return PRESETS[task, name](seed)

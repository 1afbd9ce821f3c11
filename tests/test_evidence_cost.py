"""The cost of thinking: the probe against cases computed by hand, and verdicts that follow the rows."""

import sys
from itertools import product

import pytest
import torch

from deepen.evidence import memory_probe
from deepen.evidence.inference_cost import CORE, LENGTH, STEPS, InferenceCost
from deepen.evidence.memory_probe import (
    Backbone,
    Thinker,
    measure_cache,
    measure_model,
    median_seconds,
    peak_live_bytes,
)
from deepen.evidence.piece import Evidence, Plan
from deepen.evidence.reproduce import reproduce
from deepen.evidence.tables import select
from deepen.memory import peak_resident_bytes

FLOAT = 4
BACKBONE = Backbone(width=32, heads=2, layers=2)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cost")
    evidence = reproduce(InferenceCost(), Plan(budget="smoke"), folder / "runs", folder)
    return evidence, folder


def test_the_piece_at_smoke(smoke):
    evidence, folder = smoke
    piece = InferenceCost()
    assert (folder / "smoke.png").read_bytes().startswith(b"\x89PNG")
    assert Evidence.model_validate_json((folder / "smoke.json").read_bytes()) == evidence
    cores = select(evidence.rows, kind="core")
    assert [(row["batch"], row["steps"]) for row in cores] == [(B, T) for B in (1, 2) for T in (1, 2, 4)]
    assert all(row["seconds"] > 0 for row in cores)
    (parameters,) = piece.compare(evidence)
    assert parameters.is_noise
    assert "953,856" in piece.table(evidence)
    assert piece.claims(evidence)[2].verdict == "not tested", "the smoke backbone is not the published one"


def test_memory_is_flat_from_two_steps_on(smoke):
    evidence, _ = smoke
    for batch in (1, 2):
        few, many = (select(evidence.rows, kind="core", batch=batch, steps=T)[0] for T in (2, 4))
        assert many["live_bytes"] == pytest.approx(few["live_bytes"], rel=0.02)


def test_the_published_core_and_its_cost_model():
    row = measure_model(CORE, LENGTH)
    assert row["parameters"] == row["parameters_formula"] == 953_856
    assert row["flop"] == row["flop_formula"]


def test_live_bytes_by_hand():
    def two_then_one():
        first = torch.empty(1000)
        second = torch.empty(3000)
        del first
        third = torch.empty(500)
        return second, third

    def one_after_the_other():
        for _ in range(5):
            torch.empty(1000)

    outside = torch.empty(10_000)
    assert peak_live_bytes(two_then_one) == 4000 * FLOAT
    assert peak_live_bytes(one_after_the_other) == 1000 * FLOAT
    assert peak_live_bytes(lambda: torch.empty(7)) == 7 * FLOAT, "nothing is left of the earlier ones"
    assert peak_live_bytes(lambda: outside.view(100, 100)) == 0


def test_live_bytes_of_the_core_by_hand():
    """Weights, folded copies of two matrices and their biases, the input, where it is valid and read."""
    D, hidden, B, L = CORE.width, CORE.feedforward, 256, 16
    folded = 3 * D * D + 3 * D + hidden * D + hidden
    before_thinking = (953_856 + folded + B * L * D) * FLOAT + B * L + B * 8
    assert peak_live_bytes(lambda: Thinker.of(CORE, B, L)) == before_thinking
    # While it thinks, at least: the state, the candidate's sum, and the feed-forward's inside.
    thinking = peak_live_bytes(lambda: Thinker.of(CORE, B, L).think(2))
    assert thinking > before_thinking + B * L * (2 * D + hidden) * FLOAT


def test_resident_memory_counts_what_is_touched():
    grown = peak_resident_bytes(lambda: torch.ones(30_000_000))
    assert grown is None or grown == pytest.approx(30_000_000 * FLOAT, rel=0.1)


def test_seconds_are_those_of_the_work_alone(monkeypatch):
    """Each turn: set up for 100 seconds, work for 1, 2, 3..."""
    clock = [0.0]
    turns = iter(range(1000))
    monkeypatch.setattr(memory_probe, "perf_counter", lambda: clock[0])

    def set_up():
        clock[0] += 100
        turn = next(turns)
        return lambda: clock.__setitem__(0, clock[0] + turn)

    assert median_seconds(set_up) == 2  # turn 0 is the warm-up; 1, 2 and 3 are enough


def test_a_cache_is_linear_in_tokens_and_batch():
    rows = measure_cache(BACKBONE, length=8, steps=(1, 2, 4), threads=1)
    a_token = 2 * BACKBONE.layers * BACKBONE.width * 2  # keys and values, of two bytes
    assert [row["thinking_bytes"] for row in rows] == [B * T * a_token for B in (1, 2) for T in (1, 2, 4)]
    assert [row["live_bytes"] for row in rows if row["batch"] == 1] == [a_token * (8 + T) for T in (1, 2, 4)]
    assert [row["steps"] for row in rows if row["seconds"] is not None] == [4, 4]


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install 'deepen\[evidence\]'"):
        measure_cache(BACKBONE, length=8, steps=(1,), threads=1)


def as_if_measured(core_bytes, seconds):
    """Rows of a published core and both backbones; bytes and seconds are functions of batch and steps."""
    rows = [{"kind": "model", "parameters": 953_856, "parameters_formula": 1, "flop": 1, "flop_formula": 1}]
    for batch, steps in product((1, 32), STEPS):
        sizes = {"width": 256, "layers": 1, "batch": batch, "steps": steps}
        costs = {"live_bytes": core_bytes(batch, steps), "seconds": seconds(batch, steps)}
        rows.append({"kind": "core", "process_bytes": None, **sizes, **costs})
    for width, batch, steps in product((1024, 256), (1, 2), STEPS):
        sizes = {"width": width, "layers": 24, "batch": batch, "steps": steps}
        costs = {"thinking_bytes": batch * steps * 96 * width, "seconds": 1.0 if steps == 8 else None}
        rows.append({"kind": "cache", **sizes, **costs})
    return Evidence(piece="inference-cost", plan=Plan(), rows=tuple(rows), runs=(), provenance={})


def published_bytes(batch, steps):
    return 96_100_000 if batch == 32 else 39_900_000


def straight(batch, steps):
    return 0.1 + 0.4 * batch * steps


@pytest.mark.parametrize(
    ("which", "core_bytes", "seconds", "verdict"),
    [
        (0, published_bytes, straight, "confirmed"),
        (0, lambda batch, steps: 10**6 * steps, straight, "not confirmed"),
        (1, published_bytes, straight, "confirmed"),
        (1, published_bytes, lambda batch, steps: steps**3.0, "not confirmed"),
        (2, published_bytes, straight, "confirmed, with a caveat"),
        (2, lambda batch, steps: 10**9, straight, "not confirmed"),  # passed too late
        (2, lambda batch, steps: 10**6, straight, "confirmed"),  # at matched width too
    ],
)
def test_verdicts_follow_the_rows(which, core_bytes, seconds, verdict):
    assert InferenceCost().claims(as_if_measured(core_bytes, seconds))[which].verdict == verdict


def test_a_cache_that_is_not_linear_confirms_nothing():
    evidence = as_if_measured(published_bytes, straight)
    bent = tuple(
        {**row, "thinking_bytes": 1} if row["kind"] == "cache" and row["steps"] == 4 else row
        for row in evidence.rows
    )
    bent_evidence = evidence.model_copy(update={"rows": bent})
    assert InferenceCost().claims(bent_evidence)[2].verdict == "not confirmed"
    assert len(InferenceCost().compare(bent_evidence)) == 1, "no batch can be scaled to"


def test_published_memory_gives_the_published_ratios(tmp_path):
    piece, evidence = InferenceCost(), as_if_measured(published_bytes, straight)
    compared = {one.what.split(" (")[0]: one.difference for one in piece.compare(evidence)}
    assert compared["cache, bytes a token, d = 1024"] == 0
    assert compared["cache over core at T = 64, B = 32"] == pytest.approx(0, abs=0.01)
    assert compared["T at which the cache passes the core, B = 32"] == pytest.approx(0, abs=0.1)
    assert "1,536" in piece.table(evidence), "24 layers a token"
    piece.draw(evidence, tmp_path / "cost.png")

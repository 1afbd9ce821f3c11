"""Grids of models whose answers are known beforehand, and the two numbers that sum a grid up."""

import json
from math import comb

import pytest
import torch
from conftest import batch_of, tiny
from torch import nn

from deepen import report
from deepen.config import GridConfig
from deepen.grid import measure
from deepen.model import DepthRecurrent
from deepen.progress import Bar
from deepen.report import _boundaries, draw_frontier, fill_page, sparkline, summary, table
from deepen.shapes import Output, State
from deepen.stats import wilson
from deepen.tasks import examples
from deepen.unroll import Fixed


class Searcher(nn.Module):
    """Reaches one hop a step by honest search, `late` steps behind; beyond `wall` hops it says no."""

    least_steps = 1

    def __init__(self, late=0, wall=1000):
        super().__init__()
        self.late, self.wall = late, wall
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, batch, halt, keep):
        graphs = batch.graphs
        reached = torch.zeros(len(graphs.owner), dtype=torch.bool)
        reached[batch.query[:, 0]] = True
        logits = []
        for t in range(1, halt.max_steps + 1):
            if self.late < t <= self.wall + self.late:
                entered = (graphs.allowed & reached[graphs.places][:, None, :]).any(dim=-1)
                reached = reached | entered[graphs.owner, graphs.slot]
            logits.append(reached[batch.query[:, 1]].float() - 0.5)
        steps = tuple(keep)
        chosen = torch.stack([logits[t - 1] for t in steps], dim=1)
        return Output(
            answer=logits[-1],
            steps=steps,
            logits=chosen,
            state=State(hidden=reached),
            num_steps=torch.full((len(chosen),), halt.max_steps),
        )


GRID = GridConfig(distribution="cut", difficulties=(1, 2, 4, 7), steps=(1, 2, 3, 4, 6, 7), num_examples=100)
RUN = tiny("graph", "frontier")


def test_an_honest_search_has_the_exact_frontier():
    grid = measure(Searcher(), RUN, GRID)
    for cell in grid.cells:
        solved = cell.steps >= cell.difficulty
        assert cell.accuracy == (1.0 if solved else 0.5)
        assert cell.true_positive_rate == (1.0 if solved else 0.0)
        assert cell.true_negative_rate == 1.0
        assert cell.num == 100
        assert cell.low <= cell.accuracy <= cell.high
    assert grid.reach == 7
    assert grid.slack == {1: 0, 2: 0, 4: 0, 7: 0}


def test_lateness_is_slack_and_a_wall_is_reach():
    late = measure(Searcher(late=2), RUN, GRID)
    assert late.slack == {1: 2, 2: 2, 4: 2, 7: 2}
    assert late.reach == 7
    assert late.cell(1, 2).accuracy == 0.5  # two steps are one too few when the search is two behind
    walled = measure(Searcher(wall=3), RUN, GRID)
    assert walled.reach == 2
    assert walled.slack == {1: 0, 2: 0, 4: None, 7: None}
    assert "never" in summary(walled)
    assert measure(Searcher(wall=0), RUN, GRID).reach is None


def test_one_unroll_gives_what_one_unroll_per_cell_gives():
    """Slow twin: each cell by an unroll of its own."""
    model = DepthRecurrent(RUN.model).eval()
    grid = measure(model, RUN, GRID)
    for difficulty in GRID.difficulties:
        drawn = examples("graph", "cut", difficulty, seed=GRID.seed, num=100)
        batch = batch_of("graph", drawn)
        for steps in GRID.steps:
            right = (model(batch, Fixed(steps)).answer > 0) == (batch.labels > 0.5)
            assert grid.cell(difficulty, steps).accuracy == pytest.approx(right.float().mean().item())


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """Exact coverage of the interval, summed over the binomial distribution."""
    for truth in (0.5, 0.9, 0.99):
        covered = sum(
            comb(500, k) * truth**k * (1 - truth) ** (500 - k)
            for k in range(501)
            if wilson(k / 500, 500)[0] <= truth <= wilson(k / 500, 500)[1]
        )
        assert 0.93 < covered < 0.98
    assert wilson(1.0, 500)[1] == 1.0
    assert wilson(1.0, 500)[0] < 1.0


def test_a_grid_survives_json():
    grid = measure(Searcher(), RUN, GRID)
    again = type(grid).model_validate(json.loads(grid.model_dump_json()))
    assert again == grid


def test_the_table_rounds_down():
    grid = measure(Searcher(), RUN, GRID)
    nearly = grid.model_copy(
        update={"cells": tuple(c.model_copy(update={"accuracy": 0.998}) for c in grid.cells)}
    )
    accuracy = table(nearly).split("true-positive")[0]
    assert " 99" in accuracy
    assert "100" not in accuracy


def test_the_picture_is_drawn(tmp_path):
    draw_frontier(measure(Searcher(), RUN, GRID), tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_shows_where_training_ended(monkeypatch):
    drawn = []
    monkeypatch.setattr(report, "save_figure", lambda figure, path: drawn.append(figure))
    draw_frontier(measure(Searcher(), RUN, GRID), None)
    lines = drawn[0].axes[0].lines
    dashed = [
        (list(line.get_xdata()), list(line.get_ydata())) for line in lines if line.get_linestyle() == "--"
    ]
    # Trained on 1-5 hops and 5-8 steps: between rows 4 and 7, between columns 4 and 6.
    assert ([0, 1], [2.5, 2.5]) in dashed
    assert ([3.5, 3.5], [0, 1]) in dashed
    assert len(dashed) == 2
    texts = [text.get_text() for text in drawn[0].axes[0].texts]
    below = [cell for cell in GRID.difficulties for steps in GRID.steps if steps < cell]
    assert len(texts) == len(GRID.difficulties) * len(GRID.steps) + len(below)  # ceilings, where not 1


def test_training_boundaries_lie_between_the_right_ticks():
    assert _boundaries((1, 2, 4, 6, 8), (1, 5)) == [2.5]
    assert _boundaries((1, 2, 4, 6, 8), (2, 6)) == [0.5, 3.5]
    assert _boundaries((1, 2), (1, 5)) == []
    assert _boundaries((10, 12), (1, 5)) == []


def test_a_sparkline_rises_with_its_values():
    line = sparkline([0.0, 0.5, 1.0])
    assert line == "".join(sorted(line))
    assert len(sparkline([0.5] * 1000)) <= 60


def test_a_bar_without_a_terminal_prints_some_lines(capsys):
    with Bar("working", 1000) as bar:
        for done in range(1, 1001):
            bar.show(done, "so far")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 20
    assert lines[-1] == "working 1000/1000  so far"


def test_a_page_is_filled_between_its_markers(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- rows -->\nold\n<!-- /rows -->\nafter\n")
    for content in ("new", "newer"):
        fill_page(page, {"rows": content})
        assert page.read_text() == f"before\n<!-- rows -->\n{content}\n<!-- /rows -->\nafter\n"

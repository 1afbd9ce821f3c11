"""Rules that stop by themselves: on states made up for the purpose, and on the shipped model."""

import pytest
import torch

import deepen
from deepen.batches import collate
from deepen.config import changed
from deepen.halting import HaltingHead, LearnedHalting, _summary, fit_head
from deepen.peers import build
from deepen.shapes import Scene, State
from deepen.unroll import AnswerConvergence, Convergence, unroll


def scene_of(first):
    return Scene(
        first=first,
        mask=None,
        valid=torch.ones(first.shape[:2], dtype=torch.bool),
        read_at=torch.zeros(len(first), 1, dtype=torch.long),
    )


def read_first(state, scene):
    return state.hidden[:, 0, 0]


def test_a_gate_that_is_almost_closed_does_not_look_settled():
    """Every step goes a tenth of the way to a point far away, as a gate of .1 makes it."""
    aim = torch.tensor([10.0, 0.0, 0.0, 0.0])

    def step(opening):
        def go(state, scene, t, num):
            hidden = state.hidden + 0.1 * (aim - state.hidden)
            return State(hidden=hidden, gate=torch.full_like(hidden, opening))

        return go

    scene = scene_of(torch.tensor([0.0, 10.0, 0.0, 0.0]).expand(1, 3, 4))
    rule = Convergence(200, 2.5)
    honest = unroll(step(0.1), read_first, scene, rule).num_steps.item()
    naive = unroll(step(1.0), read_first, scene, rule).num_steps.item()
    assert naive == rule.patience
    assert honest > 8


def test_an_answer_that_pauses_longer_than_the_patience_is_cut_short():
    """The answer stands still for three steps, then jumps."""

    def step(state, scene, t, num):
        return State(hidden=torch.full_like(state.hidden, 5.0 if t >= 4 else -5.0))

    scene = scene_of(torch.full((1, 2, 1), -5.0))
    hasty, patient = (
        unroll(step, read_first, scene, AnswerConvergence(20, read_first, patience=patience))
        for patience in (3, 4)
    )
    assert (hasty.num_steps.item(), hasty.answer.item()) == (3, -5.0)
    assert (patient.num_steps.item(), patient.answer.item()) == (8, 5.0)


def test_the_summary_of_a_question_is_of_its_own_positions():
    """Slow twin: a loop over texts, then over the nodes of graphs."""
    seen = torch.randn(2, 3, 4)
    scene = scene_of(seen)
    scene.valid[0, 2] = False
    expected = [torch.cat([own.mean(dim=0), own.amax(dim=0)]) for own in (seen[0, :2], seen[1])]
    torch.testing.assert_close(_summary(seen, scene), torch.stack(expected))
    reasoner = deepen.load("graph")
    drawn = deepen.examples("graph", "cut", 3, num=4)
    batch = collate([reasoner.encode(one.question) for one in drawn], [one.label for one in drawn])
    _, scene = reasoner.model.begin(batch)
    seen = torch.randn(1, scene.first.shape[1], 5)
    for number, summary in enumerate(_summary(seen, scene)):
        own = seen[0, scene.graphs.owner == number]
        torch.testing.assert_close(summary, torch.cat([own.mean(dim=0), own.amax(dim=0)]))


@pytest.mark.parametrize("distribution", ["cut", "certified"])
def test_the_shipped_graph_model_stops_neither_early_nor_late(distribution):
    """Never before the difficulty, and on average not after 1.5 times it and four more steps."""
    reasoner = deepen.load("graph")
    for hops in (1, 2, 3, 5, 8, 16, 40):
        drawn = deepen.examples("graph", distribution, hops, num=40)
        answers = reasoner.answer_many([one.question for one in drawn])
        assert all(answer.label == one.label for answer, one in zip(answers, drawn, strict=True))
        steps = [answer.steps for answer in answers]
        assert sum(steps) / len(steps) <= 1.5 * hops + 4
        assert all(num >= hops for num, one in zip(steps, drawn, strict=True) if one.label)


@pytest.mark.parametrize("task", ["logic", "family"])
def test_the_shipped_text_models_stop_neither_early_nor_late(task):
    """As the graph model, on average; on texts a claim can be refuted before the last hop."""
    reasoner = deepen.load(task)
    for depth in (2, 5, 8, 10):
        drawn = deepen.examples(task, "certified", depth, seed=3, num=40)
        answers = reasoner.answer_many([one.question for one in drawn])
        assert sum(answer.label == one.label for answer, one in zip(answers, drawn, strict=True)) >= 39
        assert depth <= sum(answer.steps for answer in answers) / 40 <= 1.5 * depth + 4


def test_a_model_stops_at_the_pace_of_its_own_config():
    reasoner = deepen.load("logic")
    batch = collate([reasoner.encode("(!(T&F)|(F&T))")], [True])
    hurried, slow = (
        build(changed(reasoner.config, model__halting_pace=pace).model).eval()
        for pace in (reasoner.config.model.halting_pace, 0.25)
    )
    steps = []
    for model in (hurried, slow):
        model.load_state_dict(reasoner.model.state_dict())
        with torch.no_grad():
            steps.append(model(batch, model.halting(40)).num_steps.item())
    assert steps[0] == reasoner.answer("(!(T&F)|(F&T))").steps
    assert steps[0] + 3 <= steps[1] < 40


def test_what_the_answer_is_read_from_must_be_stiller_than_the_rest():
    """A move by .28 of the size: at the first position, which is read, or at the second."""
    after = State(hidden=torch.full((2, 2, 1), 10.0))
    before = State(hidden=torch.tensor([[7.2, 10.0], [10.0, 7.2]])[:, :, None])
    wants = Convergence(99, 3.5).wants_to_stop(before, after, scene_of(after.hidden), 2)
    assert wants.tolist() == [False, True]


def test_a_head_learns_when_to_stop_inside_its_range():
    reasoner = deepen.load("graph")
    config = changed(reasoner.config, data__distribution="certified")
    head = fit_head(reasoner.model, config, updates=60)
    assert isinstance(head, HaltingHead)
    drawn = [one for hops in (1, 3, 5) for one in deepen.examples("graph", "certified", hops, num=20)]
    batch = collate(
        [reasoner.encode(one.question) for one in drawn], [one.label for one in drawn], whole=True
    )
    step, scene = reasoner.model.begin(batch)
    with torch.no_grad():
        output = unroll(step, reasoner.model.read, scene, LearnedHalting(20, head))
    right = ((output.answer > 0) == (batch.labels > 0.5)).float().mean()
    assert right > 0.9
    assert output.num_steps.float().mean() < 8


def test_the_longer_it_has_taken_the_stiller_the_state_must_be():
    """The same move, by .28 of the size, is still enough after 2 steps and not after 10."""
    before = State(hidden=torch.tensor([[[10.0, 0.0], [7.2, 0.0]]]).expand(2, 2, 2))
    after = State(hidden=torch.tensor([[[10.0, 0.0], [10.0, 0.0]]]).expand(2, 2, 2))
    scene = scene_of(after.hidden)
    rule = Convergence(99, 2.5)
    assert rule.wants_to_stop(before, after, scene, torch.tensor([2, 10])).tolist() == [True, False]
    assert rule.wants_to_stop(before, after, scene, 4).tolist() == [True, True]
    assert rule.wants_to_stop(before, after, scene, 9).tolist() == [False, False]

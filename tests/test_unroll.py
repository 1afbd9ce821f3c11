"""The unroll with steps that are simple enough to know the answer beforehand; and the loss."""

from dataclasses import replace
from math import exp, log

import pytest
import torch
from conftest import assert_close

from deepen.loss import blended_loss
from deepen.shapes import Scene, State
from deepen.unroll import Convergence, Fixed, unroll, unroll_in_segments


def scene_of(first):
    B, L, _ = first.shape
    return Scene(
        first=first,
        mask=None,
        rotary=None,
        valid=torch.ones(B, L, dtype=torch.bool),
        read_at=torch.zeros(B, 1, dtype=torch.long),
    )


def count_up(state, scene, t, num):
    return State(hidden=state.hidden + t)


def read_first(state, scene):
    return state.hidden[:, 0, 0]


def test_it_takes_t_steps_counts_them_from_one_and_keeps_what_it_is_asked_for():
    scene = scene_of(torch.zeros(2, 3, 4))
    output = unroll(count_up, read_first, scene, Fixed(5), keep=(2, 5))
    assert output.steps == (2, 5)
    assert output.logits.tolist() == [[3.0, 15.0]] * 2
    assert output.num_steps.tolist() == [5, 5]
    assert output.answer.tolist() == [15.0] * 2
    assert unroll(count_up, read_first, scene, Fixed(5)).logits.shape == (2, 0)


def test_it_continues_where_it_was_left():
    scene = scene_of(torch.zeros(1, 1, 1))
    half = unroll(count_up, read_first, scene, Fixed(2)).state
    rest = unroll(count_up, read_first, scene, Fixed(3), start=half, taken=2)
    assert rest.answer.item() == 15.0


def test_zero_steps_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        unroll(count_up, read_first, scene_of(torch.zeros(1, 1, 1)), Fixed(0))


def test_convergence_waits_for_every_position_and_for_its_patience():
    """Question 0 stands still from step 4 on; question 1 pauses for two steps, then moves until step 8."""

    def step(state, scene, t, num):
        moves = torch.where(scene.first[:, 0, 0] == 1, float(t < 4), float(t < 3 or 5 <= t < 8))
        hidden = state.hidden.clone()
        hidden[:, 1, 0] += moves
        return State(hidden=hidden)

    scene = scene_of(torch.tensor([1.0, 2.0])[:, None, None].expand(2, 3, 1))
    output = unroll(
        step, read_first, scene, Convergence(50, 2.5, tolerance=0.01, patience=3), keep=range(1, 51)
    )
    assert output.num_steps.tolist() == [6, 10]
    assert output.steps == tuple(range(1, 11))


def test_convergence_does_not_look_at_padding():
    def step(state, scene, t, num):
        hidden = state.hidden.clone()
        hidden[:, 2] += 1
        return State(hidden=hidden)

    scene = scene_of(torch.ones(1, 3, 1))
    scene.valid[0, 2] = False
    assert unroll(step, read_first, scene, Convergence(50, 2.5, patience=2)).num_steps.item() == 2


def test_convergence_does_not_look_at_what_the_answer_cannot_depend_on():
    """Both questions have a restless position; it matters to the second."""

    def step(state, scene, t, num):
        hidden = state.hidden.clone()
        hidden[:, 2] += 1
        return State(hidden=hidden)

    matters = torch.tensor([[True, True, False], [True, True, True]])
    scene = replace(scene_of(torch.ones(2, 3, 1)), matters=matters)
    rule = Convergence(30, 2.5, tolerance=0.01)
    assert unroll(step, read_first, scene, rule).num_steps.tolist() == [1, 30]


def test_who_halts_before_any_step_to_keep_has_an_answer_all_the_same():
    scene = scene_of(torch.ones(1, 1, 1))
    still = Convergence(50, 2.5, patience=2)
    output = unroll(lambda state, scene, t, num: state, read_first, scene, still, keep=(40,))
    assert output.steps == ()
    assert output.answer.item() == 1.0
    assert output.num_steps.item() == 2


def test_who_never_settles_is_cut_off():
    scene = scene_of(torch.ones(1, 1, 1))
    output = unroll(
        lambda state, scene, t, num: State(hidden=-state.hidden), read_first, scene, Convergence(9, 2.5)
    )
    assert output.num_steps.item() == 9


def test_who_has_used_its_budget_leaves_the_batch():
    """Three questions with budgets 2, 5 and 3: the step sees 3, 3, 2, 1 and 1 of them."""
    seen = []

    def step(state, scene, t, num):
        seen.append(len(state.hidden))
        assert len(state.hidden) == len(scene.first) == len(scene.read_at)
        return State(hidden=state.hidden + scene.first)

    scene = scene_of(torch.tensor([1.0, 10.0, 100.0])[:, None, None].expand(3, 4, 2))
    limits = torch.tensor([2, 5, 3])
    output = unroll(step, read_first, scene, Fixed(5), keep=(2, 3, 4), limits=limits)
    assert seen == [3, 3, 2, 1, 1]
    assert output.answer.tolist() == [3.0, 60.0, 400.0]
    assert output.num_steps.tolist() == [2, 5, 3]
    assert output.logits.nan_to_num(-1).tolist() == [[3, -1, -1], [30, 40, 50], [300, 400, -1]]


@pytest.mark.parametrize("segment", [1, 2, 3, 6, 10])
def test_segments_change_neither_the_answer_nor_the_gradient(segment):
    weight = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def step(state, scene, t, num):
        return State(hidden=torch.tanh(weight * state.hidden[:, :num] + t / 10))

    results = []
    for length in (6, segment):
        scene = scene_of(torch.linspace(-1, 1, 12, dtype=torch.float64).view(2, 3, 2))
        output = unroll_in_segments(step, read_first, scene, 6, length, keep=(1, 4, 6))
        loss = output.logits.sum() + output.answer.square().sum()
        results.append([output.steps, output.answer, output.logits, torch.autograd.grad(loss, weight)[0]])
    assert results[0][0] == results[1][0] == (1, 4, 6)
    for whole, cut in zip(results[0][1:], results[1][1:], strict=True):
        assert torch.equal(whole, cut)


def cross_entropy(logit, label):
    p = 1 / (1 + exp(-logit))
    return -log(p if label else 1 - p)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_the_loss_is_the_papers_blend(alpha):
    logits, labels = [[0.3, -1.2, 2.0], [1.5, 0.1, -0.7]], [1, 0]
    expected = 0.0
    for row, label in zip(logits, labels, strict=True):
        every = [cross_entropy(logit, label) for logit in row]
        expected += ((1 - alpha) * every[-1] + alpha * sum(every) / 3) / 2
    actual = blended_loss(torch.tensor(logits), torch.tensor(labels).float(), alpha)
    assert_close(actual, torch.tensor(expected))


def test_silent_thinking_only_needs_the_last_step():
    logits, labels = torch.randn(4, 6), torch.tensor([0.0, 1.0, 1.0, 0.0])
    assert torch.equal(blended_loss(logits, labels, 0.0), blended_loss(logits[:, -1:], labels, 0.0))

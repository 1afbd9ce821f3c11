"""The peers against second implementations: stock layers, loops over nodes, halting on paper."""

import json
from math import exp

import pytest
import torch
from conftest import ROOT, assert_close, batch_of, changed, tiny
from torch import nn
from torch.nn import functional as F

from deepen.batches import Stream, collate, training_example
from deepen.config import ConfigError
from deepen.grid import tally
from deepen.loss import blended_loss, known_within
from deepen.peers import build
from deepen.peers.act import ActState, AdaptiveTime
from deepen.presets import get_preset
from deepen.reasoner import Reasoner
from deepen.shapes import State
from deepen.tasks import examples, get_task
from deepen.train import training_loss
from deepen.unroll import Fixed, unroll

PEERS = [("graph", "gnn")] + [(t, p) for t in ("graph", "logic", "family") for p in ("transformer", "act")]


def some(task, num=6, difficulty=3):
    return examples(task, "paper", difficulty, seed=5, num=num)


@pytest.mark.parametrize(("task", "preset"), [*PEERS, ("graph", "weight-tied"), ("logic", "weight-tied")])
def test_parameter_counts_are_the_published_ones(task, preset):
    published = json.loads((ROOT / "src/deepen/evidence/published.json").read_text())["parameters"]
    assert build(get_preset(task, preset).model).num_parameters == published[task][preset.replace("-", "_")]


def test_fixed_depth_is_a_stack_of_stock_layers():
    config = get_preset("graph", "transformer").model
    model = build(config).eval()
    drawn = some("graph")
    core = config.core
    encoded = [get_task("graph").encode(one.question) for one in drawn]
    batch = collate(encoded, [one.label for one in drawn])
    ours = model(batch, Fixed(6)).answer
    for place, one in enumerate(encoded):
        num = len(one.tokens)
        hidden = model.perception.tokens(torch.from_numpy(one.tokens))
        for role, node in enumerate(one.query):
            hidden[node] = hidden[node] + model.perception.roles[role]
        hidden = model.perception.norm(hidden)[None]
        blocked = ~torch.eye(num, dtype=torch.bool)
        for start, end in one.edges:
            blocked[end, start] = False
        for layer in model.core:
            stock = nn.TransformerEncoderLayer(
                core.width, core.heads, core.feedforward, activation="relu", norm_first=True, batch_first=True
            ).eval()
            stock.load_state_dict(
                {
                    "self_attn.in_proj_weight": layer.attention.query_key_value.weight,
                    "self_attn.in_proj_bias": layer.attention.query_key_value.bias,
                    "self_attn.out_proj.weight": layer.attention.out.weight,
                    "self_attn.out_proj.bias": layer.attention.out.bias,
                    "linear1.weight": layer.feedforward.enter.weight,
                    "linear1.bias": layer.feedforward.enter.bias,
                    "linear2.weight": layer.feedforward.leave.weight,
                    "linear2.bias": layer.feedforward.leave.bias,
                    "norm1.weight": layer.attention_norm.weight,
                    "norm1.bias": layer.attention_norm.bias,
                    "norm2.weight": layer.feedforward_norm.weight,
                    "norm2.bias": layer.feedforward_norm.bias,
                }
            )
            hidden = stock(hidden, src_mask=blocked)
        seen = hidden[0, list(one.query)].flatten()
        readout = model.readout
        logit = readout.logit(F.gelu(readout.hidden(readout.norm(seen))))
        assert_close(ours[place], logit[0])


def test_the_graph_network_takes_means_over_in_neighbours():
    model = build(get_preset("graph", "gnn").model).eval()
    drawn = some("graph")
    encoded = [get_task("graph").encode(one.question) for one in drawn]
    ours = model(collate(encoded, [one.label for one in drawn]), Fixed(6)).answer
    for place, one in enumerate(encoded):
        states = model.perception.tokens(torch.from_numpy(one.tokens))
        for role, node in enumerate(one.query):
            states[node] = states[node] + model.perception.roles[role]
        states = list(model.perception.norm(states))
        for layer in model.core:
            fresh = []
            for node, state in enumerate(states):
                near = {node, *(int(start) for start, end in one.edges if end == node)}
                average = sum(layer.mean_norm(states[other]) for other in near) / len(near)
                middle = state + F.gelu(layer.mean(average))
                thought = F.gelu(layer.feedforward.enter(layer.feedforward_norm(middle)))
                fresh.append(middle + layer.feedforward.leave(thought))
            states = fresh
        seen = torch.cat([states[node] for node in one.query])
        readout = model.readout
        assert_close(ours[place], readout.logit(F.gelu(readout.hidden(readout.norm(seen))))[0])


def test_the_graph_network_is_the_same_on_edge_lists(monkeypatch):
    model = build(tiny_peer("graph", "gnn").model).eval()
    drawn = some("graph", num=1)
    dense = model(batch_of("graph", drawn), Fixed(6)).answer
    monkeypatch.setattr("deepen.batches.is_large", lambda num_nodes, num_edges: True)
    assert_close(model(batch_of("graph", drawn), Fixed(6)).answer, dense)


def tiny_peer(task, preset, **changes):
    small = {"data__train_set": 64, "model__core__dropout": 0.0, "model__core__attention_dropout": 0.0}
    return tiny(task, preset, **{**small, **changes})


@torch.no_grad()
@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize(("task", "cap"), [("graph", 20), ("graph", 3), ("logic", 24)])
def test_adaptive_time_against_a_loop_over_positions(task, cap, drop_remainder):
    changes = {"model__act": {"cap": cap, "drop_remainder": drop_remainder}, "train__steps": (cap, cap)}
    config = tiny_peer(task, "act", **changes)
    model = build(config.model).eval()
    assert isinstance(model, AdaptiveTime)
    drawn = some(task, num=3)
    encode = get_task(task).encode
    batch = collate([encode(one.question) for one in drawn], [one.label for one in drawn], whole=True)
    step, scene = model.begin(batch)
    output = unroll(step, model.read, scene, model.halting_in_training(cap))
    state = output.state
    assert isinstance(state, ActState)

    halt, B, L = model.core.halt, *scene.valid.shape
    hidden = scene.first.clone()
    total, updates, remainder = (torch.zeros(B, L) for _ in range(3))
    mixture = torch.zeros_like(hidden)
    running = torch.ones(B, L, dtype=torch.bool)
    for t in range(1, cap + 1):
        after = model.core.block(State(hidden=hidden), scene, t).hidden
        before = hidden.clone()
        for b in range(B):
            for position in range(L):
                if not running[b, position]:
                    continue
                score = float(halt(before[b, position]))
                chance = 1 / (1 + exp(-score))
                left = 1 - total[b, position]
                updates[b, position] += 1
                hidden[b, position] = after[b, position]
                remainder[b, position] = left
                if total[b, position] + chance >= 0.99:
                    mixture[b, position] += left * after[b, position]
                    running[b, position] = False
                    continue
                total[b, position] += chance
                last = t == cap and not drop_remainder
                mixture[b, position] += (left if last else chance) * after[b, position]
    assert torch.equal(state.num_updates, updates)
    if drop_remainder:
        remainder = remainder * ~running
    cost = ((updates + remainder) * scene.valid).sum() / scene.valid.sum()
    assert_close(model.cost(output, scene), 0.01 * cost)
    assert_close(output.answer, model.readout(mixture, scene))
    assert cap > 3 or running.any(), "the cap must cut someone off for this test to say anything"


def test_computing_only_what_runs_changes_nothing(monkeypatch):
    config = tiny_peer("graph", "act")
    model = build(config.model).train()
    batch = Stream(config)[0]
    loss, _ = training_loss(model, batch, config, 0)
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()

    def everything(self, state, running, scene, t, num):
        return torch.where(running[..., None], self.step(state, scene, t, num).hidden, state.hidden)

    monkeypatch.setattr("deepen.peers.act.ActStep._update", everything)
    whole, _ = training_loss(model, batch, config, 0)
    whole.backward()
    assert_close(loss, whole)
    compared = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for ours, theirs in zip(gradients, compared, strict=True):
        assert_close(ours, theirs)


@torch.no_grad()
@pytest.mark.parametrize("slots", [20, None])
def test_the_ponder_cost_counts_every_node(slots):
    config = tiny_peer("graph", "act", model__act__slots=slots)
    model = build(config.model).eval()
    drawn = [training_example(config, index) for index in range(8)]
    encoded = [get_task("graph").encode(one.question) for one in drawn]

    def cost(some):
        step, scene = model.begin(collate(some, [True] * len(some), whole=True))
        return float(model.cost(unroll(step, model.read, scene, model.halting_in_training(20)), scene))

    num = [slots or len(one.tokens) for one in encoded]
    alone = sum(cost([one]) * nodes for one, nodes in zip(encoded, num, strict=True)) / sum(num)
    assert cost(encoded) == pytest.approx(alone, rel=1e-4)
    assert Stream(config)[0].valid.sum() > Stream(tiny("graph"))[0].valid.sum(), "whole graphs in training"


@pytest.mark.parametrize(("task", "preset"), PEERS)
def test_an_answer_does_not_depend_on_the_company(task, preset):
    config = tiny_peer(task, preset)
    reasoner = Reasoner(build(config.model), config)
    questions = [one.question for one in some(task, num=8)]
    for steps in (None, 4, [2, 30] * 4):
        together = reasoner.answer_many(questions, steps)
        budgets = steps if isinstance(steps, list) else [steps] * 8
        for question, budget, answer in zip(questions, budgets, together, strict=True):
            alone = reasoner.answer(question, budget)
            assert alone.steps == answer.steps
            assert alone.probability == pytest.approx(answer.probability, abs=1e-5)


def test_more_time_than_layers_changes_nothing_and_less_cannot_be_had():
    config = tiny_peer("graph", "transformer")
    reasoner = Reasoner(build(config.model), config)
    question = some("graph")[0].question
    six = reasoner.answer(question, steps=6)
    assert reasoner.answer(question, steps=50).probability == pytest.approx(six.probability, abs=1e-6)
    assert reasoner.answer(question, steps=1) == six == reasoner.answer(question)
    found = tally(build(config.model).eval(), config, some("graph", num=30), 9)
    assert found.right.unique(dim=1).shape[1] == 1


def test_labels_that_a_step_can_know():
    labels, hops = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([2, 3, 1])
    known = known_within(labels, hops, torch.tensor([1, 2, 3]))
    assert known.tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    logits = torch.randn(3, 3)
    by_hand = sum(F.binary_cross_entropy_with_logits(logits[:, t], known[:, t]) for t in range(3)) / 3
    assert_close(blended_loss(logits, known, 1.0), by_hand)
    config = tiny("graph", train__alpha=1.0, train__step_labels="within")
    model = build(config.model)
    batch = Stream(config)[0]
    assert (
        training_loss(model, batch, config, 0)[0]
        != training_loss(model, batch, tiny("graph", train__alpha=1.0), 0)[0]
    )


@pytest.mark.parametrize(
    ("task", "preset", "changes", "why"),
    [
        ("graph", "gnn", {"train__steps": (5, 8)}, "exactly 6 steps"),
        ("graph", "transformer", {"train__alpha": 0.5}, "shared step"),
        ("graph", "act", {"model__core__gate_bias": -2.0}, "goes without gate"),
        ("graph", "transformer", {"model__core__recall": True}, "no gate, recall"),
        ("logic", "transformer", {"model__stack__mixing": "mean"}, "needs a graph"),
        ("graph", "act", {"model__stack": {"layers": 3}}, "not both"),
    ],
)
def test_peers_refuse_what_they_cannot_do(task, preset, changes, why):
    with pytest.raises(ConfigError, match=why):
        changed(get_preset(task, preset), **changes)


def test_letters_of_the_whole_alphabet():
    seen = set()
    for one in examples("graph", "letters", 5, num=200, split="train"):
        seen |= {name for edge in one.question["edges"] for name in edge}
        assert get_task("graph").verify(one.question) == one.label
    assert len(seen) == 26

"""Parameter counts, initial values, what the mask lets through, and slow twins of the model."""

import json
from dataclasses import replace
from math import cos, exp, sin, sqrt

import numpy as np
import pytest
import torch
from conftest import ROOT, assert_close, batch_of, changed, tiny
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from benchmarks.plain import LARGEST, PlainBatch, names, twin
from deepen.batches import collate
from deepen.blocks import dropout_mask, dropout_strip, rotary_table, rotate
from deepen.fused import Update
from deepen.layout import as_blocks
from deepen.model import DepthRecurrent
from deepen.presets import get_preset
from deepen.shapes import State
from deepen.tasks import examples, get_task
from deepen.unroll import Fixed

TASKS = ("graph", "logic", "family")


@pytest.mark.parametrize("task", TASKS)
def test_parameter_counts_are_the_published_ones(task):
    published = json.loads((ROOT / "src/deepen/evidence/published.json").read_text())
    model = DepthRecurrent(get_preset(task, "paper").model)
    assert model.num_parameters == published["parameters"][task]["depth_recurrent"]


def test_an_ablated_core_has_the_published_count_of_the_weight_tied_model():
    published = json.loads((ROOT / "src/deepen/evidence/published.json").read_text())
    graph = changed(get_preset("graph", "paper"), model__core__gate_bias=None)
    assert DepthRecurrent(graph.model).num_parameters == published["parameters"]["graph"]["weight_tied"]


@pytest.mark.parametrize(
    ("task", "preset"), [(task, name) for task in TASKS for name in ("paper", "frontier")]
)
def test_every_tensor_starts_as_the_table_says(task, preset):
    config = get_preset(task, preset).model
    D, F = config.core.width, config.core.feedforward
    reads = 2 if task == "graph" else 1
    uniform = {  # name -> largest absolute value
        "core.recall.weight": 1 / sqrt(D),
        "core.attention.query_key_value.weight": sqrt(6 / (4 * D)),
        "core.attention.out.weight": 1 / sqrt(D),
        "core.feedforward.enter.weight": 1 / sqrt(D),
        "core.feedforward.enter.bias": 1 / sqrt(D),
        "core.feedforward.leave.weight": 1 / sqrt(F),
        "core.feedforward.leave.bias": 1 / sqrt(F),
        "core.gate.weight": 1 / sqrt(2 * D),
        "readout.hidden.weight": 1 / sqrt(reads * D),
        "readout.hidden.bias": 1 / sqrt(reads * D),
        "readout.logit.weight": 1 / sqrt(D),
        "readout.logit.bias": 1 / sqrt(D),
        "perception.join.weight": 1 / sqrt(config.perception.words * D),
        "perception.join.bias": 1 / sqrt(config.perception.words * D),
        "teller.weight": 1 / sqrt(D),
    }
    normal = {
        "perception.tokens.weight": 1.0,
        "perception.roles": config.perception.role_scale,
        "core.depth.weight": 1.0,
        "perception.names": 0.2,
    }
    constant = {
        "core.attention.query_key_value.bias": 0.0,
        "core.attention.out.bias": 0.0,
        "core.gate.bias": -2.0,
        "core.attention_scale": 1e-4,
        "core.feedforward_scale": 1e-4,
    }
    for name, tensor in DepthRecurrent(config).named_parameters():
        values = tensor.detach()
        if name in uniform:
            assert values.abs().max() <= uniform[name]
            if values.numel() > 1:
                assert values.abs().max() > 0.9 * uniform[name]
            if values.numel() > 1000:
                assert_within(values.std(), uniform[name] / sqrt(3), 0.1)
        elif name in normal:
            assert_within(values.std(), normal[name], 0.3)
        elif name in constant:
            assert (values == constant[name]).all(), name
        else:  # all that is left are LayerNorms
            assert "norm" in name
            assert (values == (1.0 if name.endswith("weight") else 0.0)).all()


def assert_within(actual, expected, share):
    assert abs(actual - expected) <= share * expected


def test_gate_and_layer_scale_at_step_zero():
    """At the start the gate lets about 12 % through, and LayerScale makes the block an identity."""
    config = get_preset("logic", "paper").model
    model = DepthRecurrent(config).eval()
    scene = model.perception(batch_of("logic", examples("logic", difficulty=4, num=8)))
    with torch.no_grad():
        model.core.gate.weight.zero_()
        state = model.core(State(hidden=scene.first), scene, 1)
        assert_close(state.gate, torch.full_like(state.gate, 1 / (1 + exp(2.0))))
        model.core.depth.weight.zero_()
        unmoved = model.core(State(hidden=scene.first), scene, 1)
        moved = (unmoved.hidden - scene.first).abs().max()
        assert 0 < moved < 1e-3


def both_batches(task):
    """The same questions in our batch and padded for the slow twin."""
    drawn = [one for difficulty in (1, 3, 5) for one in examples(task, difficulty=difficulty, num=3)]
    encoded = [get_task(task).encode(one.question) for one in drawn]
    labels = [one.label for one in drawn]
    return collate(encoded, labels), PlainBatch(encoded, labels, LARGEST[task])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_the_published_models_equal_their_plain_twins(task, num_steps):
    """Slow twin: a stock layer or a hand-written block, all padded; logits and every gradient agree."""
    preset = changed(get_preset(task, "paper"), model__core__dropout=0.0, model__core__attention_dropout=0.0)
    ours = DepthRecurrent(preset.model)
    with torch.no_grad():
        for parameter in ours.parameters():  # values that no folding can hide behind
            parameter += 0.05 * torch.randn_like(parameter)
    plain = twin(ours, preset.model)
    batch, padded = both_batches(task)
    one, other = ours(batch, Fixed(num_steps)).answer, plain(padded, num_steps)
    assert_close(one, other)
    with torch.no_grad():
        assert_close(ours.eval()(batch, Fixed(num_steps)).answer, other)  # inference takes another path
    ours.train()
    cross_entropy(one, batch.labels).backward()
    cross_entropy(other, padded.labels).backward()
    for name, parameter in names(ours).items():
        expected = dict(plain.named_parameters())[name].grad
        error = (parameter.grad - expected).abs().max()
        assert error <= 1e-3 * expected.abs().max() + 1e-7, name


def places(num):
    return torch.arange(num, dtype=torch.float64)


def test_rotary_turns_channel_pairs_by_position_times_frequency():
    """Slow twin: each pair on its own, by sine and cosine."""
    x = torch.randn(2, 11, 3, 8, dtype=torch.float64)
    turned = rotate(x, rotary_table(8, 10_000.0, 1.0, places(11)))
    for position in range(11):
        for pair in range(4):
            angle = position * 10_000.0 ** (-2 * pair / 8)
            real, imaginary = x[:, position, :, 2 * pair], x[:, position, :, 2 * pair + 1]
            expected = real * cos(angle) - imaginary * sin(angle)
            torch.testing.assert_close(turned[:, position, :, 2 * pair], expected)
            expected = imaginary * cos(angle) + real * sin(angle)
            torch.testing.assert_close(turned[:, position, :, 2 * pair + 1], expected)


def test_channels_that_are_not_turned_do_not_know_where_they_stand():
    x = torch.randn(1, 9, 2, 16, dtype=torch.float64)
    turned = rotate(x, rotary_table(16, 1_000.0, 0.5, places(9)))
    torch.testing.assert_close(turned[..., 8:], x[..., 8:])
    torch.testing.assert_close(turned[..., :8], rotate(x[..., :8], rotary_table(8, 1_000.0, 1.0, places(9))))
    torch.testing.assert_close(rotate(x, rotary_table(16, 1_000.0, 0.0, places(9))), x)


def test_rotary_products_depend_on_distance_only():
    query, key = torch.randn(2, 40, 1, 16, dtype=torch.float64).unbind(0)
    query[:], key[:] = query[0].clone(), key[0].clone()
    table = rotary_table(16, 10_000.0, 1.0, places(40))
    product = rotate(query, table)[:, 0] @ rotate(key, table)[:, 0].T
    torch.testing.assert_close(product[5, 2], product[33, 30])
    assert abs(product[5, 2] - product[5, 3]) > 1e-6


def test_the_mask_lets_nothing_through_that_is_not_an_edge():
    """Perturb one node: after one step exactly the node itself and its successors have changed."""
    for preset in ("paper", "frontier"):
        model = DepthRecurrent(get_preset("graph", preset).model).eval()
        example = examples("graph", "cut", 5, seed=2)[0]
        called = example.question["nodes"]
        encoded = get_task("graph").encode(example.question)
        _, (_, nodes), _ = as_blocks([encoded.edges], len(called), np.array([encoded.query]))
        scene = model.perception(batch_of("graph", [example]))
        num = scene.first.shape[1]
        assert num == len(nodes) >= 8
        start = State(hidden=torch.randn_like(scene.first))
        reference = model.core(start, scene, 1).hidden
        for place, node in enumerate(nodes):
            disturbed = start.hidden.clone()
            disturbed[0, place] += torch.randn(scene.first.shape[-1])
            moved = (model.core(State(hidden=disturbed), scene, 1).hidden - reference)[0].abs().amax(dim=-1)
            allowed = {node} | {called.index(b) for a, b in example.question["edges"] if a == called[node]}
            assert {nodes[other] for other in range(num) if moved[other] > 0} == allowed & set(nodes)


@pytest.mark.parametrize("task", TASKS)
def test_steps_at_once_equal_single_steps(task):
    """Whole states, one step after the other, against an unroll that leaves out what cannot matter."""
    model = DepthRecurrent(get_preset(task, "paper").model).eval()
    batch = batch_of(task, examples(task, difficulty=3, num=5))
    scene = model.perception(batch)
    output = model(batch, Fixed(7), keep=range(1, 8))
    state = State(hidden=scene.first)
    for t in range(1, 8):
        state = model.core(state, scene, t)
        assert state.hidden.shape == scene.first.shape
        assert_close(model.read(state, scene), output.logits[:, t - 1])
    assert output.state.hidden.shape[1] == (len(output.answer) * 2 if task == "graph" else 1)


@pytest.mark.parametrize("task", TASKS)
def test_company_and_padding_change_nothing(task):
    model = DepthRecurrent(get_preset(task, "paper").model).eval()
    drawn = [one for difficulty in (2, 5, 8) for one in examples(task, difficulty=difficulty, num=4)]
    together = model(batch_of(task, drawn), Fixed(6), keep=(1, 3, 6)).logits
    alone = torch.cat([model(batch_of(task, [one]), Fixed(6), keep=(1, 3, 6)).logits for one in drawn])
    assert_close(together, alone)


@pytest.mark.parametrize("task", TASKS)
def test_gradients_do_not_feel_padding(task):
    """Each example's gradient is the same alone and beside a longer one."""
    config = tiny(task, model__core__dropout=0.0, model__core__attention_dropout=0.0)
    model = DepthRecurrent(config.model)
    short, long = examples(task, difficulty=2)[0], examples(task, difficulty=9)[0]
    gradients = []
    for company in ([short], [short, long]):
        model.zero_grad()
        model(batch_of(task, company), Fixed(3)).answer[0].backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


def test_depth_embeddings_beyond_the_table_use_its_last_row():
    model = DepthRecurrent(tiny("graph", model__core__depth_rows=3).model).eval()
    scene = model.perception(batch_of("graph", examples("graph", num=2)))
    start = State(hidden=scene.first)
    assert torch.equal(model.core(start, scene, 3).hidden, model.core(start, scene, 9).hidden)
    assert not torch.equal(model.core(start, scene, 2).hidden, model.core(start, scene, 3).hidden)


OFF = {"gate_bias": None, "depth_rows": None, "dropout": 0.0, "attention_dropout": 0.0}
SWITCHES = {
    **{"gate_bias": -2.0, "depth_rows": 4, "layer_scale": 1e-4, "recall": True, "state_norm": True},
    **{"state_noise": 0.5, "dropout": 0.5, "attention_dropout": 0.5},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_changes_the_step(name):
    """Every ingredient does something when on; the random ones only in training."""
    base = tiny("graph", **{f"model__core__{key}": value for key, value in OFF.items()})
    off = DepthRecurrent(base.model)
    on = DepthRecurrent(changed(base, **{f"model__core__{name}": SWITCHES[name]}).model)
    on.load_state_dict(off.state_dict(), strict=False)
    scene = off.eval().perception(batch_of("graph", examples("graph", num=3)))
    start = State(hidden=torch.randn_like(scene.first))

    def differs(model):
        return not torch.equal(off.core(start, scene, 1).hidden, model.core(start, scene, 1).hidden)

    only_in_training = name in ("state_noise", "dropout", "attention_dropout")
    assert differs(on.train())
    assert differs(on.eval()) != only_in_training
    assert (on.num_parameters > off.num_parameters) != only_in_training


@pytest.mark.parametrize("task", TASKS)
def test_dropout_also_touches_the_input_and_the_readout(task):
    model = DepthRecurrent(tiny(task, model__core__dropout=0.5).model)
    batch = batch_of(task, examples(task, num=3))
    assert not torch.equal(model.perception(batch).first, model.perception(batch).first)
    scene = model.eval().perception(batch)
    state = State(hidden=scene.first)
    assert torch.equal(scene.first, model.perception(batch).first)
    assert torch.equal(model.read(state, scene), model.read(state, scene))
    model.train()
    assert not torch.equal(model.read(state, scene), model.read(state, scene))


def test_recall_sees_the_input_at_every_step():
    model = DepthRecurrent(tiny("graph", "frontier").model).eval()
    scene = model.perception(batch_of("graph", examples("graph", num=1)))
    start = State(hidden=torch.randn_like(scene.first))
    other = replace(scene, first=scene.first.roll(1, dims=1))
    assert not torch.equal(model.core(start, scene, 5).hidden, model.core(start, other, 5).hidden)


def test_without_identity_the_names_of_nodes_carry_nothing():
    """Renaming and reordering nodes changes no logit of the frontier model."""
    model = DepthRecurrent(get_preset("graph", "frontier").model).eval()
    example = examples("graph", "cut", 4)[0]
    shuffled = {**example.question, "nodes": example.question["nodes"][::-1]}
    renamed = type(example)(question=shuffled, label=example.label, difficulty=4)
    one, other = (model(batch_of("graph", [e]), Fixed(9)).answer for e in (example, renamed))
    assert_close(one, other)


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.999, 1.0])
def test_dropout_masks_drop_the_right_share_and_keep_the_mean(chance):
    strip = dropout_strip(200_000, chance, torch.zeros(1))
    assert (strip == 0).float().mean().item() == pytest.approx(chance, abs=0.005)
    kept = strip[strip != 0]
    assert_close(kept, torch.full_like(kept, 1 / (1 - chance) if chance < 1 else 1.0))


@pytest.mark.parametrize("num", [2_000, 11_294, 46_469])
def test_every_step_and_place_has_its_own_dropout_mask(num):
    strip = dropout_strip(num, 0.5, torch.zeros(1))
    masks = {(t, place): dropout_mask(strip, (num,), t, place) for t in range(1, 17) for place in range(4)}
    assert all(torch.equal(mask, dropout_mask(strip, (num,), *at)) for at, mask in masks.items())
    for one in masks:
        same = [other for other in masks if other != one and torch.equal(masks[other], masks[one])]
        assert len(same) <= 1


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("gate_bias", [-2.0, None])
def test_the_fused_update_has_the_gradient_of_finite_differences(activation, gate_bias):
    """Dropout masks included; and its value is that of the readable twin."""
    small = {"width": 8, "heads": 2, "feedforward": 12, "layer_scale": 0.5}
    core = {**small, "activation": activation, "gate_bias": gate_bias}
    config = tiny("graph", **{f"model__core__{name}": value for name, value in core.items()})
    step = DepthRecurrent(config.model).double().train().core.prepare()
    weights = [None if one is None else one.detach().clone().requires_grad_() for one in step.weights]
    inputs = [torch.randn(1, 5, 8, dtype=torch.double, requires_grad=True) for _ in range(3)]
    masks = [(torch.rand(1, 5, size) > 0.4).double() / 0.6 for size in (8, 12, 8)]

    def update(x, mixed, before, *weights):
        return Update.apply(x, mixed, before, activation, *masks, *weights)[0]

    assert torch.autograd.gradcheck(update, (*inputs, *weights))
    with torch.no_grad():
        assert_close(update(*inputs, *step.weights), step._update(*inputs, *masks)[0])

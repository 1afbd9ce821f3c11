"""The evidence on depth embeddings and on the gate's gradient: whole pieces, and the figures they rest on."""

import pytest
import torch
from conftest import batch_of, tiny
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from deepen.evidence import PIECES
from deepen.evidence.depth_embedding import gate_rows, with_other_rows
from deepen.evidence.gate_gradient import attenuations, predicted
from deepen.evidence.piece import Evidence, Plan, Trained
from deepen.evidence.reproduce import reproduce
from deepen.evidence.tables import claims_table, comparison_table, select
from deepen.model import DepthRecurrent
from deepen.shapes import State
from deepen.tasks import examples


@pytest.fixture(scope="module")
def depth_embedding(tmp_path_factory):
    out = tmp_path_factory.mktemp("depth-embedding")
    plan = Plan(budget="smoke", tasks=("graph", "logic"))
    return reproduce(PIECES["depth-embedding"], plan, out / "runs", out), out


def assert_rendered(piece, evidence, out, words):
    assert Evidence.model_validate_json((out / "smoke.json").read_text()) == evidence
    assert (out / "smoke.png").stat().st_size > 10_000
    assert comparison_table(piece.compare(evidence)).count("\n") > 3
    shown = piece.table(evidence) + claims_table(piece.claims(evidence))
    assert all(word in shown for word in words)


def test_depth_embedding_from_nothing(depth_embedding):
    evidence, out = depth_embedding
    assert_rendered(PIECES["depth-embedding"], evidence, out, ("reinit 5678", "unseen, T beyond", "t=24"))
    assert len(select(evidence.rows, task="graph", kind="accuracy")) == (6 + 1) * 8 * 8
    assert [row["t"] for row in select(evidence.rows, task="logic", kind="gate")] == list(range(1, 25))


def test_rows_that_no_step_reads_change_nothing(depth_embedding):
    """Columns of trained T are the same to the last digit in every variant; later ones are not."""
    evidence, _ = depth_embedding
    rows = select(evidence.rows, task="graph", trained="published", kind="accuracy")
    variants = {(row["variant"], row["draw"]) for row in rows}
    assert len(variants) == 6

    def measured(steps_range, variant, draw):
        return [
            (row["difficulty"], row["steps"], row["accuracy"], row["true_positive_rate"])
            for row in select(rows, variant=variant, draw=draw, steps_range=steps_range)
        ]

    baseline = measured("in", "baseline", None)
    assert len(baseline) == 8 * 5
    assert all(measured("in", *variant) == baseline for variant in variants)
    assert any(measured("beyond", *variant) != measured("beyond", "baseline", None) for variant in variants)
    claims = PIECES["depth-embedding"].claims(evidence)
    assert claims[0].figures.endswith("columns of trained T differ by 0")


def made_up(accuracies, gates):
    """Evidence on graphs with the given cells of 8 hops and the given mean gates."""
    own = {"task": "graph", "trained": "published"}
    rows = [
        {**own, "kind": "accuracy", "variant": variant, "draw": draw, "difficulty": 8, "steps": steps}
        | {"difficulty_range": "out", "steps_range": "in" if steps == 8 else "beyond"}
        | {"accuracy": accuracy, "true_positive_rate": 1.0, "num": 500}
        for (variant, draw), values in accuracies.items()
        for steps, accuracy in zip((8, 12, 20), (0.5, *values), strict=True)
    ]
    rows += [
        {**own, "kind": "gate", "t": t, "mean": value, "std": 0.1, "error": 0.001}
        | {"steps_range": "in" if t <= 8 else "beyond"}
        for t, value in enumerate(gates, start=1)
    ]
    about = {
        "run": "graph-paper",
        "seed": 42,
        "updates": 7480,
        "share": 1.0,
        "share_of_examples": 1.0,
        "batch": 64,
    }
    run = Trained(**about, parameters=1, seconds=1.0, code=None, threads=1)
    return Evidence(piece="depth-embedding", plan=Plan(), rows=tuple(rows), runs=(run,), provenance={})


@pytest.mark.parametrize(
    ("clamped", "after", "verdicts"),
    [
        ((0.932, 1.0), 0.496, ["confirmed", "confirmed", "confirmed"]),
        # The means agree, because the cells differ in opposite directions.
        ((0.982, 0.952), 0.47, ["confirmed, with a caveat", "confirmed", "confirmed, with a caveat"]),
        ((0.916, 1.0), 0.496, ["not confirmed", "confirmed, with a caveat", "confirmed"]),
        ((0.862, 0.99), 0.8, ["not confirmed", "not confirmed", "not confirmed"]),
    ],
)
def test_verdicts_on_depth_embeddings(clamped, after, verdicts):
    settled = (0.932, 1.0)
    accuracies = {("baseline", None): settled, ("zero", None): settled, ("clamp", None): clamped}
    accuracies |= {("reinit", draw): settled for draw in (1234, 5678, 9012)}
    gates = [0.211, 0.287, 0.350, 0.435, 0.468, 0.490, 0.498, 0.500, after, 0.5]
    claims = PIECES["depth-embedding"].claims(made_up(accuracies, gates))
    assert [claim.verdict for claim in claims] == verdicts


def test_variants_replace_untrained_rows_only():
    model = DepthRecurrent(tiny("graph").model)
    before = model.core.depth.weight.detach().clone()
    variants = with_other_rows(model, 8)
    tables = {name: one.core.depth.weight.detach() for name, one in variants.items()}
    assert torch.equal(model.core.depth.weight, before)
    assert all(torch.equal(table[:8], before[:8]) for table in tables.values())
    assert torch.equal(tables["baseline", None], before)
    assert not tables["zero", None][8:].any()
    assert all(torch.equal(row, before[7]) for row in tables["clamp", None][8:])
    draws = [tables["reinit", draw][8:] for draw in (1234, 5678, 9012)]
    assert not torch.equal(draws[0], draws[1])
    assert all(abs(draw.std() / before[8:].std() - 1) < 0.2 for draw in draws)


@pytest.mark.parametrize("task", ["graph", "logic"])
def test_gate_statistics_leave_padding_out(task):
    """Slow twin: question by question, which needs no padding."""
    config = tiny(task)
    model = DepthRecurrent(config.model).eval()
    asked = [one for difficulty in (1, 5) for one in examples(task, difficulty=difficulty, num=3)]
    found = gate_rows(model, config, asked, 3)
    gates = [[], [], []]
    for one in asked:
        scene = model.perception(batch_of(task, [one]))
        state = State(hidden=scene.first)
        for t in range(1, 4):
            state = model.core(state, scene, t)
            gates[t - 1].append(state.gate.detach().flatten())
    for row, z in zip(found, map(torch.cat, gates), strict=True):
        assert row["mean"] == pytest.approx(z.mean().item(), abs=1e-5)
        assert row["std"] == pytest.approx(z.std().item(), rel=1e-2)


def test_gate_gradient_from_nothing(tmp_path):
    plan = Plan(budget="smoke")
    evidence = reproduce(PIECES["gate-gradient"], plan, tmp_path / "runs", tmp_path)
    words = (
        "| initial | logic | bias -2 | 0.0001 |",
        "| trained | graph | no gate | none |",
        "graph, trained",
    )
    assert_rendered(PIECES["gate-gradient"], evidence, tmp_path, words)
    assert len(evidence.rows) == (6 + 2 * 6) * 3
    judged = evidence.model_copy(update={"plan": Plan()})
    assert [claim.verdict for claim in PIECES["gate-gradient"].claims(judged)] == ["not confirmed"] * 2
    decays = [
        1.0 if row["gate_bias"] is None else predicted(row["gate_bias"], row["T"]) for row in evidence.rows
    ]
    rows = tuple(
        {**row, "attenuation": decay, "identity_path": decay}
        for row, decay in zip(evidence.rows, decays, strict=True)
    )
    as_calculated = judged.model_copy(update={"rows": rows})
    assert [claim.verdict for claim in PIECES["gate-gradient"].claims(as_calculated)] == ["confirmed"] * 2


@pytest.mark.parametrize(("task", "gate_bias"), [("graph", 0.0), ("logic", -2.0), ("logic", None)])
def test_gradient_norms_against_finite_differences(task, gate_bias):
    config = tiny(task, model__core__gate_bias=gate_bias, model__core__layer_scale=None)
    model = DepthRecurrent(config.model).double().eval()
    batch = batch_of(task, examples(task, difficulty=1, num=2))
    labels = batch.labels.double()
    scene = model.perception(batch)
    num_steps = 3

    def unrolled(first):
        state = State(hidden=first)
        for t in range(1, num_steps + 1):
            state = model.core(state, scene, t)
        return state

    def norm(loss, x, size=1e-5):
        """Every coordinate a little up and a little down."""
        total = 0.0
        for place in range(x.numel()):
            change = torch.zeros_like(x)
            change.view(-1)[place] = size
            total += ((loss(x + change) - loss(x - change)) / (2 * size)).item() ** 2
        return total**0.5

    with torch.no_grad():
        last = unrolled(scene.first)
        at_start = norm(lambda x: cross_entropy(model.read(unrolled(x), scene), labels), scene.first)
        at_end = norm(lambda x: cross_entropy(model.read(State(hidden=x), scene), labels), last.hidden)
    (row,) = attenuations(model, batch, (num_steps,))
    assert row["norm"] == pytest.approx(at_start, rel=1e-4)
    assert row["attenuation"] == pytest.approx(at_start / at_end, rel=1e-4)
    assert (row["identity_path"] is None) == (gate_bias is None)


def test_the_identity_path_is_not_all_that_arrives():
    """As the paper assumes, W_z = 0: its calculation is right, but the candidate carries the state too."""
    model = DepthRecurrent(tiny("logic", model__core__depth_rows=None).model).eval()
    with torch.no_grad():
        model.core.gate.weight.zero_()
    batch = batch_of("logic", examples("logic", difficulty=3, num=4))
    (row,) = attenuations(model, batch, (20,))
    assert row["identity_path"] == pytest.approx((1 - 0.1192) ** 20, rel=1e-2)
    assert row["attenuation"] == pytest.approx(1.0, rel=1e-2)  # (1 - z) + z


def test_the_identity_path_goes_channel_by_channel():
    """A gate that is shut in half of the channels and open in the others: half of them pass all of it."""
    model = DepthRecurrent(tiny("logic", model__core__depth_rows=None).model).eval()
    with torch.no_grad():
        model.core.gate.weight.zero_()
        model.core.gate.bias[:8], model.core.gate.bias[8:] = -30.0, 30.0
    batch = batch_of("logic", examples("logic", difficulty=3, num=4))
    (row,) = attenuations(model, batch, (20,))
    step, scene = model.begin(batch)
    state = State(hidden=scene.first)
    for t in range(1, 21):
        state = step(state, scene, t, state.hidden.shape[1])
    hidden = state.hidden.detach().requires_grad_()
    loss = cross_entropy(model.read(State(hidden=hidden), scene), batch.labels)
    (gradient,) = torch.autograd.grad(loss, hidden)
    passed = (gradient[..., :8].norm() / gradient.norm()).item()
    assert row["identity_path"] == pytest.approx(passed, rel=1e-4)
    assert 0.2 < row["identity_path"] < 0.98

"""Training: schedules, the same bits after any kill, and errors that leave everything intact."""

import signal
import subprocess
import sys
import time
from collections import Counter
from math import cos, isfinite, pi

import pytest
import torch
from conftest import assert_close, batch_of, changed, tiny
from torch.nn.functional import binary_cross_entropy_with_logits

from deepen.batches import Stream
from deepen.config import ConfigError
from deepen.model import DepthRecurrent
from deepen.runs import Run, RunError, load_model
from deepen.tasks import examples
from deepen.train import TrainingError, learning_rate, train, training_loss

TASKS = ("graph", "logic", "family")


def test_cosine_falls_from_the_first_update_to_zero():
    config = tiny("logic", train__updates=100, train__lr=0.5).train
    for update in (0, 17, 50, 99):
        assert learning_rate(config, update) == pytest.approx(0.25 * (1 + cos(pi * update / 100)))


@pytest.mark.parametrize("warm_up", [0.3, 0.1])
def test_one_cycle_is_the_frameworks_one_cycle(warm_up):
    config = tiny("graph", "frontier", train__updates=1000, train__lr=0.5, train__warm_up=warm_up).train
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    stock = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.5, total_steps=1000, pct_start=warm_up)
    one_update = 0.5 * pi / 2 / (1000 * warm_up)  # theirs turns one earlier
    for update in range(1000):
        assert learning_rate(config, update) == pytest.approx(stock.get_last_lr()[0], abs=one_update)
        optimiser.step()
        if update < 999:
            stock.step()


@pytest.mark.parametrize("task", TASKS)
def test_a_small_set_is_learnt_by_heart(task, tmp_path):
    core = {"width": 32, "layer_scale": None, "dropout": 0.0, "attention_dropout": 0.0}
    config = tiny(
        task,
        **{f"model__core__{name}": value for name, value in core.items()},
        data__train_set=16,
        data__batch=16,
        train__updates=200,
        train__steps=(2, 3),
        train__lr=2e-3,
    )
    losses = []
    train(config, tmp_path / "run", watch=lambda update, loss, accuracy: losses.append(loss))
    assert len(losses) == 200
    assert sum(losses[-20:]) / 20 < 0.1 < 0.5 < losses[0]


def weights(path):
    return Run(path).weights_file.read_bytes()


@pytest.mark.parametrize(
    ("task", "preset"),
    [("graph", "frontier"), ("logic", "paper"), ("family", "paper"), ("logic", "frontier")],
)
def test_same_seed_same_bits_other_seed_other_bits(task, preset, tmp_path):
    config = tiny(task, preset, train__updates=6)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(changed(config, seed=seed), tmp_path / name)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    a, c = (load_model(tmp_path / name, "cpu")[0].state_dict() for name in "ac")
    assert any(not torch.equal(a[name], c[name]) for name in a)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize(
    ("task", "preset", "stops"),
    [
        ("graph", "frontier", (3, 27)),
        ("graph", "paper", (21,)),
        ("logic", "paper", (33,)),
        ("family", "paper", (25,)),
    ],
)
def test_a_stopped_run_resumes_to_the_same_bits(task, preset, stops, tmp_path):
    config = tiny(task, preset, train__detached_start=0.5)
    train(config, tmp_path / "whole")
    for stop in stops:

        def watch(update, loss, accuracy, stop=stop):
            if update == stop:
                raise StoppedError

        with pytest.raises(StoppedError):
            train(config, tmp_path / "torn", resume=True, watch=watch, checkpoint_seconds=0)
    train(config, tmp_path / "torn", resume=True)
    assert weights(tmp_path / "torn") == weights(tmp_path / "whole")
    rows = [
        [{key: row[key] for key in ("update", "loss", "accuracy", "lr")} for row in Run(path).metrics()]
        for path in (tmp_path / "whole", tmp_path / "torn")
    ]
    assert rows[0] == rows[1]
    assert [row["update"] for row in rows[0]] == [20, 40]


def test_kill_nine_and_resume_end_in_the_same_bits(tmp_path):
    """The whole program is killed, several times, wherever it happens to be."""
    config = tiny("graph", "frontier", train__updates=400)
    file = tmp_path / "config.json"
    file.write_text(config.model_dump_json())
    script = (
        "import json, sys, torch; from pathlib import Path; from deepen import train; "
        "from deepen.config import parse_config; torch.set_num_threads(1); "
        "train(parse_config(json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2]), resume=True, "
        "checkpoint_seconds=0)"
    )
    torn = tmp_path / "torn"
    command = [sys.executable, "-c", script, str(file), str(torn)]
    killed_at = []
    for rows in (2, 7):
        process = subprocess.Popen(command)
        while process.poll() is None and len(Run(torn).metrics()) < rows:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
        killed_at.append(len(Run(torn).metrics()))
    assert killed_at[-1] < 20
    assert not Run(torn).weights_file.exists()
    subprocess.run(command, check=True)
    train(config, tmp_path / "whole")
    assert weights(torn) == weights(tmp_path / "whole")
    assert not list(torn.glob(".*.unfinished"))


def test_a_torn_row_of_metrics_is_dropped(tmp_path):
    config = tiny("graph", "frontier")
    train(config, tmp_path / "run")
    run = Run(tmp_path / "run")
    with run.metrics_file.open("a") as file:
        file.write('{"update": 60, "lo')
    assert [row["update"] for row in run.metrics()] == [20, 40]
    assert run.rewind_metrics(20) == run.metrics()[-1]["seconds"]
    assert [row["update"] for row in run.metrics()] == [20]


def test_a_non_finite_loss_stops_and_leaves_the_last_good_checkpoint(tmp_path):
    config = tiny("graph", "frontier", train__updates=60)

    def poison(update, loss, accuracy):
        if update == 25:
            with torch.no_grad():
                for model in live:
                    model.core.gate.bias.fill_(float("nan"))

    live = []
    original = DepthRecurrent.__init__

    def remember(self, *arguments):
        original(self, *arguments)
        live.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DepthRecurrent, "__init__", remember)
        with pytest.raises(TrainingError, match=r"update 26: loss nan.*checkpoint of update 24 is intact"):
            train(config, tmp_path / "run", watch=poison, checkpoint_seconds=0)
    train(config, tmp_path / "run", resume=True)  # goes on from update 24 with healthy weights
    assert isfinite(Run(tmp_path / "run").metrics()[-1]["loss"])
    train(config, tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_one_update_is_the_frameworks_adamw_after_clipping(tmp_path):
    """Slow twin: the same update by hand, with the stock optimiser and stock clipping."""
    config = tiny(
        "graph", "frontier", train__updates=1, train__lr=0.1, train__weight_decay=0.5, train__clip=0.01
    )
    train(config, tmp_path)
    torch.manual_seed(config.seed)
    model = DepthRecurrent(config.model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1 / 25, weight_decay=0.5)
    loss, _ = training_loss(model, Stream(config)[0], config, update=0)
    loss.backward()
    norm = torch.sqrt(sum(parameter.grad.square().sum() for parameter in model.parameters()))
    assert norm > 0.01
    for parameter in model.parameters():
        parameter.grad *= 0.01 / norm
    optimiser.step()
    trained = load_model(tmp_path)[0].state_dict()
    for name, tensor in model.state_dict().items():
        assert_close(trained[name], tensor)


def test_t_is_drawn_evenly_from_its_range():
    config = tiny("graph", "frontier", train__steps=(2, 5))
    model = DepthRecurrent(config.model)
    batch = batch_of("graph", examples("graph", num=1))
    with torch.no_grad():
        drawn = Counter(
            training_loss(model, batch, config, update)[1].num_steps.item() for update in range(400)
        )
    assert set(drawn) == {2, 3, 4, 5}
    assert min(drawn.values()) > 70


def test_detached_start_cuts_the_gradient_but_not_the_thought():
    """T steps with gradient, up to as many before them without: the answer is that of all of them."""
    config = tiny("graph", "frontier", model__core__state_noise=0.0, train__steps=(6, 6))
    model = DepthRecurrent(config.model)
    batch = batch_of("graph", examples("graph", num=4))
    longer = set()
    last = config.train.updates
    for update in range(last, last + 20):
        torn, _ = training_loss(model, batch, changed(config, train__detached_start=1.0), update)
        wholes = {
            steps: training_loss(model, batch, changed(config, train__steps=(steps, steps)), update)[0]
            for steps in range(7, 13)
        }
        steps = min(wholes, key=lambda steps: abs(wholes[steps] - torn))
        assert_close(torn, wholes[steps])
        longer.add(steps)
        gradients = [torch.autograd.grad(loss, model.core.gate.bias)[0] for loss in (wholes[steps], torn)]
        assert not torch.allclose(*gradients)
    assert longer == set(range(7, 13))


@pytest.mark.parametrize("task", ["graph", "logic"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_segments_change_no_gradient(task, alpha):
    """Dropout and noise included: a segment that is taken twice sees the same random numbers."""
    config = tiny(task, train__steps=(7, 7), train__alpha=alpha, model__core__state_noise=0.3)
    model = DepthRecurrent(config.model).train()
    batch = batch_of(task, examples(task, difficulty=4, num=6))
    gradients = []
    for segment in (None, 1, 3, 6):
        loss, _ = training_loss(model, batch, changed(config, train__segment=segment), update=5)
        gradients.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for other in gradients[1:]:
        for whole, cut in zip(gradients[0], other, strict=True):
            assert_close(whole, cut)


def test_alpha_supervises_every_step():
    config = tiny("graph", "frontier", train__steps=(4, 4), train__alpha=1.0)
    model = DepthRecurrent(config.model)
    batch = batch_of("graph", examples("graph", num=4))
    loss, output = training_loss(model, batch, config, update=0)
    assert output.steps == (1, 2, 3, 4)
    every = binary_cross_entropy_with_logits(output.logits, batch.labels[:, None].expand(4, 4))
    assert_close(loss, every)
    silent, _ = training_loss(model, batch, changed(config, train__alpha=0.0), update=0)
    assert silent.item() != pytest.approx(loss.item())


def test_an_existing_run_is_never_overwritten(tmp_path):
    config = tiny("graph", "frontier", train__updates=3)
    train(config, tmp_path / "run")
    before = weights(tmp_path / "run")
    with pytest.raises(RunError, match="already holds a run"):
        train(config, tmp_path / "run")
    with pytest.raises(RunError, match="another config"):
        train(changed(config, seed=9), tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == before
    train(config, tmp_path / "run", resume=True)  # finished: nothing left to do
    assert weights(tmp_path / "run") == before


def test_a_checkpoint_of_another_run_is_never_taken_over(tmp_path):
    """A folder that had lost its config.json once gave the old weights a new name."""
    config = tiny("graph", "frontier", train__updates=3)
    run = train(config, tmp_path / "run")
    run.config_file.unlink()
    with pytest.raises(RunError, match="holds files of a run but no"):
        train(changed(config, seed=1), tmp_path / "run")
    other = train(changed(config, seed=1), tmp_path / "other")
    other.checkpoint_file.write_bytes(run.checkpoint_file.read_bytes())
    with pytest.raises(RunError, match="is not a checkpoint of run"):
        train(changed(config, seed=1), tmp_path / "other", resume=True)
    other.checkpoint_file.write_bytes(run.weights_file.read_bytes())
    with pytest.raises(RunError, match="is not a checkpoint of run"):
        train(changed(config, seed=1), tmp_path / "other", resume=True)


def test_two_processes_cannot_work_on_one_run(tmp_path):
    config = tiny("graph", "frontier", train__updates=3)
    with Run(tmp_path / "run").alone(), pytest.raises(RunError, match="another process"):
        train(config, tmp_path / "run")
    train(config, tmp_path / "run")


def test_what_a_killed_process_left_behind_is_cleared_away(tmp_path):
    config = tiny("graph", "frontier", train__updates=3)
    run = train(config, tmp_path / "run")
    left = run.path / ".checkpoint.safetensors.unfinished"
    left.write_bytes(b"half")
    train(config, run.path, resume=True)
    assert not left.exists()


def test_resuming_with_other_threads_warns_that_bits_may_differ(tmp_path):
    config = tiny("graph", "frontier", train__updates=3)
    run = train(config, tmp_path)
    run.config_file.write_text(run.config_file.read_text().replace('"threads": 1', '"threads": 64'))
    with pytest.warns(UserWarning, match="began with threads 64, this is 1"):
        train(config, tmp_path, resume=True)


def test_damaged_metrics_are_refused_and_missing_ones_do_no_harm(tmp_path):
    config = tiny("graph", "frontier", train__updates=3)
    run = train(config, tmp_path)
    run.metrics_file.write_text('["foreign"]\n')
    with pytest.raises(RunError, match="line 1 is not a row of metrics"):
        run.metrics()
    run.metrics_file.write_text("")
    assert train(config, tmp_path, resume=True).seconds == 0.0


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(tmp_path):
    for device in ("gpu", "cuda:7"):
        with pytest.raises(RunError, match=f"device '{device}' cannot be used"):
            train(tiny("graph", "frontier"), tmp_path / "run", device=device)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data__distribution": "papre"}, "no distribution 'papre'"),
        ({"grid__difficulties": (40,), "grid__distribution": "paper"}, "at most 20 nodes"),
        ({"model__perception__kind": "hierarchical"}, "cannot be perceived"),
        ({"model__perception__vocabulary": 5}, "too many for this model"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(changes, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        train(tiny("graph", "frontier", **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()

"""Run folders: what they say, and that broken ones are refused with a reason."""

import json

import pytest
import torch
from conftest import tiny

from deepen.runs import Run, RunError, load_model
from deepen.train import train


def test_a_run_folder_says_what_it_is(tmp_path):
    config = tiny("graph", "frontier", train__updates=3)
    run = train(config, tmp_path / "run")
    content = json.loads(run.config_file.read_text())
    assert content["run_id"] == config.run_id
    assert run.config == config
    assert {"code", "libraries", "machine"} <= content.keys()
    model, loaded = load_model(run.weights_file, "cpu")
    assert loaded == config
    assert not model.training


def broken(path, what):
    run = Run(path)
    data = run.weights_file.read_bytes()
    if what == "truncated":
        run.weights_file.write_bytes(data[: len(data) // 2])
    elif what == "foreign":
        from safetensors.torch import save_file

        save_file({"weight": torch.zeros(3)}, run.weights_file)
    elif what == "empty":
        run.weights_file.write_bytes(b"")
    elif what == "pickle":
        torch.save({"weight": torch.zeros(3)}, run.weights_file)
    elif what == "misfit":
        run.weights_file.write_bytes(data.replace(b'"core.gate.bias"', b'"core.hate.bias"'))
    elif what == "missing":
        run.weights_file.unlink()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("truncated", "not a readable safetensors file, maybe truncated"),
        ("empty", "not a readable safetensors file"),
        ("pickle", "not a readable safetensors file"),
        ("foreign", "not written by Deepen"),
        ("misfit", "does not fit its own config"),
        ("missing", "no trained weights yet"),
    ],
)
def test_broken_weights_are_refused_with_a_reason(what, words, tmp_path):
    train(tiny("graph", "frontier", train__updates=1), tmp_path)
    broken(tmp_path, what)
    with pytest.raises(RunError, match=words):
        load_model(tmp_path, "cpu")


def test_a_truncated_checkpoint_is_refused_and_left_alone(tmp_path):
    config = tiny("graph", "frontier", train__updates=2)
    run = train(config, tmp_path)
    half = run.checkpoint_file.read_bytes()[:1000]
    run.checkpoint_file.write_bytes(half)
    with pytest.raises(RunError, match="maybe truncated"):
        train(config, tmp_path, resume=True)
    assert run.checkpoint_file.read_bytes() == half


def test_a_damaged_config_is_refused(tmp_path):
    run = train(tiny("graph", "frontier", train__updates=1), tmp_path)
    run.config_file.write_text('{"run_id": ')
    with pytest.raises(RunError, match="damaged"):
        _ = run.config
    with pytest.raises(RunError, match="not a run folder"):
        _ = Run(tmp_path / "nowhere").config

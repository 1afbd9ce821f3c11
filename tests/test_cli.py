"""The command line as a user meets it: help, a whole small run, and every kind of mistake."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import deepen, tiny

from deepen.__main__ import main
from deepen.runs import Run
from deepen.train import train

SMALL = ["--model.core.width", "16", "--model.core.feedforward", "32", "--data.batch", "8"]


@pytest.fixture
def inside(capsys, monkeypatch):
    """Run the command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments, cwd):
        monkeypatch.chdir(cwd)
        try:
            main(arguments)
            code = 0
        except SystemExit as error:
            code = error.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    "verb", [(), ("train",), ("grid",), ("audit",), ("solve",), ("train", "logic"), ("train", "all")]
)
def test_help(verb, inside, tmp_path):
    code, out, errors = inside(*verb, "--help", cwd=tmp_path)
    assert code == 0
    assert "usage: deepen" in out
    assert errors == ""


def test_help_shows_the_defaults_of_the_chosen_preset(inside, tmp_path):
    assert "(default: 0.6)" in inside("train", "graph", "--preset", "frontier", "--help", cwd=tmp_path)[1]
    assert "(default: 15000)" in inside("train", "logic", "--help", cwd=tmp_path)[1]


@pytest.mark.parametrize("task", ["graph", "logic", "family"])
def test_train_grid_and_solve(task, inside, tmp_path):
    command = ["train", task, *SMALL, "--train.updates", "4", "--data.train-set", "16"]
    made = deepen(*command, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    run = made.stdout.strip()
    code, _, errors = inside(*command, cwd=tmp_path)
    assert code == 2
    assert "--resume" in errors
    code, out, errors = inside(
        *("grid", run, "--num-examples", "4", "--difficulties", "2", "3", "--json"), cwd=tmp_path
    )
    assert code == 0, errors
    assert json.loads(out)["config"]["difficulties"] == [2, 3]
    written = {file.name for file in (tmp_path / run).iterdir()}
    assert {"config.json", "metrics.jsonl", "model.safetensors", "grid.json", "frontier.png"} <= written
    code, out, errors = inside("solve", task, "--model", run, "--steps", "3", "--json", cwd=tmp_path)
    assert code == 0, errors
    assert len(json.loads(out)["trace"]) == 3


def test_solve_works_at_once(inside, tmp_path):
    question = {"edges": [["a", "b"], ["b", "c"]], "source": "a", "target": "c"}
    backwards = {**question, "source": "c", "target": "a"}
    for asked, word in ((question, "yes"), (backwards, "no")):
        code, out, _ = inside("solve", "graph", json.dumps(asked), "--steps", "12", cwd=tmp_path)
        assert code == 0
        assert out.startswith(f"{word}  (probability")
    piped = deepen("solve", "graph", "-", "--json", cwd=tmp_path, stdin=json.dumps(backwards))
    assert json.loads(piped.stdout)["label"] is False
    code, out, errors = inside("solve", "graph", cwd=tmp_path)
    assert code == 0
    assert out.startswith("yes")
    assert "the true answer: yes" in errors


def test_a_shipped_checkpoint_can_be_measured(tmp_path):
    sizes = ["--difficulties", "3", "--steps", "2", "3", "--num-examples", "20"]
    refused = deepen("grid", "graph", *sizes, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--out" in refused.stderr
    done = deepen("grid", "graph", *sizes, "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3   50 100" in done.stdout
    assert (tmp_path / "here" / "frontier.png").exists()


MISTAKES = [
    (["fly"], "unknown verb 'fly'"),
    (["train"], "expected a task"),
    (["train", "chess"], "invalid choice 'chess'"),
    (["train", "graph", "--preset", "best"], "invalid choice 'best'"),
    (["train", "graph", "--train.lrr", "1"], "--train.lr"),
    (["train", "graph", "--train.lr", "fast"], "could not convert"),
    (["train", "graph", "--train.lr", "-1"], "greater than 0"),
    (["train", "graph", "--train.steps", "8", "5"], "train.steps must be"),
    (["train", "graph", "--model.core.heads", "5"], "must split into 5 heads"),
    (["train", "graph", "--device", "cuda:7"], "device 'cuda:7' cannot be used"),
    (["train", "graph", "--device", "gpu"], "device 'gpu' cannot be used"),
    (["train", "graph", "--config", "nowhere.json"], "nowhere.json"),
    (["train", "graph", "--config", "misspelt.json"], "unknown key 'sede' in RunConfig; did you mean 'seed'"),
    (["train", "graph", "--config", "torn.json"], "not JSON"),
    (["train", "graph", "--config", "hollow.json"], "bad config"),
    (["train", "graph", "--config", "misspelt.json", "--preset", "paper"], "leave out --preset"),
    (["train", "graph", "--data.train-set", "10"], "smaller than one batch"),
    (["train", "graph", "--seed", "9" * 25], "less than"),
    (["train", "graph", "--config", "logic.json"], "a config for 'logic'"),
    (["grid", "nowhere"], "no run folder or weights file 'nowhere'"),
    (["grid", "."], "does not exist"),
    (["grid", "graph", "--out", "x", "--difficulties", "0"], "greater than 0"),
    (["grid", "graph", "--out", "x", "--distribution", "papre"], "no distribution 'papre'"),
    (["grid", "graph", "--out", "x", "--steps"], "one or more increasing numbers"),
    (["grid", "graph", "--out", "x", "--steps", "3", "2"], "increasing"),
    (["grid", "graph", "--out", "torn.json"], "torn.json"),
    (["audit", "chess"], "invalid choice 'chess'"),
    (["audit", "graph", "--distribution", "papre"], "no distribution 'papre'"),
    (["audit", "graph", "--difficulties", "40"], "at most 20 nodes"),
    (["audit", "graph", "--num-examples", "0"], "at least 2"),
    (["audit", "graph", "--train-difficulties", "5", "1"], "the smallest and the largest"),
    (["audit", "graph", "--train-difficulties", "0", "3"], "at least 1"),
    (["audit", "logic", "--distribution", "certified", "--difficulties", "400"], "at most 64"),
    (["solve", "graph", "{"], "not JSON"),
    (["solve", "graph", "[" * 100_000], "not JSON"),
    (["solve", "graph", '{"edges": [], "source": 1, "target": 2}'], "the graph is empty"),
    (["solve", "graph", '{"edges": [[1, 2]], "source": 1, "target": 3}'], "node 3 is not in the graph"),
    (["solve", "graph", '{"edges": [[1, 2]], "source": 1, "target": 2}', "--steps", "0"], "at least 1"),
    (["solve", "all", "(T&F)|G"], "unknown symbol 'G'"),
    (["solve", "all", "--model", "logic"], "a model for 'logic', not for 'all'"),
    (["solve", "logic", "T", "--model", "graph"], "a model for 'graph', not for 'logic'"),
    (["solve", "graph", "--model", "torn.json"], "not a readable safetensors file"),
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with some bad files in it."""
    folder = tmp_path_factory.mktemp("desk")
    good = tiny("graph").model_dump(mode="json")
    (folder / "misspelt.json").write_text(json.dumps({**good, "sede": 1}))
    (folder / "torn.json").write_text(json.dumps(good)[:100])
    (folder / "hollow.json").write_text('{"run_id": 1}')
    (folder / "logic.json").write_text(tiny("logic").model_dump_json())
    return folder


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_mistake_gets_one_clear_line_and_writes_nothing(arguments, words, inside, desk):
    before = sorted(desk.rglob("*"))
    code, out, errors = inside(*arguments, cwd=desk)
    assert code == 2
    assert out == ""
    assert words in errors
    assert errors.count("\n") == 1
    assert sorted(desk.rglob("*")) == before


def test_the_program_itself_ends_with_the_same_line(desk):
    done = deepen("solve", "logic", "T&", cwd=desk)
    assert done.returncode == 2
    assert done.stderr.startswith("deepen: the expression ends")
    assert done.stderr.count("\n") == 1


def test_the_task_may_come_after_the_flags(inside, tmp_path):
    command = ["train", *SMALL, "--train.updates", "1", "--data.train-set", "16", "--out", "run", "logic"]
    code, _, errors = inside(*command, cwd=tmp_path)
    assert code == 0, errors
    assert Run(tmp_path / "run").config.task == "logic"


def test_a_run_can_be_repeated_from_its_own_config(tmp_path):
    run = train(tiny("graph", "frontier", train__updates=3), tmp_path / "first")
    done = deepen("train", "graph", "--config", str(run.config_file), "--out", "second", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Run(tmp_path / "second").config == run.config


def test_an_interrupted_training_says_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "deepen", "train", "graph", "--preset", "frontier", "--out", "run"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Who runs these tests in the background of a shell ignores it, and all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not Run(tmp_path / "run").metrics() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume continues run" in errors
    assert "Traceback" not in errors

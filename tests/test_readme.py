"""What the README tells people to type works."""

import json
import re
import shlex
import subprocess

import pytest
from conftest import ROOT
from test_serve_command import command as running_command

from deepen.__main__ import main

README = (ROOT / "README.md").read_text()
# What makes a long command short; the command itself stays as it is printed.
SHORTER = {
    "train": ["--train.updates", "2", "--data.train-set", "64", "--data.batch", "4"],
    "grid": ["--num-examples", "4"],
    "solve": [],
    "audit": ["--num-examples", "200", "--difficulties", "2", "4"],
    "bench": ["--rounds", "1"],
    "reproduce": [],
}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_block_does_what_its_comments_say(capsys):
    code, _ = blocks("python")
    names = {}
    exec(code, names)
    says_yes = [probability > 0.5 for probability in names["answer"].trace]
    assert says_yes == [False] * 2 + [True] * 10
    assert "20 of 20" in capsys.readouterr().out


def test_every_command_works_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("deepen")]
    assert len(commands) >= 7
    for line in commands:
        _, verb, *arguments = shlex.split(line, comments=True)
        if verb == "serve":  # does not end by itself
            continue
        main([verb, *arguments, *SHORTER[verb]])
    assert (tmp_path / "runs/mine/frontier.png").exists()
    assert "yes" in capsys.readouterr().out


def test_a_server_can_be_asked_as_it_says(capsys):
    code, client_code = blocks("python")
    (curl,) = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("curl")]
    with running_command() as (_, (host, port), _):
        here = f"http://{host}:{port}"
        names = {}
        exec("\n".join(line for line in code.splitlines() if line.startswith(("import", "question"))), names)
        exec(client_code.replace("http://127.0.0.1:8000", here), names)
        assert capsys.readouterr().out.splitlines() == ["True", "[0, 0, 1, 1]"]
        asked = shlex.split(curl.replace("http://127.0.0.1:8000", here))
        answered = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert json.loads(answered)["answers"][0]["label"] is True


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_tree_lists_every_file():
    for path in (ROOT / "src/deepen").iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            assert f"      {path.name}{'/' * path.is_dir()} " in README


def test_files_it_links_to_exist():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("task", ["graph", "logic", "family"])
def test_published_counts_in_the_text_are_the_published_ones(task):
    published = json.loads((ROOT / "src/deepen/evidence/published.json").read_text())["parameters"]
    assert f"{published[task]['depth_recurrent']:,}" in README

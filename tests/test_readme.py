"""What the README tells people to type works."""

import json
import re
import shlex

import pytest
from conftest import ROOT

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
    (code,) = blocks("python")
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
        main([verb, *arguments, *SHORTER[verb]])
    assert (tmp_path / "runs/mine/frontier.png").exists()
    assert "yes" in capsys.readouterr().out


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

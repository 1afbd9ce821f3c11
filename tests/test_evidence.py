"""Every piece of evidence at the smoke budget, and the rules by which results are judged."""

import json
from shutil import rmtree

import pytest
import torch
from conftest import ROOT, deepen

from deepen.__main__ import main
from deepen.evidence import PIECES
from deepen.evidence.baselines import Baselines, buckets
from deepen.evidence.pages import judged, read_best, write_pages
from deepen.evidence.piece import EvidenceError, Plan
from deepen.evidence.published import published_figures
from deepen.evidence.reproduce import reproduce
from deepen.evidence.supervision import settings
from deepen.evidence.tables import claims_table, comparison_table, select
from deepen.grid import draw_examples, tally
from deepen.peers import build
from deepen.presets import get_preset
from deepen.runs import RunError

TRAINED = ["frontier-graph", "frontier-logic", "frontier-family", "baselines", "supervision", "ponder"]


@pytest.mark.parametrize("name", TRAINED)
def test_a_piece_at_smoke_leaves_rows_a_picture_and_a_page(name, tmp_path):
    piece = PIECES[name]
    evidence = reproduce(piece, Plan(budget="smoke"), tmp_path / "runs", tmp_path / name)
    assert evidence.rows
    assert all(one.share < 0.01 for one in evidence.runs)
    picture = (tmp_path / name / "smoke.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert read_best(piece, tmp_path / name, "paper") == evidence, "the file holds what was returned"
    page, *rest = write_pages(PIECES, tmp_path, None)
    assert not rest
    text = page.read_text()
    assert piece.table(evidence) in text
    assert (tmp_path / name / "smoke.png").read_bytes() == picture, "the same rows, the same bytes"
    for claim, verdict in zip(piece.claims(evidence), judged(piece, evidence), strict=True):
        assert verdict == claim.model_copy(update={"verdict": "not tested"}), "a smoke test proves nothing"


@pytest.mark.parametrize("name", ["frontier-graph", "frontier-family", "supervision", "ponder"])
def test_a_piece_on_certified_examples(name, tmp_path):
    plan = Plan(budget="smoke", distribution="certified", tasks=PIECES[name].tasks[:1])
    jobs = PIECES[name].jobs(plan)
    assert {job.config.data.distribution for job in jobs} == {"certified"}
    assert {job.config.grid.distribution for job in jobs} == {"certified"}
    evidence = reproduce(PIECES[name], plan, tmp_path / "runs", tmp_path)
    assert read_best(PIECES[name], tmp_path, "certified") == evidence
    assert read_best(PIECES[name], tmp_path, "paper") is None
    assert PIECES[name].table(evidence)


def test_results_of_other_tasks_or_seeds_are_not_written_over(tmp_path):
    """Once `--tasks graph` silently replaced the rows of all three tasks."""
    for plan in (Plan(budget="smoke", tasks=("graph",)), Plan(budget="smoke", seeds=(7,), tasks=("graph",))):
        if plan.seeds:
            with pytest.raises(ValueError, match="holds results of tasks graph, seeds by default"):
                reproduce(PIECES["frontier-graph"], plan, tmp_path / "runs", tmp_path)
        else:
            reproduce(PIECES["frontier-graph"], plan, tmp_path / "runs", tmp_path)


def test_tasks_can_be_added_to_finished_results(tmp_path):
    piece, runs = PIECES["depth-embedding"], tmp_path / "runs"
    one, two = (Plan(budget="smoke", tasks=("graph", "logic")[:num]) for num in (1, 2))
    graph = reproduce(piece, one, runs, tmp_path)
    rmtree(runs)
    both = reproduce(piece, two, runs, tmp_path)
    assert select(both.rows, task="graph") == list(graph.rows)
    assert both.runs[: len(graph.runs)] == graph.runs
    assert {run.name.split("-")[0] for run in runs.iterdir()} == {"logic"}, "graph is not trained again"
    assert {row["task"] for row in both.rows} == {"graph", "logic"}
    with pytest.raises(ValueError, match="holds results of tasks graph logic"):
        reproduce(piece, one, runs, tmp_path)
    with pytest.raises(ValueError, match="seeds by default"):
        reproduce(piece, Plan(budget="smoke", seeds=(7,)), runs, tmp_path)


def test_a_page_follows_a_larger_budget(tmp_path):
    """Once the picture of the first budget stayed on the page for ever."""
    folder = tmp_path / "frontier-graph"
    evidence = reproduce(PIECES["frontier-graph"], Plan(budget="smoke"), tmp_path / "runs", folder)
    (page,) = write_pages(PIECES, tmp_path, None)
    assert "smoke.png" in page.read_text()
    larger = evidence.model_copy(update={"plan": Plan(budget="cpu")})
    (folder / "cpu.json").write_text(larger.model_dump_json())
    write_pages(PIECES, tmp_path, None)
    assert "smoke" not in page.read_text()
    (folder / "cpu.json").write_text(larger.model_copy(update={"piece": "ponder"}).model_dump_json())
    with pytest.raises(EvidenceError, match="holds results of ponder, not of frontier-graph"):
        write_pages(PIECES, tmp_path, None)


def test_finished_runs_are_used_again_and_damaged_ones_refused(tmp_path):
    plan = Plan(budget="smoke")
    piece = PIECES["frontier-graph"]
    first = reproduce(piece, plan, tmp_path / "runs", tmp_path / "out")
    weights = sorted((tmp_path / "runs").glob("*/model.safetensors"))
    before = [file.stat().st_mtime_ns for file in weights]
    again = reproduce(piece, plan, tmp_path / "runs", tmp_path / "other")
    assert again.rows == first.rows
    assert [file.stat().st_mtime_ns for file in weights] == before
    weights[0].write_bytes(b"broken")
    assert reproduce(piece, plan, tmp_path / "runs", tmp_path / "out") == first, "finished: not done again"
    (tmp_path / "out" / "smoke.json").unlink()
    with pytest.raises(RunError, match="not a readable"):
        reproduce(piece, plan, tmp_path / "runs", tmp_path / "out")


def test_what_was_measured_survives_an_interruption(tmp_path, monkeypatch):
    """Even if the run folders are gone: hours of training stand behind each line."""
    piece, plan = PIECES["supervision"], Plan(budget="smoke")
    whole = reproduce(piece, plan, tmp_path / "runs", tmp_path / "whole")
    measure, asked = piece.measure, []

    def interrupted(model, config, plan):
        asked.append(config.run_name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return measure(model, config, plan)

    monkeypatch.setattr(piece, "measure", interrupted)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        reproduce(piece, plan, tmp_path / "runs", out)
    unfinished = out / "smoke.unfinished.jsonl"
    assert len(unfinished.read_text().splitlines()) == 2
    unfinished.write_text(unfinished.read_text() + '{"plan": {"bud')  # torn by a kill
    with pytest.raises(ValueError, match=r"unfinished.jsonl holds results of tasks .*, seeds by default"):
        reproduce(piece, plan.model_copy(update={"seeds": (7,)}), tmp_path / "runs", out)
    for done in asked[:2]:
        rmtree(tmp_path / "runs" / done)
    again = reproduce(piece, plan, tmp_path / "runs", out)
    assert (again.rows, again.runs) == (whole.rows, whole.runs)
    assert not {one.name for one in (tmp_path / "runs").iterdir()} & set(asked[:2]), "not trained again"
    assert not unfinished.exists()
    unfinished.write_text("{}\n")
    with pytest.raises(EvidenceError, match="is damaged: delete it"):
        reproduce(piece, plan, tmp_path / "runs", out)


def test_the_command_line(tmp_path):
    done = deepen("reproduce", "list", cwd=tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(PIECES)
    done = deepen("reproduce", "frontier-graph", "--budget", "smoke", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["piece"] == "frontier-graph"
    (tmp_path / "README.md").write_text("<!-- claims -->\nold\n<!-- /claims -->\n")
    done = deepen("report", cwd=tmp_path)
    assert done.stdout.split() == ["experiments/frontier-graph/README.md"]
    assert "one thinking step a hop" in (tmp_path / "experiments/frontier-graph/README.md").read_text()
    assert "old" in (tmp_path / "README.md").read_text(), "a smoke test is no result"
    done = deepen("reproduce", "frontier-graph", "--budget", "smoke", cwd=tmp_path)
    assert "smoke.json is finished, and is only shown" in done.stderr
    (tmp_path / "experiments/frontier-graph/smoke.json").write_text("{}")
    done = deepen("report", cwd=tmp_path)
    assert done.returncode == 2
    assert "smoke.json holds no results: piece: Field required" in done.stderr


def test_bad_input_of_reproduce_and_report(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, why in (
        (["reproduce", "nothing"], "unknown piece 'nothing' (known: frontier-graph"),
        (["reproduce", "ponder", "--budget", "huge"], "--budget"),
        (["reproduce", "supervision", "--tasks", "logic"], "supervision is about graph, not about logic"),
        (["reproduce", "inference-cost", "--distribution", "certified"], "it has no certified ones"),
        (["reproduce", "inference-cost", "--seeds", "3"], "inference-cost trains nothing"),
        (["reproduce", "ponder", "--seeds", "1", "1"], "--seeds must be one or more different ones"),
        (["report"], "there is no README.md"),
        (["report", "--readme", "None"], "no results in experiments"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        error = capsys.readouterr().err
        assert why in error
        assert len(error.strip().splitlines()) == 1


def test_budgets():
    published = get_preset("logic", "act", 42)
    assert Plan(budget="paper").fitted(published) == published
    assert Plan(budget="cpu").fitted(get_preset("graph", "gnn", 1)) == get_preset("graph", "gnn", 1)
    assert Plan(budget="cpu").fitted(published).train.updates < published.train.updates
    assert Plan(budget="paper").seeds_for("logic") == Plan(budget="cpu").seeds_for("graph") == (42, 43, 44)
    every = settings(Plan(budget="paper"))
    told = {(row["width"], row["alpha"]) for row in published_figures()["supervision"]["per_seed"]}
    assert told <= set(every)
    assert {(128, alpha) for alpha in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)} <= set(every)


def test_selecting_rows():
    rows = [{"a": 1, "b": 2}, {"a": 1}, {"a": 2, "b": 2}]
    assert select(rows, a=1, b=2) == rows[:1]


def test_every_piece_has_results_and_its_pages_are_made_from_them():
    claims = (ROOT / "README.md").read_text()
    for name, piece in PIECES.items():
        folder = ROOT / "experiments" / name
        evidence = read_best(piece, folder, "paper")
        assert evidence is not None
        assert evidence.plan.budget != "smoke"
        page = (folder / "README.md").read_text()
        parts = (
            piece.table(evidence),
            comparison_table(piece.compare(evidence)),
            claims_table(judged(piece, evidence)),
        )
        assert all(part in page for part in parts), "deepen report has not been run since"
        assert all(
            f"{one.claim} | {one.verdict} | {one.figures}" in claims for one in judged(piece, evidence)
        )
        assert (folder / f"{evidence.plan.stem}.png").exists()


def test_the_fair_rule_chooses_on_validation_examples_of_the_training_range(monkeypatch):
    """Chosen for each unseen difficulty, T = 2 won at 10 hops: a shortcut that needs no reasoning."""
    config = Plan(budget="smoke").fitted(get_preset("graph", "paper"))
    torch.manual_seed(0)
    model, drawn = build(config.model).eval(), []

    def spy(task, grid, difficulty, split="test"):
        drawn.append((split, difficulty))
        return draw_examples(task, grid, difficulty, split)

    monkeypatch.setattr("deepen.evidence.baselines.draw_examples", spy)
    rows = Baselines().measure(model, config, Plan(budget="smoke"))
    inside = buckets("graph")["ID"]
    assert [difficulty for split, difficulty in drawn if split == "valid"] == inside
    (chosen,) = {row["steps"] for row in rows if row["rule"] == "fair"}
    asked = [draw_examples("graph", config.grid, one, "valid") for one in inside]
    tallies = [tally(model, config, some, config.grid.steps[-1]) for some in asked]
    best = max(sum(one.accuracy(T) for one in tallies) for T in config.grid.steps)
    assert sum(one.accuracy(chosen) for one in tallies) == pytest.approx(best)
    assert {row["steps"] for row in rows if row["rule"] == "largest"} == {20}

"""The import rule: a module imports only from earlier stations of the road."""

import ast
import subprocess
import sys

from conftest import ROOT

# Stations in order; what shares a line may not import each other.
ROAD = [
    {"layout", "config", "stats", "memory", "parallel"},
    {"shapes"},
    {"presets"},
    {"tasks.task"},
    {"tasks.graph_samplers", "tasks.logic_samplers", "tasks.family_samplers"},
    {"tasks.graph", "tasks.logic", "tasks.family"},
    {"tasks.all"},
    {"tasks"},
    {"observers"},
    {"audit"},
    {"batches"},
    {"blocks", "fused"},
    {"perception", "core"},
    {"packed"},
    {"unroll"},
    {"readout", "loss"},
    {"model"},
    {"peers.transformer", "peers.act"},
    {"peers.gnn"},
    {"peers"},
    {"runs"},
    {"train", "grid", "reasoner", "bench", "halting"},
    {"lanes", "client"},
    {"thinkers"},
    {"engine"},
    {"remote"},
    {"service"},
    {"wire", "metrics"},
    {"serve"},
    {"report", "progress", "console"},
    {"evidence.published", "evidence.noise"},
    {"evidence.piece"},
    {"evidence.tables"},
    {"evidence.memory_probe"},
    {
        "evidence.frontier",
        "evidence.baselines",
        "evidence.supervision",
        "evidence.ponder",
        "evidence.depth_embedding",
        "evidence.gate_gradient",
        "evidence.inference_cost",
    },
    {"evidence.reproduce", "evidence.pages", "evidence"},
    {""},  # the package itself: the public names
    {"verbs"},
    {
        "verbs.train",
        "verbs.grid",
        "verbs.audit",
        "verbs.bench",
        "verbs.solve",
        "verbs.reproduce",
        "verbs.report",
        "verbs.serve",
    },
    {"__main__"},
]
STATION = {name: number for number, names in enumerate(ROAD) for name in names}
MODEL_SIDE = {"blocks", "fused", "perception", "core", "unroll", "readout", "loss", "model", "peers"}
OPTIONAL = {"matplotlib", "sklearn", "transformers"}  # heavy: only inside the function that needs it


def modules():
    source = ROOT / "src/deepen"
    for path in sorted(source.rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix("__init__").strip(".")
        yield name, ast.parse(path.read_text())


def imports(tree, top_level_only=False):
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_module_is_a_station_and_imports_only_from_earlier_ones():
    for name, tree in modules():
        assert name in STATION, f"{name} has no station in tests/test_imports.py"
        for target in imports(tree):
            if target.split(".")[0] == "deepen":
                earlier = target.removeprefix("deepen").strip(".")
                assert STATION[earlier] < STATION[name], f"{name} imports {target}"
            assert target.split(".")[0] not in ("tests", "experiments", "benchmarks")


def test_tasks_and_models_meet_only_in_the_batch():
    for name, tree in modules():
        for target in imports(tree):
            if name.startswith("tasks"):
                assert target.removeprefix("deepen.") not in MODEL_SIDE
                assert target.split(".")[0] != "torch"
            if name in MODEL_SIDE:
                assert not target.startswith("deepen.tasks")


def test_heavy_libraries_are_imported_where_they_are_used():
    for name, tree in modules():
        for target in imports(tree, top_level_only=True):
            assert target.split(".")[0] not in OPTIONAL, name


def test_importing_runs_nothing():
    code = (
        "import deepen, sys; assert not {'matplotlib', 'sklearn'} & set(sys.modules); print(deepen.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "load" in done.stdout


def test_files_stay_readable():
    for path in (ROOT / "src").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path

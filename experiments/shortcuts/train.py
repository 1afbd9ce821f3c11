"""Train the graph frontier preset on certified graphs and measure it on certified graphs.

    python experiments/shortcuts/train.py [RUNS]

Finished runs are reused. Writes trained.json, trained.png and the table of README.md.
"""

import json
import sys
from pathlib import Path
from typing import Any

from deepen.config import GridConfig, RunConfig
from deepen.grid import measure
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import AROUND, around_the_frontier, draw_frontier, fill_page
from deepen.runs import load_model, write_atomically
from deepen.train import train

HERE = Path(__file__).parent
NEAR = GridConfig(
    distribution="certified",
    difficulties=(1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 40),
    steps=(1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 18, 23, 24, 36, 39, 40, 48, 72, 120),
)
FAR = GridConfig(
    distribution="certified", difficulties=(100, 200), steps=(99, 100, 110, 199, 200, 220), num_examples=60
)


def config(seed: int) -> RunConfig:
    """The frontier preset, on certified graphs."""
    preset = get_preset("graph", "frontier", seed)
    data = preset.data.model_copy(update={"distribution": "certified"})
    return preset.model_copy(update={"data": data, "grid": NEAR})


def main() -> None:
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    results: list[dict[str, Any]] = []
    rows: list[str] = []
    for seed in (0, 1, 2):
        chosen = config(seed)
        with Bar(f"training {chosen.run_name}", chosen.train.updates) as bar:
            path = runs / chosen.run_name
            run = train(chosen, path, resume=True, watch=lambda update, loss, accuracy: bar.show(update))
        model, _ = load_model(path)
        near, far = measure(model, chosen, NEAR), measure(model, chosen, FAR)
        if seed == 0:
            draw_frontier(near, HERE / "trained.png")
        for grid, difficulties in ((near, (6, 8, 12, 16, 24, 40)), (far, FAR.difficulties)):
            rows += [f"| {seed} {row}" for row in around_the_frontier(grid, difficulties)]
        described = json.loads(run.config_file.read_text())
        grids = {"grid": near.model_dump(mode="json"), "far": far.model_dump(mode="json")}
        results.append({**described, "seconds": run.seconds, **grids})
    write_atomically(HERE / "trained.json", json.dumps(results).encode() + b"\n")
    fill_page(HERE / "README.md", {"trained": "\n".join([f"| seed {AROUND}", "|---" * 7 + "|", *rows])})


if __name__ == "__main__":
    main()

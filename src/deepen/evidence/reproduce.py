"""Piece + plan -> evidence: train what is missing, measure, write down, draw."""

from pathlib import Path

from deepen.evidence.piece import Evidence, Job, Piece, Plan, Row, Trained, published_share
from deepen.model import Model
from deepen.progress import Bar
from deepen.runs import Run, load_model, provenance, write_atomically
from deepen.train import train


def reproduce(piece: Piece, plan: Plan, runs: Path, out: Path) -> Evidence:
    """Leave the rows in OUT/<budget>.json and the picture beside them; finished runs are used again."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = piece.jobs(plan)
    rows: list[Row] = []
    trained: list[Trained] = []
    for number, job in enumerate(jobs, start=1):
        model, about = train_missing(job, runs, f"{number}/{len(jobs)}")
        trained.append(about)
        own = {"task": job.config.task, "seed": job.config.seed, **job.names}
        rows += [{**own, **row} for row in piece.measure(model, job.config, plan)]
    rows += piece.measure_untrained(plan)
    evidence = Evidence(
        piece=piece.name, plan=plan, rows=tuple(rows), runs=tuple(trained), provenance=provenance()
    )
    write_atomically(out / f"{plan.stem}.json", evidence.model_dump_json(indent=1).encode() + b"\n")
    piece.draw(evidence, out / f"{plan.stem}.png")
    return evidence


def train_missing(job: Job, runs: Path, which: str) -> tuple[Model, Trained]:
    """The trained model of a job: as it is if it was finished, else trained to the end."""
    config = job.config
    run = Run(runs / config.run_name)
    if not run.weights_file.exists():
        with Bar(f"training {which} {config.run_name}", config.train.updates) as bar:
            train(config, run.path, resume=True, watch=lambda update, loss, accuracy: bar.show(update))
    model, _ = load_model(run.path)
    described = run.description()
    return model, Trained(
        run=config.run_name,
        seed=config.seed,
        updates=config.train.updates,
        share=published_share(config),
        batch=config.data.batch,
        parameters=model.num_parameters,
        seconds=run.seconds,
        code=described["code"]["commit"],
        threads=described["machine"]["threads"],
    )

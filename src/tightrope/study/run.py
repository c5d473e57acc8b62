"""Runs what a study still lacks: skips what is done, goes on with what was interrupted, tries again what failed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tightrope.errors import TightropeError
from tightrope.lock import held
from tightrope.study.cell import Status
from tightrope.study.folder import Survey, prepare, survey
from tightrope.study.local import LocalPool
from tightrope.study.plan import is_study, read
from tightrope.study.show import Show


def run_study(
    source: str | Path,
    out: Path | None = None,
    workers: int = 0,
    ray: str = "",
    *,
    games: str = "",
    arms: str = "",
    seeds: str = "",
    share: bool = True,
) -> Survey:
    """Runs a study, or a part of it, into the folder `out`, by default runs/NAME, with so many processes or on the
    Ray cluster at an address ("local" starts one). `share` is whether Ray's nodes may write into the folder where they
    see it."""
    study = read(source)
    part = study.part(games, arms, seeds)
    if workers < 0:
        raise TightropeError(f"workers = {workers}: must be a whole number of at least 1")
    if workers and ray:
        raise TightropeError("--workers and --ray exclude each other: Ray runs as many cells as it has room for")
    path = out or (Path(source) if is_study(Path(source)) else Path("runs") / study.name)
    # Whoever looks at its status holds the folder for a moment.
    with held(path, wait=0.5) as lock:
        prepare(study, path, part)
        left = [cell for cell in part.cells if Status.read(path / cell.folder).state != "done"]
        if ray:
            from tightrope.study.on_ray import RayPool

            pool: LocalPool | RayPool = RayPool(path, left, ray, study.device, share)
        else:
            pool = LocalPool(path, left, workers, study.device, lock)
            if pool.hint:
                print(pool.hint, flush=True)
        try:
            with Show(study, path, part) as show:
                while pool.busy:
                    for cell, death in pool.ended():
                        if death:
                            status = Status.read(path / cell.folder)
                            replace(status, state="failed", error=death).write(path / cell.folder)
                    show.update(survey(path, part))
                    time.sleep(0.2)
                found = survey(path, part)
                show.update(found)
        except KeyboardInterrupt:
            print("stopping; the running cells save their work", flush=True)
            pool.stop()
            chosen = "".join(
                f" --{name} {value}" for name, value in (("games", games), ("arms", arms), ("seeds", seeds)) if value
            )
            print(f"stopped; tightrope study run {path}{chosen} goes on where it stopped")
            raise
        finally:
            pool.stop()
    return found

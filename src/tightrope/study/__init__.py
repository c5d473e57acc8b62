"""Many runs: a grid of games, arms and seeds, run here or on Ray, collected in one folder.

A study's folder holds `study.toml`, the study as it was run, and `cells/<game>/<arm>/seed-<n>/`, each an ordinary run
with two files more: `log.txt` and `status.json`.
"""

from tightrope.study.folder import survey
from tightrope.study.plan import Arm, Cell, Study, read, shipped

__all__ = ["Arm", "Cell", "Study", "read", "shipped", "survey"]

"""The models that the tests share with the demo and the benchmarks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from workloads import digits, transformer, vision  # noqa: E402, F401

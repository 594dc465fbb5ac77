"""docs/fidelity.md is written by tools/bench: every row of the collection is in it, in the present layout."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
PAGE = (ROOT / "docs" / "fidelity.md").read_text()
FILES = ["rows.json", "kernel_rows.json"]


def rows(file):
    return json.loads((ROOT / "tools" / "fidelity" / file).read_text())["rows"]


@pytest.mark.parametrize("file", FILES)
def test_every_row_is_in_the_page(file):
    missing = [r["id"] for r in rows(file) if not re.search(rf"^\| {r['id']} \|.*{re.escape(r['what'])}", PAGE, re.M)]
    assert not missing, f"run tools/bench fidelity --page docs/fidelity.md: no entry for {missing}"


def test_the_page_has_the_layout_of_its_generator():
    import bench

    errors = {"rows": 1, "median_error": 0.0, "mean_error": 0.0, "max_error": 0.0}
    empty = {
        "config": "trn2",
        "rows": [],
        "families": [],
        "parameters": [],
        "not_reproduced": [],
        "audit": [],
        "wrong_pairs": [],
        "ranks": {
            "right": 0,
            "pairs": 0,
            "tolerance": 0.02,
            "stated_spread": 0.05,
            "beyond_right": 0,
            "beyond_pairs": 0,
            "all_right": 0,
            "all_pairs": 0,
        },
        **{k: errors for k in ("instructions", "instructions_held_out", "kernels", "kernels_blind")},
    }

    def layout(page):
        return [line for line in page.splitlines() if re.match(r"#|\| (row|family|what|kernel) \|", line)]

    assert layout(PAGE) == layout(bench.fidelity_page(empty))


def test_kernel_parameters_that_a_row_sets_exist():
    schema = (ROOT / "sim" / "config" / "config.proto").read_text()
    for file in FILES:
        for r in rows(file):
            for key in r["sets"]:
                assert re.search(rf" {key.split('.')[1]} = ", schema), f"{r['id']} sets {key}, which is no parameter"


def test_every_row_of_the_collection_is_accounted_for():
    table = PAGE[PAGE.index("## Audit") :]
    assert "| missing |" not in table
    for row, quality, _ in json.loads((ROOT / "tools" / "fidelity" / "rows.json").read_text())["collection"]:
        assert re.search(rf"^\| {row} \| {quality} \|", table, re.M), f"{row} is not in the audit"

"""Reading, showing and comparing reports."""

import copy
import io
import json

import pytest
from rich.console import Console

from trnsim import report_view


def make_report(**changes):
    report = {
        "schema_version": 1,
        "config": {"name": "trn2", "overrides": ["a.b=1"]},
        "mode": "both",
        "simulated_ns": 1000.0,
        "wall_s": 0.5,
        "programs": [
            {"name": "aten::mm", "count": 3, "simulated_ns": 900.0, "wall_s": 0.1},
            {"name": "aten::add", "count": 9, "simulated_ns": 100.0, "wall_s": 0.3},
        ],
        "instructions": 12,
        "engines": {n: {"busy_ns": 10.0, "utilisation": 0.01} for n in report_view.ENGINES},
        "dma": {"bytes_read": 1, "bytes_written": 2, "descriptors": 3, "busy_ns": 800.0},
        "hbm": {"peak_bytes": 2048},
        "roofline": {"flops": 1e6, "bytes": 4096, "bound": "memory"},
        "cost": {"instance": "trn2.3xlarge", "usd": 0.01},
        "caches": {"hits": 2, "misses": 1},
        "fallbacks": [],
        "warnings": [],
        "error_band": {"low_ns": 900.0, "high_ns": 1100.0},
    }
    report.update(changes)
    return report


def text_of(renderable) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(renderable)
    return out.getvalue()


def test_report_shows_time_units_and_programs():
    text = text_of(report_view.render(make_report()))
    for expected in ("1 us", "80.0 %", "aten::mm", "trn2.3xlarge", "a.b=1", "CPU fallbacks: none", "2 KiB"):
        assert expected in text


def test_report_names_the_slowest_programs_by_either_time():
    lines = text_of(report_view.render(make_report())).splitlines()
    order = [word for line in lines for word in line.split() if word.startswith("aten::")]
    assert order == ["aten::mm", "aten::add", "aten::add", "aten::mm"]
    assert any("aten::add" in line and "300 ms" in line and "75.0 %" in line for line in lines)


def test_report_names_fallbacks_and_warnings():
    report = make_report(fallbacks=[{"op": "aten::fft", "count": 2, "reason": "no lowering"}], warnings=["w1"])
    text = text_of(report_view.render(report))
    assert "aten::fft" in text and "no lowering" in text and "warning: w1" in text


def test_report_of_a_chip_without_a_price_says_so():
    report = make_report(cost={"instance": "trn3 server", "usd": None})
    assert "no public price for trn3 server" in text_of(report_view.render(report))


def test_comparison_names_the_unit_that_changed():
    a, b = make_report(), make_report(simulated_ns=600.0)
    b["dma"] = {**b["dma"], "busy_ns": 400.0}
    c = report_view.compare(a, b)
    assert c["ratio"] == pytest.approx(0.6)
    assert c["units"][0]["unit"] == "dma"
    assert "40.0% shorter" in c["sentence"] and "dma busy time went from 800 ns to 400 ns" in c["sentence"]


def test_every_predicted_time_carries_its_band():
    a = make_report()
    a["error_band"]["relative"] = 0.07
    for p in a["programs"]:
        p["error_band"] = 0.12
    shown = text_of(report_view.render(a))
    assert "band" in shown and shown.count("±12 %") == len(a["programs"])
    b = copy.deepcopy(a)
    b["error_band"]["relative"] = 0.09
    c = report_view.compare(a, b)
    assert (c["a_band"], c["b_band"]) == (0.07, 0.09)
    assert all(row["a_band"] == row["b_band"] == 0.12 for row in c["programs"])
    shown = text_of(report_view.render_comparison(a, b))
    assert "±7 %" in shown and "±9 %" in shown and "±12 %" in shown


def test_comparison_of_equal_reports_says_so():
    a = make_report()
    assert report_view.compare(a, copy.deepcopy(a))["sentence"].startswith("No change")


def test_comparison_of_latency_bound_runs_says_what_bounds_them():
    a = make_report(dma={"bytes_read": 1, "bytes_written": 2, "descriptors": 3, "busy_ns": 100.0})
    assert "fixed latencies" in report_view.compare(a, a)["sentence"]


def test_comparison_counts_programs_of_one_side():
    a, b = make_report(), make_report(programs=[{"name": "aten::sub", "count": 1, "simulated_ns": 50.0, "wall_s": 0.1}])
    rows = {r["name"]: r["delta_ns"] for r in report_view.compare(a, b)["programs"]}
    assert rows == {"aten::mm": -900.0, "aten::add": -100.0, "aten::sub": 50.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "schema"),
        (json.dumps({"schema_version": 99}), "schema 99"),
    ],
)
def test_bad_report_files_are_named(tmp_path, content, message):
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(report_view.ReportError, match=message) as e:
        report_view.load_report(path)
    assert str(path) in str(e.value)


def test_missing_report_file_is_named(tmp_path):
    with pytest.raises(report_view.ReportError, match="cannot read"):
        report_view.load_report(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 us"), (2.5e6, "2.5 ms"), (3e9, "3 s")]
)
def test_times_carry_units(ns, text):
    assert report_view.format_ns(ns) == text

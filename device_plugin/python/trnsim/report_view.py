"""Shows a report (the JSON of `trnsim.report()`) on the terminal and explains the difference of two."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

SCHEMA_VERSION = 1
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


class ReportError(Exception):
    """A report file that cannot be read; the message says why."""


def load_report(path: str | Path) -> dict[str, Any]:
    """Reads a report written by `--json FILE`."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise ReportError(f"user error: cannot read report {path}: {e.strerror}") from e
    except json.JSONDecodeError as e:
        raise ReportError(f"user error: {path}:{e.lineno}:{e.colno} is not JSON: {e.msg}") from e
    except (UnicodeDecodeError, RecursionError) as e:
        raise ReportError(f"user error: {path} is not JSON: {e}") from e
    version = report.get("schema_version") if isinstance(report, dict) else None
    if version != SCHEMA_VERSION:
        raise ReportError(
            f"user error: {path} has report schema {version!r}; this version reads {SCHEMA_VERSION}. "
            "Write it again with the same version of trnsim"
        )
    try:
        render(report), compare(report, report)  # whatever is shown is there
    except KeyError as e:
        raise ReportError(f"user error: {path} is no whole report: it lacks {e}") from e
    except (TypeError, ValueError, AttributeError) as e:
        raise ReportError(f"user error: {path} is no whole report: {e}") from e
    return report


def format_ns(ns: float) -> str:
    """Simulated time with a unit that keeps 3 to 4 digits."""
    for limit, scale, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if abs(ns) < limit:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns / 1e9:.4g} s"


def with_band(ns: float, band: float | None) -> str:
    """A predicted time and how far off it may be, as a share of it."""
    return f"{format_ns(ns)} ±{100 * band:.0f} %" if band and ns else format_ns(ns)


def _bands(report: dict[str, Any]) -> dict[str, float]:
    """Bands of the programs by name; that of the whole run under the empty name."""
    bands = {p["name"]: p.get("error_band", 0.0) for p in report["programs"]}
    bands[""] = (report.get("error_band") or {}).get("relative", 0.0)
    return bands


def format_bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} TiB"


def has_time(report: dict[str, Any]) -> bool:
    return report["mode"] != "data"


def render(report: dict[str, Any], top: int = 10) -> Group:
    """The report as rich renderables: time, engines, DMA, the programs that took longest, fallbacks."""
    config = report["config"]
    head = Table.grid(padding=(0, 2))
    overrides = config.get("overrides") or "none"
    if isinstance(overrides, dict):
        overrides = ", ".join(f"{k}={v}" for k, v in overrides.items()) or "none"
    band = report.get("error_band") or {}
    time_text = format_ns(report["simulated_ns"]) if has_time(report) else "none: mode data computes values only"
    if has_time(report) and band.get("low_ns") is not None:
        time_text += f"  (band {format_ns(band['low_ns'])} to {format_ns(band['high_ns'])})"
    rows = [
        ("configuration", f"{config['name']}   overrides: {overrides}   mode: {report['mode']}"),
        ("simulated time", time_text),
        ("wall time", f"{report['wall_s']:.2f} s"),
        ("instructions", f"{report['instructions']:,}"),
    ]
    roofline = report.get("roofline") or {}
    if roofline.get("bound"):
        rows.append(
            (
                "roofline",
                f"{roofline['flops']:.3g} FLOP, {format_bytes(roofline['bytes'])} of HBM traffic: {roofline['bound']}",
            )
        )
    rows.append(("HBM peak", format_bytes(report["hbm"]["peak_bytes"])))
    cost = report.get("cost") or {}
    if not has_time(report):
        rows.append(("cost on the chip", "unknown without simulated time (mode both or time)"))
    elif cost.get("instance") and cost.get("usd") is None:
        rows.append(("cost on the chip", f"no public price for {cost['instance']}"))
    elif cost:
        rows.append(("cost on the chip", f"${cost['usd']:.3g} on {cost['instance']}"))
    for key, value in rows:
        head.add_row(Text(key, style="bold"), value)

    busy = Table(title="Where the time goes", title_justify="left")
    for column, justify in (("unit", "left"), ("busy", "right"), ("utilisation", "right")):
        busy.add_column(column, justify=justify)
    total = max(report["simulated_ns"], 1e-9)
    for name in ENGINES:
        e = report["engines"][name]
        busy.add_row(name, format_ns(e["busy_ns"]), f"{100 * e['utilisation']:.1f} %")
    dma = report["dma"]
    busy.add_row("dma", format_ns(dma["busy_ns"]), f"{100 * dma['busy_ns'] / total:.1f} %")

    cores = report.get("physical_cores") or []
    shares = Table(title="Busy share of each physical core", title_justify="left")
    for column in ("core", *ENGINES, "dma"):
        shares.add_column(column, justify="right")
    for core in cores:
        dma_share = core["dma_busy_ns"] / max(core["simulated_ns"], 1e-9)
        values = [core["engines"][name]["utilisation"] for name in ENGINES] + [dma_share]
        shares.add_row(str(core["core"]), *(f"{100 * v:.1f} %" for v in values))

    wall = max(sum(p["wall_s"] for p in report["programs"]), 1e-12)
    simulated = _slowest(report, "simulated time", top, lambda p: p["simulated_ns"], total, banded=True)
    on_host = _slowest(report, "wall time in the simulator", top, lambda p: 1e9 * p["wall_s"], 1e9 * wall)
    timed = [busy, *([shares] if len(cores) > 1 else []), simulated] if has_time(report) else []
    parts: list[Any] = [Panel(head, title="trnsim report", title_align="left"), *timed, on_host]
    caches = report.get("caches") or {}
    if caches:
        parts.append(Text("caches: " + ", ".join(f"{k} {v}" for k, v in caches.items() if not isinstance(v, dict))))
    fallbacks = report.get("fallbacks") or []
    if fallbacks:
        table = Table(title="Operators that ran on the CPU", title_justify="left", title_style="bold red")
        for column in ("operator", "count", "reason"):
            table.add_column(column)
        for f in fallbacks:
            table.add_row(f["op"], str(f["count"]), f["reason"])
        parts.append(table)
    else:
        parts.append(Text("CPU fallbacks: none"))
    parts += [Text(f"warning: {w}", style="yellow") for w in report.get("warnings") or []]
    return Group(*parts)


def _slowest(
    report: dict[str, Any],
    what: str,
    top: int,
    ns: Callable[[dict[str, Any]], float],
    total: float,
    banded: bool = False,
) -> Table:
    table = Table(title=f"Programs by {what} (first {top})", title_justify="left")
    for column, justify in (("program", "left"), ("runs", "right"), ("time", "right"), ("share", "right")):
        table.add_column(column, justify=justify)
    bands = _bands(report) if banded else {}
    for p in sorted(report["programs"], key=ns, reverse=True)[:top]:
        time = with_band(ns(p), bands.get(p["name"]))
        table.add_row(p["name"], f"{p['count']:,}", time, f"{100 * ns(p) / total:.1f} %")
    return table


def print_report(report: dict[str, Any], console: Console | None = None) -> None:
    (console or Console()).print(render(report))


def compare(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """What changed from report a to report b, and which unit explains it.

    Returns ratio, delta_ns, a_band, b_band, sentence, and lists of units and programs with a_ns, b_ns, delta_ns,
    largest change first; of programs with a_band and b_band. A band is a share of its time.
    """
    ta, tb = a["simulated_ns"], b["simulated_ns"]
    units = [(n, a["engines"][n]["busy_ns"], b["engines"][n]["busy_ns"]) for n in ENGINES]
    units.append(("dma", a["dma"]["busy_ns"], b["dma"]["busy_ns"]))
    unit_rows = [{"unit": n, "a_ns": x, "b_ns": y, "delta_ns": y - x} for n, x, y in units]
    unit_rows.sort(key=lambda r: -abs(r["delta_ns"]))
    pa = {p["name"]: p["simulated_ns"] for p in a["programs"]}
    pb = {p["name"]: p["simulated_ns"] for p in b["programs"]}
    bands_a, bands_b = _bands(a), _bands(b)
    program_rows = [
        {
            "name": n,
            "a_ns": pa.get(n, 0),
            "b_ns": pb.get(n, 0),
            "delta_ns": pb.get(n, 0) - pa.get(n, 0),
            "a_band": bands_a.get(n, 0.0),
            "b_band": bands_b.get(n, 0.0),
        }
        for n in sorted(pa.keys() | pb.keys())
    ]
    program_rows.sort(key=lambda r: -abs(r["delta_ns"]))
    return {
        "ratio": tb / ta if ta else float("nan"),
        "delta_ns": tb - ta,
        "a_band": bands_a[""],
        "b_band": bands_b[""],
        "units": unit_rows,
        "programs": program_rows,
        "sentence": _explain(ta, tb, a, b, unit_rows),
    }


def _explain(ta: float, tb: float, a: dict[str, Any], b: dict[str, Any], units: list[dict[str, Any]]) -> str:
    for which, time_ns, report in (("first", ta, a), ("second", tb, b)):
        if not has_time(report):
            return (
                f"The {which} report is of mode data, which computes values and no time: there is nothing to compare. "
                "Run it with --mode both or time."
            )
        if not time_ns:
            return f"The {which} report holds no simulated time: nothing ran on the device."
    change = (tb - ta) / ta
    busiest = max(units, key=lambda r: r["a_ns"])
    share = busiest["a_ns"] / ta
    lead = units[0]
    direction = "shorter" if change < 0 else "longer"
    text = f"{abs(change):.1%} {direction}" if abs(change) >= 5e-4 else "No change beyond 0.05 %"
    if lead["delta_ns"]:
        text += (
            f": {lead['unit']} busy time went from {format_ns(lead['a_ns'])} to {format_ns(lead['b_ns'])}"
            f" ({lead['delta_ns'] / max(lead['a_ns'], 1e-9):+.1%})"
        )
    text += f". The busiest unit before was {busiest['unit']}, busy {share:.0%} of the time"
    if share < 0.6:
        launches = sum(p["count"] for p in a["programs"])
        text += (
            f"; no unit is busy most of the time, so fixed latencies of {launches:,} program launches "
            "(descriptors, semaphores, launch overhead) bound this run more than bandwidth does"
        )
    return text + "."


def render_comparison(a: dict[str, Any], b: dict[str, Any], names: tuple[str, str] = ("A", "B"), top: int = 6) -> Group:
    c = compare(a, b)
    head = Text.assemble(
        (
            f"{names[0]} {with_band(a['simulated_ns'], c['a_band'])}  ->  "
            f"{names[1]} {with_band(b['simulated_ns'], c['b_band'])}",
            "bold",
        ),
        f"   x{c['ratio']:.3f}\n{c['sentence']}",
    )
    table = Table(title="Largest changes", title_justify="left")
    for column, justify in (("unit or program", "left"), (names[0], "right"), (names[1], "right"), ("change", "right")):
        table.add_column(column, justify=justify)
    for row in c["units"][:3]:
        table.add_row(row["unit"], format_ns(row["a_ns"]), format_ns(row["b_ns"]), format_ns(row["delta_ns"]))
    table.add_section()
    for row in c["programs"][:top]:
        table.add_row(
            row["name"],
            with_band(row["a_ns"], row["a_band"]),
            with_band(row["b_ns"], row["b_band"]),
            format_ns(row["delta_ns"]),
        )
    return Group(head, table)

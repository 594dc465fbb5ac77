"""Checks the dependency rule of docs/architecture.md: arrows point down only.

Reads the `#include "..."` lines and the link edges of the CMake files, and fails on an arrow that points up or on
SystemC, PyTorch or Protobuf in a part that must not know them.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# part (longest folder prefix wins) -> parts it may include or link
ALLOWED = {
    "isa": {"isa"},
    "sim/config": {"sim/config"},
    "sim/exec": {"sim/exec", "isa"},
    "sim/cost": {"sim/cost", "sim/config", "isa"},
    "sim/chip": {"sim/chip", "sim/exec", "sim/cost", "sim/config", "isa"},
    "sim/check": {"sim/check", "sim/chip", "sim/cost", "sim/config", "isa"},
    "sim/driver": {"sim/driver", "sim/chip", "sim/config", "isa"},
    "sim/runtime": {"sim/runtime", "sim/driver", "sim/check", "sim/chip", "sim/config", "isa"},
    "device_plugin/compiler": {"device_plugin/compiler", "sim/cost", "sim/config", "isa"},
    "device_plugin/nki": {"device_plugin/nki", "device_plugin/compiler", "isa"},
    "device_plugin/aten": {"device_plugin/aten", "device_plugin/compiler", "sim/runtime", "isa"},
}
# The device plugin links neither the compiler nor the runtime: it opens both with dlopen.
LINK_EXCEPTIONS_FORBIDDEN = {("device_plugin/aten", "device_plugin/compiler"), ("device_plugin/aten", "sim/runtime")}
# sim/driver moves bytes; it may name no instruction.
FORBIDDEN_INCLUDES = {"sim/driver": {"isa/instruction.h", "isa/table.h", "isa/program.h"}}

EXTERNAL = {  # pattern -> parts that may use it
    r"^systemc|^tlm": {"sim/chip"},
    r"^(ATen|c10|torch)/|^torch\.h": {"device_plugin/aten"},
    r"^google/protobuf/|\.pb\.h$": {"isa", "sim/config"},
    r"^hwy/": {"sim/exec"},
    r"^dnnl": {"sim/exec"},
}
TARGETS = {
    "trnsim_isa": "isa", "trnsim_exec": "sim/exec", "trnsim_config": "sim/config", "trnsim_cost": "sim/cost",
    "trnsim_chip": "sim/chip", "trnsim_check": "sim/check", "trnsim_driver": "sim/driver", "trnsim_nrt": "sim/runtime",
    "trnsim_compiler": "device_plugin/compiler", "trnsim_torch": "device_plugin/aten",
}  # fmt: skip


def part_of(path: str) -> str | None:
    hits = [p for p in ALLOWED if path == p or path.startswith(p + "/")]
    return max(hits, key=len) if hits else None


def check_includes(path: Path, part: str, problems: list[str]) -> None:
    rel = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not m:
            continue
        target = m.group(2)
        where = f"{rel}:{number}"
        for pattern, parts in EXTERNAL.items():
            if re.search(pattern, target) and part not in parts:
                problems.append(f"{where}: {part} includes {target}; only {', '.join(sorted(parts))} may")
        other = part_of(target)
        if other and other not in ALLOWED[part]:
            problems.append(f"{where}: {part} includes {target}, which is above it or beside it")
        if target in FORBIDDEN_INCLUDES.get(part, ()):
            problems.append(f"{where}: {part} must stay blind to instructions, but includes {target}")


def check_links(path: Path, problems: list[str]) -> None:
    text = re.sub(r"#.*", "", path.read_text())
    for name, body in re.findall(r"target_link_libraries\(\s*(\w+)([^)]*)\)", text):
        part = TARGETS.get(name)
        if part is None:
            continue
        for word in body.split():
            other = TARGETS.get(word)
            if other and (other not in ALLOWED[part] or (part, other) in LINK_EXCEPTIONS_FORBIDDEN):
                problems.append(f"{path.relative_to(ROOT)}: {name} links {word}: the arrow points up")


def main() -> int:
    problems: list[str] = []
    files = 0
    for part in ALLOWED:
        for path in sorted((ROOT / part).rglob("*")):
            rel = path.relative_to(ROOT).as_posix()
            if part_of(rel) != part:
                continue
            if path.suffix in {".h", ".cpp", ".c", ".inc"}:
                files += 1
                check_includes(path, part, problems)
            elif path.name == "CMakeLists.txt":
                check_links(path, problems)
    print("\n".join(problems) if problems else f"dependency rule holds in {files} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

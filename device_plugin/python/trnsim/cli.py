"""The `trnsim` command. Verbs for program containers and configuration run the native tool that the wheel holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="trnsim",
    no_args_is_help=True,
    add_completion=False,
    help="Cycle-approximate simulator of AWS Trainium2 and Trainium3.",
)
config_app = typer.Typer(no_args_is_help=True, help="Parameters with unit, range, origin and uncertainty band.")
app.add_typer(config_app, name="config")

NATIVE = Path(__file__).parent / "bin" / "trnsim-native"
PROGRAM_SUFFIXES = {".trnp", ".trnasm"}


def _fail(message: str, code: int = 2) -> typer.Exit:
    typer.echo(f"trnsim: {message}", err=True)
    return typer.Exit(code)


def _native(*args: str) -> None:
    """Runs the native tool with our streams and ends with its exit code."""
    if not NATIVE.exists():
        raise _fail(f"the native tool is missing from this installation ({NATIVE}): install trnsim again", 1)
    sys.stdout.flush()
    raise typer.Exit(subprocess.run([str(NATIVE), *args], check=False).returncode)


PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=PASS_THROUGH)
def run(
    ctx: typer.Context,
    config: Annotated[str | None, typer.Option(help="Name (trn2, trn3) or file.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, repeatable.")] = None,
    mode: Annotated[str | None, typer.Option(help="both, data or time.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
    input_: Annotated[list[str] | None, typer.Option("--input", help="name=file.npy (program files).")] = None,
    output: Annotated[list[str] | None, typer.Option("--output", help="name=file.npy (program files).")] = None,
) -> None:
    """Run a PyTorch program (trnsim run -- python script.py ...) or a program file (.trnp, .trnasm)."""
    command = [a for a in ctx.args if a != "--"] if ctx.args[:1] == ["--"] else list(ctx.args)
    if not command:
        raise _fail("user error: nothing to run. Give a program file or: trnsim run -- python script.py")
    if Path(command[0]).suffix in PROGRAM_SUFFIXES:
        args = ["run", *command]
        for name, value in (("--config", config), ("--mode", mode), ("--json", json_file)):
            if value is not None:
                args += [name, str(value)]
        for name, values in (("--set", set_), ("--input", input_), ("--output", output)):
            for v in values or []:
                args += [name, v]
        _native(*args)
    if input_ or output:
        raise _fail("user error: --input and --output go with program files (.trnp, .trnasm), not with a script")
    _run_script(command, config, set_ or [], mode, json_file)


def _run_script(
    command: list[str], config: str | None, overrides: list[str], mode: str | None, json_file: Path | None
) -> None:
    from rich.console import Console

    from trnsim.report_view import print_report

    env = dict(os.environ)
    for name, value in (("TRNSIM_CONFIG", config), ("TRNSIM_SET", ",".join(overrides) or None), ("TRNSIM_MODE", mode)):
        if value is not None:
            env[name] = value
    with tempfile.TemporaryDirectory() as folder:
        path = json_file.resolve() if json_file else Path(folder) / "report.json"
        path.unlink(missing_ok=True)
        env["TRNSIM_JSON"] = str(path)
        if command[0] in ("python", "python3"):
            command = [sys.executable, *command[1:]]
        try:
            code = subprocess.run(command, env=env, check=False).returncode
        except FileNotFoundError as e:
            raise _fail(f"user error: cannot start {command[0]!r}: not found") from e
        except PermissionError as e:
            raise _fail(f"user error: cannot start {command[0]!r}: not executable") from e
        if path.exists():
            print_report(json.loads(path.read_text()), Console(stderr=not sys.stdout.isatty()))
        elif code == 0:
            typer.echo("trnsim: the program did not use the device neuron, so there is no report", err=True)
    raise typer.Exit(code)


@app.command()
def compare(a: Path, b: Path) -> None:
    """What changed from report A to report B, and why."""
    from rich.console import Console

    from trnsim.report_view import ReportError, load_report, render_comparison

    try:
        reports = load_report(a), load_report(b)
    except ReportError as e:
        raise _fail(str(e)) from e
    Console().print(render_comparison(*reports, names=(a.name, b.name)))


@app.command()
def report(file: Path) -> None:
    """Show a report written with --json."""
    from trnsim.report_view import ReportError, load_report, print_report

    try:
        print_report(load_report(file))
    except ReportError as e:
        raise _fail(str(e)) from e


def _forward(verb: tuple[str, ...], doc: str):
    def command(ctx: typer.Context) -> None:
        _native(*verb, *ctx.args)

    command.__doc__ = doc
    return command


_HELP_OFF = {**PASS_THROUGH, "help_option_names": []}
for _verb, _doc in (
    ("asm", "Assemble .trnasm text to a .trnp container."),
    ("disasm", "Print a container as assembler text."),
    ("validate", "Check a program against the rules of the chip."),
    ("isa", "The instruction table, or one instruction: trnsim isa NAME."),
):
    app.command(_verb, context_settings=_HELP_OFF)(_forward((_verb,), _doc))
for _verb, _doc in (
    ("list", "Names of the built-in configurations."),
    ("show", "Every parameter of a configuration."),
    ("check", "Check a configuration file."),
    ("diff", "Parameters in which two configurations differ."),
    ("explain", "One parameter: unit, range, default, origin, band."),
):
    config_app.command(_verb, context_settings=_HELP_OFF)(_forward(("config", _verb), _doc))


def main() -> None:
    app()


if __name__ == "__main__":
    main()

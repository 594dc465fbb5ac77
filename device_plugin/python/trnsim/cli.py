"""The `trnsim` command. Verbs for program containers and configuration run the native tool that the wheel holds."""

from __future__ import annotations

import json
import os
import signal
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
    pretty_exceptions_enable=False,
    help="Cycle-approximate simulator of AWS Trainium2 and Trainium3.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"trnsim {version('trnsim')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


config_app = typer.Typer(no_args_is_help=True, help="Parameters with unit, range, origin and uncertainty band.")
app.add_typer(config_app, name="config")

NATIVE = Path(__file__).parent / "bin" / "trnsim-native"
PROGRAM_SUFFIXES = {".trnp", ".trnasm"}


def _fail(message: str, code: int = 2) -> typer.Exit:
    typer.echo(f"trnsim: {message}", err=True)
    return typer.Exit(code)


def _native_tool() -> str:
    if not NATIVE.exists():
        raise _fail(f"the native tool is missing from this installation ({NATIVE}): install trnsim again", 1)
    return str(NATIVE)


def _become_native(*args: str) -> None:
    """Goes on as the native tool: its streams, signals and exit code are ours."""
    tool = _native_tool()
    sys.stdout.flush()
    os.execv(tool, ["trnsim", *args])


@app.command(context_settings={"allow_extra_args": True, "allow_interspersed_args": False})
def run(
    ctx: typer.Context,
    config: Annotated[str | None, typer.Option(help="Name (trn2, trn3) or file.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, repeatable; replaces TRNSIM_SET.")] = None,
    mode: Annotated[str | None, typer.Option(help="both, data or time.")] = None,
    check: Annotated[
        str | None, typer.Option(help="pedantic, strict, warn or off: checks of the programs that run.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the report to this file; - is the standard output.")
    ] = None,
    input_: Annotated[list[str] | None, typer.Option("--input", help="name=file.npy (program files).")] = None,
    output: Annotated[list[str] | None, typer.Option("--output", help="name=file.npy (program files).")] = None,
    repeat: Annotated[int | None, typer.Option(help="Runs of the program (program files).")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report on the terminal.")] = False,
) -> None:
    """Run a PyTorch program (trnsim run -- python script.py ...) or a program file (.trnp, .trnasm)."""
    command = ctx.args
    if not command:
        raise _fail("user error: nothing to run. Give a program file or: trnsim run -- python script.py")
    if Path(command[0]).suffix in PROGRAM_SUFFIXES:
        args = []
        single = {"--config": config, "--mode": mode, "--check": check, "--json": json_file, "--repeat": repeat}
        for name, value in single.items():
            args += [] if value is None else [name, str(value)]
        for name, values in (("--set", set_), ("--input", input_), ("--output", output)):
            for value in values or []:
                args += [name, value]
        _become_native("run", *args, *(["--quiet"] if quiet else []), *command)
    if input_ or output or repeat is not None:
        raise _fail("user error: --input, --output and --repeat go with program files (.trnp, .trnasm), not scripts")
    if json_file == "":
        raise _fail("user error: the name of the file after --json is empty")
    raise typer.Exit(_run_script(command, config, set_ or [], mode, check, json_file, quiet))


def _run_script(
    command: list[str],
    config: str | None,
    overrides: list[str],
    mode: str | None,
    check: str | None,
    json_file: str | None,
    quiet: bool,
) -> int:
    from rich.console import Console

    from trnsim.output_file import write_whole
    from trnsim.report_view import ReportError, load_report, print_report

    env = dict(os.environ)
    settings = {
        "TRNSIM_CONFIG": config,
        "TRNSIM_SET": ",".join(overrides) or None,
        "TRNSIM_MODE": mode,
        "TRNSIM_CHECK": check,
    }
    for name, value in settings.items():
        if value is not None:
            env[name] = value
    if json_file is None:
        json_file = env.get("TRNSIM_JSON") or None
    to_file = Path(json_file) if json_file not in (None, "-") else None
    # What the device would refuse at its first use is refused before the script has begun.
    env["TRNSIM_JSON"] = "" if to_file is None else str(to_file)
    if subprocess.run([_native_tool(), "config", "check"], env=env, stdout=subprocess.DEVNULL, check=False).returncode:
        return 2
    if command[0] in ("python", "python3"):
        command = [sys.executable, *command[1:]]
    try:
        scratch = tempfile.TemporaryDirectory()
    except OSError as e:
        raise _fail(f"user error: no folder for temporary files (TMPDIR): {e.strerror}") from e
    with scratch as folder:
        path = Path(folder) / "report.json"
        env["TRNSIM_JSON"] = str(path)
        if sys.stderr.isatty():
            env["TRNSIM_PROGRESS"] = "on"
        code = _supervise(command, env)
        if not path.exists():
            if code == 0:
                earlier = f"; {to_file} is of an earlier run" if to_file is not None and to_file.is_file() else ""
                typer.echo(
                    f"trnsim: the program did not use the device neuron, so there is no report{earlier}", err=True
                )
            return code
        try:
            report = load_report(path)
            if to_file is not None:
                write_whole(to_file, path.read_text(encoding="utf-8"))
        except ReportError as e:
            raise _fail(f"the program left no whole report: {e}", code or 1) from e
        except OSError as e:
            raise _fail(f"user error: the report cannot be written to {to_file}: {e.strerror}", code or 1) from e
    if json_file == "-":
        typer.echo(json.dumps(report))
    elif not quiet:
        print_report(report, Console(stderr=not sys.stdout.isatty()))
    return code


def _supervise(command: list[str], env: dict[str, str]) -> int:
    """Runs the command to its end and returns its exit code as a shell would. Signals to us are for it."""
    try:
        child = subprocess.Popen(command, env=env)
    except OSError as e:
        hint = f"; to run a script: trnsim run -- python {command[0]}" if command[0].endswith(".py") else ""
        if command[0].startswith("-"):
            hint = "; options of trnsim go before --"
        why = "not found" if isinstance(e, FileNotFoundError) else (e.strerror or str(e)).lower()
        raise _fail(f"user error: cannot start {command[0]!r}: {why}{hint}") from e

    def pass_on(number: int, _frame: object) -> None:
        if number != signal.SIGINT or not _owns_terminal():  # the terminal sends ^C to the child as well
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    code = child.wait()
    return 128 - code if code < 0 else code


def _owns_terminal() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


@app.command()
def compare(a: Path, b: Path) -> None:
    """What changed from report A to report B, and why."""
    from rich.console import Console

    from trnsim.report_view import ReportError, load_report, render_comparison

    try:
        reports = load_report(a), load_report(b)
    except ReportError as e:
        raise _fail(str(e)) from e
    names = (a.name, b.name) if a.name != b.name else (str(a), str(b))
    Console().print(render_comparison(*reports, names=names))


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
        _become_native(*verb, *ctx.args)

    command.__doc__ = doc
    return command


_AS_IT_IS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
for _verb, _doc in (
    ("asm", "Assemble .trnasm text to a .trnp container."),
    ("disasm", "Print a container as assembler text."),
    ("validate", "Check a program against the rules of the chip."),
    ("isa", "The instruction table, or one instruction: trnsim isa NAME."),
):
    app.command(_verb, context_settings=_AS_IT_IS)(_forward((_verb,), _doc))
for _verb, _doc in (
    ("list", "Names of the built-in configurations."),
    ("show", "Every parameter of a configuration."),
    ("check", "Check a configuration file, or what the environment asks for."),
    ("diff", "Parameters in which two configurations differ."),
    ("explain", "One parameter, or a group: unit, range, default, origin, band."),
):
    config_app.command(_verb, context_settings=_AS_IT_IS)(_forward(("config", _verb), _doc))


def main() -> None:
    # As other commands do: ^C and a closed pipe end it without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.reconfigure(errors="backslashreplace")  # file names may be no UTF-8
    app()


if __name__ == "__main__":
    main()

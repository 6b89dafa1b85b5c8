"""The command line: a table of commands, each imported only when it is called, and the way out of all of them.

A command returns its exit status (None is 0) or raises; `orchestrator.cli.exits` says what is what.
`tokfleet --help` imports click and nothing else, so that it costs little more than `import click`.
"""

import os
import sys
from typing import Any, NoReturn

import click

COMMANDS = {
    "run": ("run:run", "Measure a sweep: every test, model and setting in the file."),
    "bench": ("bench:bench", "Measure what a command line of llama-bench says."),
    "resume": ("run:resume", "Measure what is still missing of a run."),
    "plan": ("run:plan", "Show what a sweep would measure, skip and cost."),
    "status": ("status:status", "Show how far the runs are."),
    "submit": ("submit:submit", "Hand a sweep over to the lab's head, which measures it by itself."),
    "logs": ("submit:logs", "Show what the driver of a submitted run says."),
    "cancel": ("submit:cancel", "End a run; what was measured stays."),
    "results": ("results:results", "List the measured rates, or what failed."),
    "export": ("export:export", "Write results, or the whole store, to a file for others."),
    "import": ("import_:import_", "Take results of llama-bench's files into the database."),
    "tag": ("labels:tag", "Tag a run, a host or a result, or show its tags."),
    "note": ("labels:note", "Add a note to a run, a host or a result, or show its notes."),
    "sql": ("sql:sql", "Ask the database a question in SQL; nothing can be changed."),
    "hosts": ("hosts_list:hosts", "List the hosts and what they are busy with; drain and resume one."),
    "fingerprint": ("hosts:fingerprint", "Show who this machine is and what it is made of."),
    "probe": ("probe:probe", "Measure how fast this machine reads and computes."),
    "build": ("builds:build", "Add, list or remove builds of llama.cpp."),
    "cluster": ("cluster:cluster", "Make a lab of several machines, and see what is wrong with it."),
    "model": ("models:model", "Look into a model file, list models, or make one."),
    "db": ("db:db", "Create, upgrade or check the database."),
}
"""Name -> (module of this package and attribute, one line of help), in the order of `--help`."""

HIDDEN = {
    "drive": "drive:drive",
    "there": "there:there",
}
"""What only the head is told to run, by a Ray job: name -> module of this package and attribute."""

LATER = {
    "compare": "`tokfleet sql` can set two rates side by side.",
    "history": "`tokfleet results` lists all runs.",
    "predict": "",
    "report": "`tokfleet results --format markdown` prints the rows.",
    "serve": "",
}
"""Commands that people may expect and that this version does not have -> what it has instead."""

MEANT = {
    "benchmark": "run",
    "help": "--help",
    "inspect": "model inspect",
    "builds": "build list",
    "kill": "cancel",
    "list": "results",
    "log": "logs",
    "machines": "hosts",
    "nodes": "hosts",
    "stop": "cancel",
    "watch": "status --watch",
    "label": "tag",
    "llama-bench": "bench",
    "mark": "results mark",
    "models": "model list",
    "query": "sql",
    "show": "results",
    "start": "run",
    "synth": "model synth",
    "upgrade": "db upgrade",
    "version": "--version",
}
"""What people call a command -> what it is called here."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and help, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None where there is no such one."""
        place = COMMANDS[cmd_name][0] if cmd_name in COMMANDS else HIDDEN.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        __import__(f"{__name__}.{module}")
        command: click.Command = getattr(sys.modules[f"{__name__}.{module}"], attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands from the table, which needs no import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return name, command and the remaining arguments; raise UsageError with what may have been meant."""
        if args and args[0] not in (*COMMANDS, *HIDDEN) and not args[0].startswith("-"):
            _refuse(ctx, args[0])
        return super().resolve_command(ctx, args)


def _refuse(ctx: click.Context, name: str) -> NoReturn:
    if name in LATER:
        raise click.UsageError(f"`{name}` is not in this version of tokfleet. {LATER[name]}".rstrip(), ctx)
    if name in MEANT:
        raise click.UsageError(f"There is no command `{name}`: here it is `tokfleet {MEANT[name]}`.", ctx)
    from difflib import get_close_matches

    near = get_close_matches(name, [*COMMANDS, *LATER], n=1)
    meant = f" Did you mean `{near[0]}`?" if near else ""
    later = f" It is not in this version: {LATER[near[0]]}".rstrip(": ") if near and near[0] in LATER else ""
    raise click.UsageError(f"There is no command `{name}`.{meant}{later}", ctx)


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"tokfleet {version()}")
        ctx.exit()


def version() -> str:
    """Return the version of the installed package; `unknown` where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version("tokfleet")
    except metadata.PackageNotFoundError:
        return "unknown"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@click.pass_context
def tokfleet(ctx: click.Context) -> Any:
    """Benchmark LLM inference (prefill and decode) and keep the results in SQL.

    Write a sweep file, look at it with `tokfleet plan sweep.yaml`, measure it with
    `tokfleet run sweep.yaml`, read what came out with `tokfleet results`.

    \b
    Exit status: 0 done, 1 something failed, 2 wrong usage, 3 done in part,
    4 it cannot be told, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _invoke(arguments: list[str]) -> Any:
    """Return what the command returns. `click.Group.main` would end by itself on a closed pipe, with 1."""
    if "_TOKFLEET_COMPLETE" in os.environ:
        tokfleet.main(arguments, prog_name="tokfleet")
    try:
        with tokfleet.make_context("tokfleet", list(arguments)) as ctx:
            return tokfleet.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, print what went wrong on standard error, and return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = _invoke(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        from orchestrator.cli.exits import end

        return end(error, arguments)
    return status if isinstance(status, int) else 0

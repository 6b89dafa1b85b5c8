"""`tokfleet bench`: llama-bench's own command line, run as a sweep."""

from pathlib import Path

import click

from orchestrator.cli.choices import Choices
from orchestrator.cli.db import db_option
from orchestrator.cli.measuring import measure_sweep
from orchestrator.cli.output import note, write
from orchestrator.cli.run import python_option
from orchestrator.interchange.llama_bench_options import pieces

OWN = {"--yes": False, "--print-sweep": False, "--db": True, "--python": True, "-h": False, "--help": False}
"""Our options, none of which llama-bench has -> whether they take a value."""


class LlamaBenchLine(click.Command):
    """A command whose options are ours and llama-bench's, whose own (`-ngl 99`) click would take for letters."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give click our options alone, and what is left as it was written."""
        own: list[str] = []
        line: list[str] = []
        for piece in pieces(args, OWN):
            if piece.name in OWN:
                if OWN[piece.name] and piece.value is None:
                    raise click.BadOptionUsage(piece.name, f"Option {piece.name!r} requires an argument.", ctx)
                own += [piece.name, *([piece.value] if OWN[piece.name] and piece.value is not None else [])]
            else:
                line += piece.words
        return super().parse_args(ctx, [*own, "--", *line])


@click.command(cls=LlamaBenchLine, options_metavar="[LLAMA-BENCH OPTIONS] [OPTIONS]")
@click.argument("line", nargs=-1, type=click.UNPROCESSED, metavar="")
@click.option("--print-sweep", is_flag=True, help="Print the sweep file that says the same, and measure nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before a large sweep, or one that is possible only in part.")
@python_option
@db_option
def bench(line: tuple[str, ...], print_sweep: bool, yes: bool, python: str, db: str | None) -> int:
    """Measure what a command line of llama-bench says, and store each result as `tokfleet run` does.

    Options, lists and ranges are those of llama-bench: for example

    \b
      tokfleet bench -m model.gguf -p 512 -n 128 -d 0,32768 -ngl 99 -fa 0,1

    Each combination is measured once. Options that choose the output are refused, since `tokfleet results`
    prints the rows in every format.
    """
    from orchestrator.interchange.llama_bench import translate

    translated = translate(line, Path.cwd())
    for remark in translated.notes:
        note(remark)
    if print_sweep:
        write(translated.text.splitlines())
        return 0
    return measure_sweep(translated.sweep, yes, Choices(python=python), db)

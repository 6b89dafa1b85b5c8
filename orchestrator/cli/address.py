"""The option `--address`: which Ray head a command means, and commands that run there rather than here.

HOST:PORT (or `auto`) is a cluster that this machine is in. http://HOST:8265 is the head's Jobs API, reached from any
machine with the token: the store is there, so the command runs there too.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])


def address_option(command: F) -> F:
    """Give `command` the option `--address`, passed as `address`: what was said, or None."""
    return click.option(
        "--address",
        envvar="TOKFLEET_RAY_ADDRESS",
        metavar="HOST:PORT|URL",
        help="The lab's head: as Ray calls it, or http://HOST:8265 from a machine outside.  "
        "[default: TOKFLEET_RAY_ADDRESS]",
    )(command)


def is_elsewhere(address: str | None) -> bool:
    """Return whether the command is to run at the head rather than here."""
    return address is not None and address.startswith(("http://", "https://"))


def rides(command: F) -> F:
    """Give `command` the option `--address`, and run it at the head where that is a URL.

    The function itself never sees the option: it answers from the store of the machine that it runs on.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, address: str | None, **kwargs: Any) -> Any:
        if not is_elsewhere(address):
            return command(*args, **kwargs)
        from orchestrator.cli.there import ride

        return ride(address, spelt(click.get_current_context()))

    return address_option(cast(F, wrapped))


def spelt(context: click.Context) -> list[str]:
    """Return the words that call the command again as it was called, without `--address`."""
    path = context.command_path.split()[1:]
    return [*path, *(word for parameter in context.command.params for word in _words(context, parameter))]


def _words(context: click.Context, parameter: click.Parameter) -> Iterator[str]:
    """Yield what was typed for one parameter: nothing for what came from a variable or is a default."""
    name = parameter.name or ""
    if name == "address" or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return
    value = context.params[name]
    values = value if isinstance(value, tuple) else (value,)
    if isinstance(parameter, click.Argument):
        yield from (str(each) for each in values)
    elif isinstance(parameter, click.Option) and parameter.is_flag:
        yield (parameter.opts if value else parameter.secondary_opts or parameter.opts)[-1]
    else:
        for each in values:
            yield from (parameter.opts[-1], str(each))

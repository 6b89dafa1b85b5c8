"""`tokfleet cluster`: start a lab's head, let hosts join it, and see what is wrong with it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from orchestrator.cli.output import format_option, note, write, write_rows

if TYPE_CHECKING:
    from orchestrator.bootstrap import Start
    from orchestrator.finding import Finding

COLUMNS = ("host", "check", "state", "found", "to do")
FAILED = 1

ip_option = click.option("--ip", metavar="ADDRESS", help="This machine's own address in the lab.  [default: found]")
gpus_option = click.option(
    "--gpus",
    envvar="TOKFLEET_GPUS",
    type=click.IntRange(0, 64),
    metavar="N",
    help="How many GPUs it offers.  [default: TOKFLEET_GPUS, or those Ray finds]",
)
detach_option = click.option("--detach", is_flag=True, help="Come back when Ray is up, instead of running with it.")
print_option = click.option(
    "--print", "show", is_flag=True, help="Only show the environment and the line that starts Ray."
)


@click.group()
def cluster() -> None:
    """Make a lab of several machines: one head, and hosts that join it.

    \b
    On the head:       tokfleet cluster token && tokfleet cluster start
    On each host:      ssh HEAD cat .ray/auth_token | tokfleet cluster token --stdin
                       tokfleet cluster join HEAD
    Is all well?       tokfleet cluster doctor --address HEAD
    """


@cluster.command()
@click.option("--stdin", is_flag=True, help="Take the token from standard input: that of the head.")
@click.option("--new", is_flag=True, help="Make another one, where somebody may have read the old one.")
def token(stdin: bool, new: bool) -> None:
    """Make the lab's token where Ray reads it, with mode 0600, and say where that is.

    Who has it can run any program on every host of the lab.
    """
    from orchestrator.cluster_token import make_token
    from schema.errors import UsageError

    if stdin and new:
        raise UsageError("A token either comes from standard input or is made: give --stdin or --new, not both.")
    path, is_new = make_token(sys.stdin.read(2000).strip() if stdin else None, new)
    write([str(path)])
    note(f"{'The token is kept there' if is_new else 'There was one already; it stays'}, readable for you alone.")
    if is_new and not stdin:
        note("On each host: ssh THIS-HOST cat .ray/auth_token | tokfleet cluster token --stdin")


@cluster.command()
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
def labels(pairs: tuple[str, ...]) -> None:
    """Show this host's labels, or give it others: KEY=VALUE sets one, KEY= removes it.

    Sweeps choose hosts by them. They count from the next `join` on.
    """
    from orchestrator.bootstrap import LABELS_FILE, parse_labels, read_labels, write_labels
    from worker.home import home_or_nowhere, writable_home

    known = read_labels(home_or_nowhere())
    if pairs:
        for gone in (pair[:-1] for pair in pairs if pair.endswith("=")):
            known.pop(gone, None)
        known |= parse_labels([pair for pair in pairs if not pair.endswith("=")], "the command line")
        write_labels(writable_home(), known)
    write(f"{key}={value}" for key, value in sorted(known.items()))
    if not known:
        note(f"This host has no labels; they would be kept in {home_or_nowhere() / LABELS_FILE}.")


@cluster.command()
@ip_option
@click.option("--port", type=click.IntRange(1024, 65535), default=6379, show_default=True, help="The head's port.")
@click.option("--measure/--no-measure", default=True, help="Whether the head measures too, or only coordinates.")
@gpus_option
@click.option("--autoscaling-config", type=click.Path(path_type=Path), hidden=True)
@detach_option
@print_option
def start(
    ip: str | None,
    port: int,
    measure: bool,
    gpus: int | None,
    autoscaling_config: Path | None,
    detach: bool,
    show: bool,
) -> None:
    """Make this machine the head of a lab; the command runs as long as the head does.

    It is refused without a token, since Ray listens on all of this machine's addresses.
    """
    from orchestrator.bootstrap import Start
    from orchestrator.ray_program import extras, own_address

    with_dashboard, with_client = extras()
    if not with_dashboard:
        note(
            "Ray's dashboard is not installed here, and `tokfleet submit` needs it: pip install 'ray[default]==2.60.0'."
        )
    _start(
        Start(
            ip=ip or own_address(),
            host_uid=_host_uid(),
            labels=_labels(),
            n_gpus=gpus,
            measures=measure,
            port=port,
            dashboard=with_dashboard,
            client=with_client,
            autoscaling=autoscaling_config.expanduser() if autoscaling_config else None,
            block=not detach,
        ),
        show,
    )


@cluster.command()
@click.argument("address")
@ip_option
@gpus_option
@detach_option
@print_option
def join(address: str, ip: str | None, gpus: int | None, detach: bool, show: bool) -> None:
    """Let this machine measure for the lab whose head is at ADDRESS (host, or host:port).

    The command runs as long as the host takes part. It ends when the host was cut off for a minute: under
    systemd (`tokfleet cluster unit`) it is then started again.
    """
    from orchestrator.bootstrap import Start, head_address
    from orchestrator.gathering import address_towards
    from orchestrator.joining import may_join

    head = head_address(address)
    if not show:
        may_join(head)
    _start(
        Start(
            ip=ip or address_towards(head),
            host_uid=_host_uid(),
            labels=_labels(),
            n_gpus=gpus,
            head=head,
            block=not detach,
        ),
        show,
    )


@cluster.command()
@click.argument("address", required=False)
@click.option("--system", is_flag=True, help="A unit of the machine's systemd, not of the user's own.")
def unit(address: str | None, system: bool) -> None:
    """Print a systemd unit that keeps this machine in the lab of ADDRESS; without one, that makes it the head.

    \b
    tokfleet cluster unit HEAD > ~/.config/systemd/user/tokfleet.service
    systemctl --user enable --now tokfleet && loginctl enable-linger
    """
    import getpass
    import os

    from orchestrator.bootstrap import head_address, unit

    home = os.environ.get("TOKFLEET_HOME")
    program = (
        Path(sys.argv[0]).absolute() if sys.argv[0].endswith("tokfleet") else Path(sys.executable).with_name("tokfleet")
    )
    text = unit(
        program, head_address(address) if address else None, Path(home).absolute() if home else None, not system
    )
    if system:
        text = text.replace("[Service]\n", f"[Service]\nUser={getpass.getuser()}\n")
    write(text.splitlines())


@cluster.command()
@click.option("--address", envvar="TOKFLEET_RAY_ADDRESS", metavar="HOST[:PORT]", help="The lab's head.")
@click.option(
    "--model", "models", multiple=True, metavar="PATH", help="A model that each host should have; repeatable."
)
@click.option(
    "--expect", type=click.Path(path_type=Path), metavar="FILE", help="A cluster.yaml whose hosts should be there."
)
@click.option("--all", "everything", is_flag=True, help="List what is well, too.")
@format_option
def doctor(address: str | None, models: tuple[str, ...], expect: Path | None, everything: bool, form: str) -> int:
    """See what is wrong with the lab, or with this host, and what to do about it.

    On a host that cannot join, it says why. Exit status 1 where something must be mended.
    """
    from orchestrator.bootstrap import head_address
    from orchestrator.doctor import judge
    from orchestrator.finding import problems
    from orchestrator.gathering import gather

    found = judge(gather(head_address(address) if address else None, models, _expected(expect)))
    _show(found, everything, form)
    return FAILED if problems(found) else 0


def _show(found: "tuple[Finding, ...]", everything: bool, form: str) -> None:
    shown = [one for one in found if everything or form != "table" or one.state != "ok"]
    if shown:
        write_rows(COLUMNS, [(one.host, one.check, one.state, one.found, one.advice) for one in shown], form)
    n_problems = sum(one.state == "problem" for one in found)
    n_ok = sum(one.state == "ok" for one in found)
    note(f"{n_ok} checks are well, {n_problems} must be mended." if n_problems else f"{n_ok} checks are well.")


def _expected(path: Path | None) -> tuple[str, ...]:
    """Return the addresses in a `ray up` file; raises UsageError where it is none."""
    if path is None:
        return ()
    from orchestrator.ray_up import addresses

    return addresses(path)


def _start(how: "Start", show: bool) -> None:
    import platform
    import shlex

    from orchestrator.bootstrap import environment
    from orchestrator.cluster_token import required_token
    from orchestrator.ray_program import ray_program

    variables = environment(platform.system())
    command = [ray_program(), *how.arguments()]
    if show:
        write([f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())])
        write([shlex.join(command)])
        return
    place = required_token("A head" if how.head is None else "Joining a lab")
    note(f"token: {place.describe()}; address: {how.ip}; host: {how.host_uid}")
    if how.block:
        _become(command, variables)
    from orchestrator.ray_start import start_detached

    start_detached(command, variables, "gcs_server" if how.head is None else "raylet", note)


def _become(command: list[str], variables: dict[str, str]) -> NoReturn:
    """Become Ray, so that a signal, systemd and the terminal meet it and not us."""
    import os

    sys.stdout.flush()
    # What is submitted to a head calls `tokfleet` by its name.
    path = os.pathsep.join((os.path.dirname(command[0]), os.environ.get("PATH", os.defpath)))
    os.execve(command[0], command, {**os.environ, **variables, "PATH": path})  # noqa: S606 - a list, without a shell


def _host_uid() -> str:
    """Return who this machine is; the label by which jobs find it outlives every restart."""
    from worker.fingerprint.take import take
    from worker.home import writable_home

    return take(writable_home(), None).host_uid


def _labels() -> dict[str, str]:
    from orchestrator.bootstrap import read_labels
    from worker.home import home_or_nowhere

    return read_labels(home_or_nowhere())

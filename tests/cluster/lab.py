"""A lab on one machine: hosts in namespaces of their own, joined by a bridge, as machines are by a switch.

Each host has its own network, name, process table, home, /tmp, /dev/shm and sshd; the code and its Python are
those of this machine. Root is needed, and Linux. Nothing is left behind when the first processes are gone:
the kernel takes the namespaces, the network cards and the mounts with them.
"""

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NETWORK = "10.203.0"
SSHD = "/usr/sbin/sshd"
PROGRAMS = {
    SSHD: "openssh-server",
    "ssh": "openssh-client",
    "rsync": "rsync",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
SHM_BYTES = 300 << 20

HOME = Path(pwd.getpwuid(os.geteuid()).pw_dir)
"""The user's home by the account, which is where ssh looks, whatever the variable says."""

INIT = """
set -eu
mount --make-rprivate /
hostname {name}
mount --bind {root}/hosts /etc/hosts
mount --bind {root}/machine-id /etc/machine-id || true
mount -t tmpfs -o size={shm} tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
{keep}
mount --rbind {root}/home {home}
touch {root}/ready
mount --rbind {root}/tmp /tmp
trap 'exit 0' TERM
while :; do sleep 1000 & wait $! || true; done
"""
SSHD_CONFIG = """\
Port 22
HostKey {keys}/host
AuthorizedKeysFile {keys}/user.pub
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
PidFile none
"""


def missing() -> list[str]:
    """Return what this machine lacks for a lab, one sentence each; nothing where all is there."""
    lacks = []
    if sys.platform != "linux":
        return ["It needs Linux, since each host is a set of namespaces."]
    if os.geteuid() != 0:
        lacks.append("It must run as root, to make namespaces and network cards (`sudo make test-cluster`).")
    packages = sorted({package for name, package in PROGRAMS.items() if shutil.which(name) is None})
    if packages:
        lacks.append(f"Programs are missing (Debian, Ubuntu: apt install {' '.join(packages)}).")
    if os.geteuid() == 0:
        done = subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
        )
        if done.returncode:
            lacks.append(f"Namespaces are refused here: {done.stderr.decode(errors='replace').strip()}.")
    return lacks


@dataclass
class Host:
    """A machine of the lab; `pid` is its first process, seen from outside."""

    name: str
    ip: str
    root: Path
    outer: "subprocess.Popen[bytes]"
    pid: int
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    @property
    def home(self) -> Path:
        """Its home directory, seen from outside."""
        return self.root / "home"

    def command(self, *arguments: str, timeout: float = 120.0, **variables: str) -> list[str]:
        """Return the line that runs `arguments` there, as its user would from a fresh login."""
        own = {
            "HOME": str(HOME),
            "USER": "root",
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(REPOSITORY),
            **variables,
        }
        inside = ["env", "-i", *(f"{key}={value}" for key, value in own.items())]
        patience = ["timeout", "--kill-after=5", str(timeout)]
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--net", "--pid", f"--wd={REPOSITORY}"]
        return [*enter, *inside, *patience, *arguments]

    def run(self, *arguments: str, timeout: float = 120.0, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run `arguments` there to their end."""
        return subprocess.run(
            self.command(*arguments, timeout=timeout, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout + 30,
            check=False,
        )

    def shell(self, line: str, timeout: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Run a line of shell there."""
        return self.run("bash", "-o", "pipefail", "-c", line, timeout=timeout)

    def output(self, *arguments: str, timeout: float = 120.0, **variables: str) -> str:
        """Run `arguments` there and return what they print; AssertionError with all of it where they fail."""
        done = self.run(*arguments, timeout=timeout, **variables)
        assert done.returncode == 0, (
            f"{shlex.join(arguments)} on {self.name}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def start(self, *arguments: str, timeout: float = 600.0, **variables: str) -> "subprocess.Popen[str]":
        """Start `arguments` there; what they print goes to a file in the host's home."""
        log = (self.home / f"{len(self.started)}.log").open("w")
        process = subprocess.Popen(
            self.command(*arguments, timeout=timeout, **variables),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        log.close()
        self.started.append(process)
        return process

    def log(self, process: "subprocess.Popen[str]") -> str:
        """Return what a started process has printed."""
        return (self.home / f"{self.started.index(process)}.log").read_text(errors="replace")

    def processes(self, *words: str) -> dict[int, str]:
        """Return the command lines there that have all of `words` in them, by pid as seen from outside."""
        found = {}
        ours = os.readlink(f"/proc/{self.pid}/ns/pid")
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/pid") != ours:
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if line and all(word in line for word in words):
                    found[int(entry.name)] = line
        return found

    def kill(self, *words: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send `number` to the processes there whose line has all of `words`, and return how many there were."""
        found = self.processes(*words)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(found)


@dataclass
class Lab:
    """Hosts on one switch, by name."""

    folder: Path
    switch: "subprocess.Popen[bytes]"
    hosts: dict[str, Host] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def cut(self, name: str) -> None:
        """Pull the host's network cable."""
        self._link(name, "down")

    def heal(self, name: str) -> None:
        """Plug it in again."""
        self._link(name, "up")

    def _link(self, name: str, state: str) -> None:
        _ip(self.switch.pid, "link", "set", f"v-{name}", state)

    def add(self, name: str) -> Host:
        """Start a host and plug it in."""
        number = len(self.hosts) + 1
        root = _room(self.folder, name)
        keep = "\n".join(_kept(root))
        script = INIT.format(name=name, root=root, home=HOME, keep=keep, shm=SHM_BYTES)
        outer = subprocess.Popen(
            [
                "unshare",
                "--mount",
                "--uts",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "bash",
                "-c",
                script,
            ]
        )
        _wait_for(lambda: (root / "ready").exists() or outer.poll() is not None, 20, f"{name} does not start")
        host = Host(name=name, ip=f"{NETWORK}.{number}", root=root, outer=outer, pid=_child_of(outer.pid))
        self.hosts[name] = host
        _ip(self.switch.pid, "link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        _ip(self.switch.pid, "link", "set", f"v-{name}", "master", "br0", "up")
        _ip(host.pid, "addr", "add", f"{host.ip}/24", "dev", "eth0")
        _ip(host.pid, "link", "set", "eth0", "up")
        _ip(host.pid, "link", "set", "lo", "up")
        host.output(SSHD, "-f", str(self.folder / "sshd_config"), "-E", str(HOME / "sshd.log"))
        return host


@contextlib.contextmanager
def lab(folder: Path, names: Sequence[str]) -> Iterator[Lab]:
    """Run a lab of hosts called `names` for the length of the block; each knows the others by name."""
    keys = folder / "keys"
    keys.mkdir(parents=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True)
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(keys=keys))
    known = "".join(f"{NETWORK}.{number} {name}\n" for number, name in enumerate(names, 1))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
    switch = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    made = Lab(folder=folder, switch=switch)
    try:
        _wait_for(lambda: _has_own_network(switch.pid), 10, "the switch does not start")
        _ip(switch.pid, "link", "add", "br0", "type", "bridge")
        _ip(switch.pid, "link", "set", "br0", "up")
        for name in names:
            made.add(name)
        yield made
    finally:
        for host in made.hosts.values():
            host.outer.kill()  # and with it, by --kill-child, the first process, and with that all others
            host.outer.wait()
        switch.kill()
        switch.wait()


def _room(folder: Path, name: str) -> Path:
    """Make the files that are the host's alone, and return their directory."""
    root = folder / name
    for part in ("home/.ssh", "tmp"):
        (root / part).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "machine-id").write_text(f"{abs(hash((str(folder), name))):032x}\n"[-33:])
    shutil.copy(folder / "hosts", root / "hosts")
    shutil.copy(folder / "keys/user", root / "home/.ssh/id_ed25519")
    (root / "home/.ssh/config").write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n")
    return root


def _kept(root: Path) -> Iterator[str]:
    """Yield the lines of shell that keep what the host shares with this machine visible under its own /tmp and home."""
    covered = {Path("/tmp"): root / "tmp", HOME: root / "home"}
    shared = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), root.parent / "keys"}
    for path in sorted({place.resolve() for place in shared}):
        for over, own in covered.items():
            if path.is_relative_to(over):
                target = own / path.relative_to(over)
                yield f"mkdir -p {target}; mount --bind {path} {target}"
    config = root.parent / "sshd_config"
    if config.is_relative_to("/tmp"):
        target = root / "tmp" / config.relative_to("/tmp")
        yield f"mkdir -p {target.parent}; touch {target}; mount --bind {config} {target}"


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


def _has_own_network(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    return False


def _ip(pid: int, *arguments: str) -> None:
    subprocess.run(["nsenter", f"--target={pid}", "--net", "ip", *arguments], check=True)


def _wait_for(is_true: "object", seconds: float, otherwise: str) -> None:
    assert callable(is_true)
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.05)

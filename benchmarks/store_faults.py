"""Is anything that was acknowledged ever lost from a store, or anything stored twice or in half?

    python -m benchmarks.store_faults [--kills 200] [--stops 10] [--writers 8] [--records 500] [--seed 1]

On SQLite, and on a real PostgreSQL that this program runs from its binaries (see tests/postgres.py):

- kills: a writer puts records into its spool while its drainer stores them, and is killed (SIGKILL) at a random
  instant; the next one goes on with the same spool. At the end what is left is drained.
- stops: PostgreSQL is stopped, in turn fast and immediate (as a crash), and started again under such a load.
- full disk: the store lies on a small disk, which becomes full under load, and then gets room. Needs root, to mount it.
- writers: several processes store the same records, each in an order of its own, at the same time.

A record is acknowledged when `Spool.put` has returned: from then on it must never be lost. `cut off` counts those that
were stored without an acknowledgement, since the kill came in between. Exit code: 0, or 1 where something was lost,
doubled or stored in half.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from orchestrator.database import database_at
from orchestrator.migrate import upgrade
from orchestrator.spool import Drainer, Spool
from orchestrator.store import Store
from schema.canonical import to_json
from schema.errors import StoreUnavailableError
from tests.factories import make_fingerprint, make_job, make_record, make_run
from tests.postgres import Server, running

N_JOBS = 400
JOBS = [make_job(replica=number) for number in range(N_JOBS)]


@dataclass(frozen=True)
class Count:
    """What became of the records of one scenario."""

    acknowledged: int
    present: int
    cut_off: int
    doubled: int
    half: int

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled or stored in half."""
        return self.acknowledged == self.present and not self.doubled and not self.half


def record_text(uid: str, number: int) -> dict[str, object]:
    """Return a record of one of the jobs as it comes from a host."""
    parsed: dict[str, object] = json.loads(to_json(make_record(JOBS[number % N_JOBS], attempt_uid=uid)))
    return parsed


def prepare(url: str) -> str:
    """Make a store at `url` with a run whose jobs have no attempts yet."""
    upgrade(url)
    with Store.open(url) as store:
        store.save_run(make_run(), JOBS)
        store.save_fingerprint(make_fingerprint())
    return url


def counted(url: str, acknowledged: set[str]) -> Count:
    """Compare what is stored with what was acknowledged, in SQL of its own."""
    engine = database_at(url).reader()
    with engine.connect() as connection:

        def ask(sql: str) -> list[str]:
            return [row[0] for row in connection.exec_driver_sql(sql)]

        uids = ask("SELECT attempt_uid FROM attempt")
        half = ask(
            "SELECT attempt_uid FROM attempt AS a"
            " WHERE n_samples <> (SELECT COUNT(*) FROM sample WHERE attempt_id = a.id)"
            " OR NOT EXISTS (SELECT 1 FROM condition WHERE attempt_id = a.id)"
        )
        strays = ask("SELECT attempt_id FROM sample WHERE attempt_id NOT IN (SELECT id FROM attempt)")
        finals = ask("SELECT job_id FROM attempt WHERE final GROUP BY job_id HAVING COUNT(*) > 1")
    engine.dispose()
    present = set(uids)
    return Count(
        acknowledged=len(acknowledged),
        present=len(acknowledged & present),
        cut_off=len(present - acknowledged),
        doubled=len(uids) - len(present) + len(finals),
        half=len(half) + len(strays),
    )


def forked(work: Callable[[], None]) -> int:
    """Do `work` in a copy of this process, which has all it needs imported, and return the copy's id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def put_and_drain(url: str, spool_file: Path, name: str, acknowledge: int) -> NoReturn:
    """Put records until killed, and tell each that was put."""
    with Store.open(url) as store, Spool.open(spool_file) as spool:
        Drainer(spool, store.save_entries, pause_seconds=0.001, longest_pause_seconds=0.2).start()
        number = 0
        while True:
            uid = f"{name}-{number}"
            spool.put("record", uid, record_text(uid, hash(name) + number))
            os.write(acknowledge, f"{uid}\n".encode())
            number += 1


def killed(url: str, spool_file: Path, name: str, rng: random.Random) -> set[str]:
    """Let a writer put some records, kill it at a random instant after that, and return what it had acknowledged."""
    read, write = os.pipe()
    pid = forked(lambda: put_and_drain(url, spool_file, name, write))
    os.close(write)
    n_records, text = rng.randrange(1, 80), b""
    while text.count(b"\n") < n_records and (more := os.read(read, 65536)):
        text += more
    time.sleep(rng.uniform(0, 0.02))
    os.kill(pid, signal.SIGKILL)
    while more := os.read(read, 65536):
        text += more
    os.close(read)
    os.waitpid(pid, 0)
    return set(text.decode().split("\n")[:-1])


def drain(url: str, spool_file: Path) -> None:
    """Store what is left in the spool; nothing may have been refused."""
    with Store.open(url) as store, Spool.open(spool_file) as spool:
        spool.drain(store.save_entries)
        if spool.parked():
            raise SystemExit(f"a record was refused: {spool.parked()[0].error}")


def kills(url: str, folder: Path, times: int, rng: random.Random) -> Count:
    """Kill `times` writers, one after the other."""
    prepare(url)
    acknowledged: set[str] = set()
    for number in range(times):
        acknowledged |= killed(url, folder / "spool", f"k{number}", rng)
    drain(url, folder / "spool")
    return counted(url, acknowledged)


@contextmanager
def loading(url: str, spool_file: Path, acknowledged: set[str]) -> Iterator[None]:
    """Put and drain records at a steady pace in threads of this process, and drain to the end afterwards."""
    done = threading.Event()
    with Store.open(url) as store, Spool.open(spool_file) as spool:

        def put() -> None:
            number = 0
            while not done.wait(0.004):
                uid = f"r{number}"
                try:
                    spool.put("record", uid, record_text(uid, number))
                except StoreUnavailableError:
                    continue
                acknowledged.add(uid)
                number += 1

        with Drainer(spool, store.save_entries, pause_seconds=0.01, longest_pause_seconds=0.5) as drainer:
            putter = threading.Thread(target=put)
            putter.start()
            try:
                yield
            finally:
                done.set()
                putter.join()
            drainer.flush(120)
        if spool.parked():
            raise SystemExit(f"a record was refused: {spool.parked()[0].error}")


def stops(server: Server, folder: Path, times: int, rng: random.Random) -> Count:
    """Stop and start the server `times` times, in turn fast and immediate, 0.2 to 1.2 s apart."""
    url = prepare(server.url(server.create()))
    acknowledged: set[str] = set()
    with loading(url, folder / "spool-stops", acknowledged):
        for number in range(times):
            time.sleep(rng.uniform(0.2, 1.2))
            server.stop("immediate" if number % 2 else "fast")
            time.sleep(rng.uniform(0.2, 1.2))
            server.start()
        time.sleep(0.5)
    return counted(url, acknowledged)


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """Mount a disk of so many MiB at `folder`, which belongs to whom the folder above it does."""
    folder.mkdir()
    folder.chmod(0o777)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=777", "tmpfs", str(folder)], check=True)
    owner = folder.parent.stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def give_room(folder: Path) -> None:
    """Make the disk that is mounted at `folder` large."""
    subprocess.run(["mount", "-o", "remount,size=1g", str(folder)], check=True)


def full_disk(url: str, disk: Path, spool_file: Path) -> Count:
    """Store until the disk has been full for a while, and go on when it has room again."""
    prepare(url)
    acknowledged: set[str] = set()
    with loading(url, spool_file, acknowledged):
        deadline = time.monotonic() + 60
        while _free_bytes(disk) > 100_000 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(2)
        give_room(disk)
    return counted(url, acknowledged)


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def full_sqlite(folder: Path) -> Count:
    """Fill the disk on which the file lies."""
    with small_disk(folder / "small", 2) as disk:
        return full_disk(f"sqlite:///{disk / 'runs.db'}", disk, folder / "spool-full-sqlite")


def full_postgres(server: Server, folder: Path) -> Count:
    """The tables lie on a disk of their own; the server's log and its journal do not."""
    with small_disk(server.folder / "small", 13) as disk:
        server.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        server.execute("CREATE DATABASE small_disk TABLESPACE small")
        count = full_disk(server.url("small_disk"), disk, folder / "spool-full-postgres")
        server.drop("small_disk")
        server.execute("DROP TABLESPACE small")
        return count


def writers(url: str, folder: Path, n_writers: int, n_records: int) -> Count:
    """Let several processes store the same records through spools of their own, each in an order of its own."""
    prepare(url)
    uids = [f"w{number}" for number in range(n_records)]

    def work(writer: int) -> None:
        with Store.open(url) as store, Spool.open(folder / f"spool-{writer}") as spool:
            for number in random.Random(writer).sample(range(n_records), n_records):
                spool.put("record", uids[number], record_text(uids[number], number))
            with Drainer(spool, store.save_entries) as drainer:
                drainer.flush(300)
            if spool.parked():
                raise SystemExit(f"a record was refused: {spool.parked()[0].error}")

    pids = [forked(partial(work, writer)) for writer in range(n_writers)]
    if any(os.waitpid(pid, 0)[1] for pid in pids):
        raise SystemExit("a writer failed")
    return counted(url, set(uids))


def main() -> int:
    """Run every scenario on both databases and print what became of the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("kills", 200), ("stops", 10), ("writers", 8), ("records", 500), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    print(f"{'scenario':<28}{'acknowledged':>13}{'present':>9}{'cut off':>9}{'doubled':>9}{'half':>6}{'seconds':>9}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(running(durable=True))

        def fresh(name: str) -> str:
            return f"sqlite:///{folder / name}.db" if name.startswith("SQLite") else server.url(server.create())

        scenarios: dict[str, Callable[[], Count]] = {}
        for kind in ("SQLite", "PostgreSQL"):
            (folder / kind).mkdir()
            killing = partial(kills, fresh(f"{kind}-k"), folder / kind, asked.kills, rng)
            writing = partial(writers, fresh(f"{kind}-w"), folder / kind, asked.writers, asked.records)
            scenarios |= {f"{kind}, {asked.kills} kills": killing, f"{kind}, {asked.writers} writers": writing}
        scenarios[f"PostgreSQL, {asked.stops} stops"] = partial(stops, server, folder, asked.stops, rng)
        if os.geteuid() == 0:
            scenarios["SQLite, full disk"] = partial(full_sqlite, folder)
            scenarios["PostgreSQL, full disk"] = partial(full_postgres, server, folder)
        verdicts = [_tell(name, run) for name, run in scenarios.items()]
        return 0 if all(verdicts) else 1


def _tell(name: str, run: Callable[[], Count]) -> bool:
    begun = time.monotonic()
    count = run()
    numbers = f"{count.acknowledged:>13}{count.present:>9}{count.cut_off:>9}{count.doubled:>9}{count.half:>6}"
    print(
        f"{name:<28}{numbers}{time.monotonic() - begun:>9.1f}{'' if count.good else '   LOST, DOUBLED OR HALF'}",
        flush=True,
    )
    return count.good


if __name__ == "__main__":
    sys.exit(main())

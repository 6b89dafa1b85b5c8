"""Which llama.cpp a Python of this host would run: asked in its own process, kept until its files change."""

import json
import os
import signal
import subprocess
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

from schema.canonical import decode, digest
from schema.errors import HostError
from schema.host import Build
from worker.fingerprint import gpu
from worker.variables import child_environment

LIMIT_SECONDS = 60.0


def find_build(python: str, home: Path) -> Build:
    """Return the build that `python` would run; raises HostError when it can run none, with the reason it gave."""
    # Its devices are asked anew when a GPU comes or goes, or another server is named.
    circumstances = [python, os.environ.get("LLAMA_ARG_RPC"), gpu.cache_key(Path("/"), os.environ)]
    kept = home / "cache" / f"build-{digest(circumstances)[:16]}.json"
    build = _read(kept)
    if build is None:
        build, files = _ask(python)
        _write(kept, build, files)
    return build


def _ask(python: str) -> tuple[Build, list[str]]:
    try:
        answer = subprocess.run(
            [python, "-m", "worker", "--build"],
            env=child_environment(),
            cwd="/",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
        reply = json.loads(answer.stdout.splitlines()[-1])
    except OSError as error:
        raise HostError(f"The measuring Python {python} cannot be started: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{python} did not say within {LIMIT_SECONDS:g} s which llama.cpp it runs.") from error
    except (ValueError, IndexError) as error:
        reason = _reason(answer)
        refused = reason.partition("EngineError: ")[2]
        if refused:
            raise HostError(f"{python} cannot run llama.cpp: {refused}.") from error
        raise HostError(f"{python} cannot run llama.cpp: {reason}. Run `make engine` to build it.") from error
    files = reply["files"]
    return replace(decode(Build, reply["build"]), library_sha256=_sha256(files)), files


def _reason(answer: "subprocess.CompletedProcess[str]") -> str:
    if answer.returncode == -signal.SIGILL:
        return "it ended with an illegal instruction (SIGILL), since that was built for another CPU"
    ended = f"signal {-answer.returncode}" if answer.returncode < 0 else f"exit code {answer.returncode}"
    return (answer.stderr.strip().splitlines() or [ended])[-1]


def _sha256(files: list[str]) -> str:
    whole = sha256()
    for name in sorted(files):
        whole.update(Path(name).read_bytes())
    return whole.hexdigest()


def _stamp(files: list[str]) -> list[list[object]]:
    return [[name, Path(name).stat().st_size, Path(name).stat().st_mtime_ns] for name in files]


def _read(kept: Path) -> Build | None:
    try:
        content = json.loads(kept.read_text())
        if content["files"] == _stamp([name for name, _, _ in content["files"]]):
            return decode(Build, content["build"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _write(kept: Path, build: Build, files: list[str]) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"build": asdict(build), "files": _stamp(files)}))
    except OSError:
        pass  # it is asked again the next time

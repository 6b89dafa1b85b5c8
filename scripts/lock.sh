#!/bin/sh
# Regenerates requirements/*.lock from pyproject.toml. Options go to uv: `scripts/lock.sh --upgrade` takes newer versions.
# The locks carry hashes and no address, so they install from any index that serves the same files.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-uv}
command -v "$uv" >/dev/null || {
    echo "uv makes the lock files and was not found. Install it (pip install uv) or say where it is: make lock UV=/path/to/uv" >&2
    exit 1
}

compile() {
    name=$1
    shift
    echo "locking requirements/$name.lock"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
        --no-emit-find-links --output-file "requirements/$name.lock" "$@" >/dev/null
}

# llama-cpp-python is compiled for the machine it runs on, apart from the rest: see scripts/install_engine.py.
# pyarrow is large and only `export --to parquet` needs it: it stands in dev.lock, for the tests.
compile run pyproject.toml --extra worker --extra nvidia --extra postgres --no-emit-package llama-cpp-python "$@"
compile build --group pyproject.toml:build --constraint requirements/run.lock "$@"
compile dev --group pyproject.toml:dev --constraint requirements/run.lock --constraint requirements/build.lock "$@"

asked=$(mktemp)
trap 'rm -f "$asked"' EXIT
grep -o 'llama-cpp-python==[0-9.]*' pyproject.toml >"$asked"
compile engine "$asked" --no-deps "$@"

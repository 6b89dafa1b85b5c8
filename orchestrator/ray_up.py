"""The file of `ray up`: which hosts it names."""

from pathlib import Path

from schema.errors import UsageError
from schema.yaml_file import Mapping, Scalar, Sequence, parse_yaml

MAX_BYTES = 1_000_000


def addresses(path: Path) -> tuple[str, ...]:
    """Return the addresses of head and workers in the file at `path`, the head's first.

    Raises UsageError where the file names none, SweepError where it is no YAML.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}. Name the cluster.yaml that `ray up` was given.") from error
    whole, _ = parse_yaml(text, str(path), "cluster", ("cluster_name", "provider"))
    provider = whole.get("provider")
    if provider is None or not isinstance(provider.value, Mapping):
        raise UsageError(f"{path} has no `provider`, so that it names no hosts. It is no file of `ray up`.")
    head, workers = provider.value.get("head_ip"), provider.value.get("worker_ips")
    found = [head.value] if head else []
    if workers and isinstance(workers.value, Sequence):
        found += workers.value.items
    return tuple(one.text for one in found if isinstance(one, Scalar) and not one.is_null)

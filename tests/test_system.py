"""What psutil tells is None where it is not installed; the fingerprint is taken all the same."""

import sys
from pathlib import Path

import psutil
import pytest

from schema.errors import ModelError
from worker import recipe, synthetic, system
from worker.fingerprint.take import take


def test_what_psutil_knows_is_told() -> None:
    assert system.memory_bytes() == psutil.virtual_memory().total
    assert (system.available_bytes() or 0) > 0
    assert system.swap_bytes() is not None
    assert system.n_cpus() == psutil.cpu_count()
    assert system.n_cores() == psutil.cpu_count(logical=False)


def test_without_psutil_nothing_is_told_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    found = (system.memory_bytes(), system.available_bytes(), system.swap_bytes(), system.n_cores(), system.has_mains())
    assert found == (None,) * 5
    assert system.n_cpus() is not None
    assert take(tmp_path, None).host_uid


def test_without_numpy_a_synthetic_model_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "worker.noise", None)
    with pytest.raises(ModelError, match="A synthetic model is made with numpy, which cannot be used here"):
        recipe.build(synthetic.recipe_of(synthetic.parse("test-tiny:Q8_0")), tmp_path, lambda *_: None)

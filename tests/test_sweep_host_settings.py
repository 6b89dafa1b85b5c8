"""What a sweep asks of its hosts is an axis of its jobs, and part of the question that a result answers."""

from pathlib import Path

import pytest

from schema.errors import SweepError
from schema.job import config_key
from schema.settings import Settings
from schema.sweep import Sweep, parse_sweep
from tests.factories import make_job

MODEL = "models: [{path: tiny.gguf}]\n"


def parse(text: str) -> Sweep:
    return parse_sweep(MODEL + text, "f.yaml", Path("/"))


def test_every_combination_is_a_value_and_a_job_of_its_own() -> None:
    sweep = parse("host_settings: {gpu_power_w: [250, 350], fan: auto}")
    assert sweep.params["host_settings"] == ("fan=auto gpu_power_w=250", "fan=auto gpu_power_w=350")
    assert sweep.n_combinations == 4
    assert Settings(host_settings="fan=auto gpu_power_w=250").of_host == {"fan": "auto", "gpu_power_w": "250"}
    assert Settings().of_host == {}


def test_what_a_host_is_set_to_is_part_of_the_config_key_and_moves_no_old_one() -> None:
    plain, set_low = make_job(), make_job(settings=Settings(host_settings="gpu_power_w=250"))
    assert plain.config_key != set_low.config_key
    assert plain.config_key == config_key(plain.test, Settings(host_settings="none"), plain.model.identity, "default")
    assert plain.config_key == "913ae3524872ed5f88244cafad340d92"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host_settings: 250", "stands where settings belong; write `host_settings: {gpu_power_w: [250, 350]}`"),
        ("host_settings: {GPU: 1}", "'GPU' cannot name a setting"),
        ("host_settings: {gpu_power_w: --help}", "'--help' is no value of a host's setting"),
        ("host_settings: {gpu_power_w: '1 2'}", "'1 2' is no value"),
        ("host_settings: {gpu_power_w: '$(reboot)'}", "is no value of a host's setting"),
        ("host_settings: {gpu_power_w: }", "there is no value; write a number or a word."),
        ("host_settings: {gpu_power_w: [1, 1]}", "gpu_power_w: 1 stands in the list twice"),
        ("host_setting: {gpu_power_w: 1}", "the nearest is `host_settings`"),
    ],
)
def test_what_cannot_be_asked_of_a_host_is_refused(text: str, words: str) -> None:
    with pytest.raises(SweepError) as caught:
        parse(text)
    assert words in str(caught.value)

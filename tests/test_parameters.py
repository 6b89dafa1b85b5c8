from dataclasses import fields

from schema.settings import Settings
from scripts.parameters import PAGE, SEEN, page
from scripts.parameters import test_of as a_test_of


def test_the_page_of_parameters_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m scripts.parameters"


def test_every_setting_has_a_test_that_speaks_of_it() -> None:
    assert [setting.name for setting in fields(Settings) if not a_test_of(setting.name)] == []
    assert set(SEEN) <= {setting.name for setting in fields(Settings)}

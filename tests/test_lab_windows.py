"""Times of the day at which a host may measure, over midnight, by days of the week, and in summer time."""

from datetime import UTC, datetime, timedelta

import pytest

from schema.lab_host import LabHost, may_start, must_end
from schema.lab_windows import check_zone, parse_window


def host(*windows: str, zone: str = "Europe/Berlin") -> LabHost:
    return LabHost(name="boxa", windows=tuple(parse_window(window) for window in windows), zone=zone)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_host_without_windows_may_always_begin_and_never_must_end() -> None:
    assert may_start(host(), at("2026-11-30T12:00:00+01:00")) is None
    assert must_end(host(), at("2026-11-30T12:00:00+01:00")) is None


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-11-30T22:00:00+01:00", None),
        ("2026-11-30T23:59:59+01:00", None),
        ("2026-12-01T06:59:59+01:00", None),
        ("2026-12-01T07:00:00+01:00", "2026-12-01T22:00:00+01:00"),
        ("2026-11-30T12:00:00+01:00", "2026-11-30T22:00:00+01:00"),
    ],
)
def test_a_window_goes_over_midnight_and_ends_before_its_last_minute(now: str, opens: str | None) -> None:
    found = may_start(host("22:00-07:00"), at(now))
    assert (found and found.until) == (at(opens) if opens else None)


def test_the_days_of_a_window_are_those_on_which_it_begins() -> None:
    friday = host("fri 22:00-07:00")
    assert may_start(friday, at("2026-12-05T03:00:00+01:00")) is None  # a Saturday
    found = may_start(friday, at("2026-12-04T03:00:00+01:00"))
    assert found is not None
    assert found.until == at("2026-12-04T22:00:00+01:00")


def test_a_closed_host_says_when_it_measures_and_what_time_it_has() -> None:
    found = may_start(host("22:00-07:00", "sat 00:00-24:00"), at("2026-11-30T11:05:00+00:00"))
    assert found is not None
    assert found.why == "boxa measures only at 22:00-07:00, sat 00:00-24:00 (Europe/Berlin), where it is mon 12:05 now."


def test_windows_that_meet_are_one() -> None:
    weekend = host("fri 20:00-24:00", "sat,sun 00:00-24:00")
    assert must_end(weekend, at("2026-12-04T21:00:00+01:00")) == at("2026-12-07T00:00:00+01:00")


def test_a_host_that_is_always_open_never_must_end() -> None:
    assert must_end(host("00:00-24:00"), at("2026-12-04T21:00:00+01:00")) is None


def test_outside_its_windows_a_host_must_end_now() -> None:
    now = at("2026-12-04T12:00:00+01:00")
    assert must_end(host("22:00-07:00"), now) == now


def test_the_wall_clock_counts_when_summer_time_begins_and_ends() -> None:
    night = host("01:30-03:30")
    assert must_end(night, at("2026-03-29T01:30:00+01:00")) == at("2026-03-29T03:30:00+02:00")  # an hour is left out
    long_night = must_end(night, at("2026-10-25T01:30:00+02:00"))
    assert long_night is not None
    assert long_night - at("2026-10-25T01:30:00+02:00") == timedelta(hours=3)


def test_a_year_of_minutes_is_open_as_the_clock_says() -> None:
    own = host("mon-fri 18:00-08:00", "sat,sun 10:00-12:00", zone="UTC")
    for hours in range(0, 24 * 14):
        now = datetime(2026, 6, 1, 0, 30, tzinfo=UTC) + timedelta(hours=hours)
        evening = now.weekday() < 5 and now.hour >= 18
        morning = 0 <= (now.weekday() - 1) % 7 < 5 and now.hour < 8
        midday = now.weekday() >= 5 and 10 <= now.hour < 12
        found = may_start(own, now)
        assert (found is None) == (evening or morning or midday), now
        if found is not None:
            assert may_start(own, found.until) is None
            assert may_start(own, found.until - timedelta(minutes=1)) is not None


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("sat 00:00-24:00", (5,)),
        ("Sat,sun 08:00-20:00", (5, 6)),
        ("mon-fri 08:00-20:00", (0, 1, 2, 3, 4)),
        ("fri-mon 08:00-20:00", (0, 4, 5, 6)),
        ("monday 08:00-20:00", (0,)),
        ("08:00 - 20:00", (0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_days_are_written_alone_in_lists_and_in_ranges(text: str, days: tuple[int, ...]) -> None:
    assert parse_window(text).days == days


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("22-7", "'22' is no time of the day; write it like 07:30"),
        ("22:00", "is no time of the day; write it like 22:00-07:00"),
        ("25:00-26:00", "'25:00' is no time of the day"),
        ("10:75-11:00", "'10:75' is no time of the day"),
        ("24:00-07:00", "write 00:00 of the next day"),
        ("foo 10:00-11:00", "'foo' is no day of the week; write mon, tue"),
        ("at night", "is no time of the day"),
    ],
)
def test_what_is_no_window_is_answered_with_how_to_write_one(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"\.$") as caught:
        parse_window(text)
    assert words in str(caught.value)


def test_an_unknown_zone_is_answered_with_the_nearest() -> None:
    assert check_zone("UTC") == "UTC"
    with pytest.raises(ValueError, match=r"no time zone that this machine knows; the nearest is Europe/Berlin\."):
        check_zone("Europe/Berlim")
    with pytest.raises(ValueError, match="no time zone"):
        check_zone("../../etc/passwd")

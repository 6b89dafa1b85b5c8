"""Times of the day at which a host may measure: read from `22:00-07:00` or `sat,sun 00:00-24:00`, asked of a given now.

Times are those of a wall clock in a named zone, so a window moves with summer time as the people do. Stdlib only.
"""

import difflib
import re
import zoneinfo
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from schema.problem import show

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LONG_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MINUTES = 24 * 60
FORM = "write it like 22:00-07:00, or sat,sun 00:00-24:00, or mon-fri 18:00-08:00"
DAYS_AHEAD = 9

_WINDOW = re.compile(r"(?:(?P<days>[A-Za-z,\- ]+?) +)?(?P<since>[0-9:.]+) *[-–] *(?P<until>[0-9:.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From minute `since` to minute `until` of a day, on `days` (0 is Monday); the next day's where it is not later."""

    days: tuple[int, ...]
    since: int
    until: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Why a host may not begin to measure, as a sentence, and the instant (UTC) from which it may."""

    why: str
    until: datetime


def parse_window(text: str) -> Window:
    """Return the window that `text` says; ValueError says what to write instead, as the end of a sentence."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{show(text)} is no time of the day; {FORM}.")
    since, until = _minutes(found["since"]), _minutes(found["until"])
    if since == MINUTES:
        raise ValueError(f"{show(text)} begins at 24:00; write 00:00 of the next day.")
    return Window(days=_days(found["days"] or ""), since=since, until=until, text=" ".join(text.split()))


def check_zone(name: str) -> str:
    """Return `name` where this machine knows the zone; ValueError with the nearest one where it does not."""
    try:
        zone_of(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(name, zoneinfo.available_timezones(), n=1)
        hint = f"the nearest is {near[0]}" if near else "write it like Europe/Berlin, or UTC"
        raise ValueError(f"{show(name)} is no time zone that this machine knows; {hint}.") from None
    return name


def zone_of(name: str) -> tzinfo:
    """Return the zone called `name`; UTC is known everywhere."""
    return UTC if name.upper() == "UTC" else zoneinfo.ZoneInfo(name)


def closed(host: str, windows: Sequence[Window], zone: str, now: datetime) -> Closed | None:
    """Return why `host` may not begin to measure at `now` (aware) and until when; None where it may."""
    spans = sorted(_spans(windows, zone_of(zone), now))
    if not spans or any(since <= now < until for since, until in spans):
        return None
    opens = min(since for since, _ in spans if since > now)
    times = ", ".join(window.text for window in windows)
    there = now.astimezone(zone_of(zone))
    return Closed(
        why=f"{host} measures only at {times} ({zone}), where it is {DAYS[there.weekday()]} {there:%H:%M} now.",
        until=opens,
    )


def closes_at(windows: Sequence[Window], zone: str, now: datetime) -> datetime | None:
    """Return when (UTC) the window that is open at `now` ends; None without windows, or where it never does.

    Windows that meet are one. At a closed time it is `now`.
    """
    if not windows:
        return None
    end = now.astimezone(UTC)
    for since, until in sorted(_spans(windows, zone_of(zone), now)):
        if since <= end < until:
            end = until
    return None if end - now > timedelta(days=7) else end


def _spans(windows: Sequence[Window], zone: tzinfo, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield each window of yesterday and the days ahead as two instants."""
    today = now.astimezone(zone).date()
    for day in (today + timedelta(days=n) for n in range(-1, DAYS_AHEAD)):
        for window in windows:
            if day.weekday() in window.days:
                last = day + timedelta(days=window.until <= window.since)
                yield _instant(day, window.since, zone), _instant(last, window.until, zone)


def _instant(day: date, minutes: int, zone: tzinfo) -> datetime:
    whole, rest = divmod(minutes, MINUTES)
    local = datetime.combine(day + timedelta(days=whole), time(rest // 60, rest % 60), tzinfo=zone)
    return local.astimezone(UTC)


def _minutes(text: str) -> int:
    found = re.fullmatch(r"([0-9]{2}):([0-9]{2})", text)
    minutes = int(found[1]) * 60 + int(found[2]) if found else -1
    if found is None or not 0 <= minutes <= MINUTES or int(found[2]) > 59:
        raise ValueError(f"{show(text)} is no time of the day; write it like 07:30, from 00:00 to 24:00.")
    return minutes


def _days(text: str) -> tuple[int, ...]:
    if not text.strip():
        return tuple(range(7))
    days: set[int] = set()
    for part in re.split(r"\s*,\s*|\s+", re.sub(r"\s*-\s*", "-", text.strip())):
        first, _, last = part.partition("-")
        start, end = _day(first), _day(last or first)
        days |= {(start + n) % 7 for n in range((end - start) % 7 + 1)}
    return tuple(sorted(days))


def _day(word: str) -> int:
    for names in (DAYS, LONG_DAYS):
        if word.lower() in names:
            return names.index(word.lower())
    raise ValueError(f"{show(word)} is no day of the week; write {', '.join(DAYS)}.")

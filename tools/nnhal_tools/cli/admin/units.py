"""Numbers and names as short texts."""


def format_bytes(count: float) -> str:
    """Return a size with a unit, for example "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Return a duration of work with a unit, for example "1.5 ms"; "-" for 0, which means unknown."""
    if not seconds:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def format_age(seconds: float) -> str:
    """Return the age of something, for example "2 h 5 min"."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{rest} s"


def printable(text: str) -> str:
    """Return a text without control characters: clients choose their names, which must not control the terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def counted(count: int, noun: str) -> str:
    """Return a number with a noun, for example "1 worker" or "2 workers"."""
    return f"{count} {noun if count == 1 else f'{noun}s'}"

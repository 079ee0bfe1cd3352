"""What the options of several objects have in common: names for numbers, flags, and log functions.

Constants are given by their names in small letters, such as compute="f32" for COMPUTE_F32. A name
that the library does not have is a ValueError that lists those it has.
"""

from typing import Any, Callable, Dict, Optional

from . import _abi
from ._library import callback
from .errors import InvalidError

LogFunction = Callable[[str, str], object]
"""Is called with a level ("error", "warn" or "info") and a line. It may not call the library."""

LEVELS = {_abi.LOG_ERROR: "error", _abi.LOG_WARN: "warn", _abi.LOG_INFO: "info"}


def names_of(prefix: str) -> Dict[str, int]:
    """The constants that begin so: names_of("KV_") is {"auto": 0, "f32": 1, ...}."""
    return {name[len(prefix):].lower(): value for name, value in vars(_abi).items()
            if name.startswith(prefix)}


def choice(prefix: str, name: str, what: str) -> int:
    names = names_of(prefix)
    if name not in names:
        raise InvalidError(f"{what}: {name!r} is not one of {', '.join(names)}")
    return names[name]


def flags(**given: bool) -> int:
    """flags(POOL_FIXED_K=True) is the number of those that are true."""
    return sum(getattr(_abi, name) for name, is_set in given.items() if is_set)


def count(number: Optional[int]) -> int:
    """A count where None is the default, which is 0 in C, and 0 is none, which is -1 there."""
    return 0 if number is None else number or -1


def log_callback(log: Optional[LogFunction]) -> Any:
    if log is None:
        return _abi.log_fn()
    function = log

    def called(_user: Any, level: int, line: bytes) -> None:
        function(LEVELS.get(level, str(level)), line.decode("utf-8", "replace"))
    return callback(_abi.log_fn, called, None)

"""What the options of several objects have in common: their names, numbers, flags, and logs.

Constants are given by their names in small letters, such as compute="f32" for COMPUTE_F32. A name
that the library does not have is a ValueError that lists those it has.

Options that several methods take alike are the keys of a TypedDict, by which type checkers and
editors know them (PEP 692): **options: "Unpack[PoolOptions]". The annotation is text, and Unpack is
imported for type checkers only, which all bring typing_extensions: typing has it from Python 3.11
on. Rejected: to write twenty parameters, or thirty, into the heads of nine functions.
"""

import difflib
from typing import Any, Callable, Dict, Iterable, Optional

from . import _abi
from ._library import callback, function_argument
from .errors import InvalidError

LogFunction = Callable[[str, str], object]
"""Is called with a level ("error", "warn" or "info") and a line. It may not call the library."""

LEVELS = {_abi.LOG_ERROR: "error", _abi.LOG_WARN: "warn", _abi.LOG_INFO: "info"}


def names_of(prefix: str) -> Dict[str, int]:
    """The constants that begin so: names_of("KV_") is {"auto": 0, "f32": 1, ...}."""
    return {name[len(prefix):].lower(): value for name, value in vars(_abi).items()
            if name.startswith(prefix)}


def check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a name that is none of an object's options, as Python refuses an argument that a
    function does not have, and says which of them is the nearest."""
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise TypeError(f"{what} has no option {name!r}; " + (
                f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"))


def choice(prefix: str, name: str, what: str) -> int:
    names = names_of(prefix)
    if not isinstance(name, str) or name not in names:
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
    function = function_argument("log", log)

    def called(_user: Any, level: int, line: bytes) -> None:
        function(LEVELS.get(level, str(level)), line.decode("utf-8", "replace"))
    return callback(_abi.log_fn, called, None)

"""The shared library: where it is found, how it is called, and how its handles live.

Why ctypes and not cffi or a C extension: it is part of Python and of PyPy, nothing is compiled, so
one wheel serves all versions of Python, and it releases the GIL in every foreign call. A call costs
about a microsecond, and a round of a pool takes three calls, so there is nothing to win by C. The
declarations are generated from the header (_abi.py).

A handle is an object of the library that a Python object owns:

    close(), or the end of a `with` block      frees it at once, BusyError if someone is inside
    the garbage collector                      frees it, in any order: the library counts references
    the end of the interpreter                 frees it before modules are taken down, the latest
                                               first, so that no callback finds a dead interpreter;
                                               nothing is freed while daemon threads run

`_users` has an item for each call that is under way and each view of the object's memory. Appending
to a list is atomic, so no lock is needed, which a fork could leave locked.

An exception in a callback may not pass through the library's C frames. It is kept for the thread
that it was raised on (callbacks are called on the thread that is inside the library), the callback
returns failure, and `call` raises it when the library has returned.
"""

import atexit
import contextlib
import ctypes
import itertools
import operator
import os
import threading
import weakref
from ctypes import c_char_p, c_float, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from types import TracebackType
from typing import (Any, Callable, ContextManager, Dict, Iterator, List, NoReturn, Optional,
                    Sequence, Tuple, Type, TypeVar, Union)

from . import _abi
from .errors import BusyError, InvalidError, error_of

Self = TypeVar("Self", bound="Handle")
Path = Union[str, "os.PathLike[str]"]
SONAME = f"libspecbatch.so.{_abi.SOVERSION}"
_INTEGERS = tuple("bBhHiIlLqQnN")  # formats of buffers
_RANGES = {c_int32: (-2**31, 2**31 - 1), c_uint32: (0, 2**32 - 1), c_uint64: (0, 2**64 - 1)}
_thread = threading.local()  # `kept`: the exception of a callback


# ------------------------------------------------------------ loading

def _open(path: str) -> Any:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"specbatch: cannot load {path}: {error}") from None


def _find() -> Any:
    """SPECBATCH_LIBRARY, else the library in this package, else the system's."""
    path = os.environ.get("SPECBATCH_LIBRARY")
    if path:
        return _open(path)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    if os.path.exists(path):
        return _open(path)
    try:
        return ctypes.CDLL(SONAME)
    except OSError:
        raise ImportError(f"specbatch: {SONAME} is neither in the package nor where the system's "
                          "loader looks; SPECBATCH_LIBRARY may name it") from None


def _check_version(library: Any) -> None:
    """Refuses a library of another ABI, or one older than this package."""
    try:
        library.specbatch_version_string.restype = c_char_p
        abi, version = library.specbatch_abi_version(), library.specbatch_version()
        text = library.specbatch_version_string().decode()
    except AttributeError:
        raise ImportError(f"specbatch: {library._name} is not libspecbatch, or is older than "
                          "0.2") from None
    if abi != _abi.SOVERSION:
        raise ImportError(f"specbatch: {library._name} has ABI {abi}, and this package is made for "
                          f"ABI {_abi.SOVERSION}")
    if version // 100 < _abi.VERSION_NUMBER // 100:
        raise ImportError(f"specbatch: {library._name} is version {text}, and this package needs "
                          f"{_abi.VERSION} or later")


def _load() -> Dict[str, Any]:
    """The functions by their names without the prefix."""
    library = _find()
    _check_version(library)
    functions = {}
    for name, (returns, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, "specbatch_" + name)
        except AttributeError:
            raise ImportError(f"specbatch: {library._name} lacks specbatch_{name}") from None
        function.restype = c_int32 if returns == _abi.STATUS else returns
        function.argtypes = arguments
        functions[name] = function
    return functions


FUNCTIONS = _load()


# ------------------------------------------------------------ calls

def raise_kept() -> None:
    """Raises what a callback of this thread has raised, if anything, once."""
    kept: Optional[BaseException] = getattr(_thread, "kept", None)
    if kept is not None:
        _thread.kept = None
        try:
            raise kept
        finally:
            del kept  # a traceback refers to this frame


def keep(error: BaseException) -> None:
    """Keeps a callback's exception; of several before one return the first counts."""
    if getattr(_thread, "kept", None) is None:
        _thread.kept = error


def call(name: str, *arguments: Any, passing: Sequence[int] = ()) -> Any:
    """Calls the library. A status below 0 that is not `passing` becomes an exception."""
    kinds = _abi.FUNCTIONS[name][1]
    value = FUNCTIONS[name](*(number(name, kind, given) if kind in _RANGES else given
                              for kind, given in zip(kinds, arguments)))
    raise_kept()
    if _abi.FUNCTIONS[name][0] == _abi.STATUS and value < 0 and value not in passing:
        raise error_of(value, FUNCTIONS["last_error"]().decode("utf-8", "replace"))
    return value


def make(name: str, *arguments: Any) -> int:
    """Calls a function whose first argument receives a new handle."""
    out = c_void_p()
    value = FUNCTIONS[name](ctypes.byref(out), *arguments)
    try:
        raise_kept()
    except BaseException:
        if value == _abi.OK:
            FUNCTIONS[_FREE[name]](out)
        raise
    if value < 0:
        raise error_of(value, FUNCTIONS["last_error"]().decode("utf-8", "replace"))
    return out.value or 0


_FREE = {"model_open": "model_close", "text_stream_create": "text_stream_free",
         "pool_create": "pool_free", **dict.fromkeys(
             ("draft_from_model", "draft_from_ngrams", "draft_from_table", "draft_from_ops",
              "draft_from_list"), "draft_release")}


def callback(kind: Any, function: Callable[..., Any], failed: Any = -1) -> Any:
    """`function` as a C function: its exception is kept, and `failed` returned for it."""
    def safe(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:  # also a KeyboardInterrupt: C cannot be passed through
            keep(error)
            return failed
    return kind(safe)


def function_argument(what: str, given: Any) -> Any:
    """A function of the user's. Without this it would be missed when the library calls it."""
    if not callable(given):
        raise TypeError(f"{what}: a function is needed, not {given!r}")
    return given


def number(what: str, kind: Any, given: Any) -> Any:
    """A number as C has it. ctypes would cut an integer that is too large, and does not say what
    it was that should have been a number."""
    limits = _RANGES.get(kind)
    try:
        if limits and not limits[0] <= operator.index(given) <= limits[1]:
            raise InvalidError(f"{what}: {given} is not in {limits[0]}..{limits[1]}")
        return kind(given)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None


def struct(kind: Any, **fields: Any) -> Any:
    """A struct with its size and these fields; the rest is zero, the default."""
    value = kind(struct_size=ctypes.sizeof(kind))
    for name, given in fields.items():
        of = field_kind(kind, name)
        setattr(value, name, number(name, of, given) if of is c_float or of in _RANGES else given)
    return value


def field_kind(kind: Any, name: str) -> Any:
    return dict(kind._fields_)[name]


# ------------------------------------------------------------ handles

def _release(name: str, pointer: int) -> None:
    FUNCTIONS[name](pointer)
    raise_kept()


_open_handles: "weakref.WeakValueDictionary[int, Handle]"
_open_handles = weakref.WeakValueDictionary()
_numbers = itertools.count()


@atexit.register
def _close_all() -> None:
    """At the interpreter's exit. Daemon threads go on, so with any of them all is left as it is."""
    if not any(thread.daemon for thread in threading.enumerate()):
        for handle in reversed(list(_open_handles.values())):
            with contextlib.suppress(BusyError):
                handle.close()


class Handle:
    """What the library made, owned by this object. Closing it twice does nothing."""

    _free_name = ""
    _made_by = ""  # where a user gets one, for messages
    _elsewhere = "open it in each process"  # what to do where a copy would be wanted

    def __init__(self, *_given: NoReturn) -> None:
        """A class that a user may call has an __init__ of its own."""
        raise TypeError(f"a specbatch.{type(self).__name__} is not made by a call of its class: "
                        f"{self._made_by}")

    @classmethod
    def _of(cls: Type[Self], pointer: int, *borrowed: Any) -> Self:
        """The object that owns a new handle of the library's."""
        handle = cls.__new__(cls)
        handle._own(pointer, *borrowed)
        return handle

    def _own(self, pointer: int, *borrowed: Any) -> None:
        """`borrowed` is what the library may still refer to while it has the handle. The finalizer
        does not hold it, for a cycle through it could then never be collected; it is called before
        anything of this object is taken down."""
        self._pointer: Optional[int] = pointer
        self._users: List[None] = []
        self._borrowed = borrowed
        self._finalizer = weakref.finalize(self, _release, self._free_name, pointer)
        self._finalizer.atexit = False
        _open_handles[next(_numbers)] = self

    @contextlib.contextmanager
    def _use(self) -> Iterator[int]:
        """The pointer, for calls inside a `with` block. It cannot be closed there."""
        self._users.append(None)
        try:
            if self._pointer is None:
                raise InvalidError(f"{type(self).__name__}: it is closed")
            yield self._pointer
        finally:
            self._users.pop()

    @classmethod
    def _use_of(cls, what: str, given: Any) -> ContextManager[int]:
        """The pointer of an argument that has to be of this class. C would take that of any."""
        return cls._checked(what, given)._use()

    @classmethod
    def _checked(cls: Type[Self], what: str, given: Any) -> Self:
        """An argument that has to be of this class."""
        if not isinstance(given, cls):
            raise TypeError(f"{what}: a specbatch.{cls.__name__} is needed, not "
                            f"{type(given).__name__}; {cls._made_by}")
        return given

    def _call(self, name: str, *arguments: Any, passing: Sequence[int] = ()) -> Any:
        with self._use() as pointer:
            return call(name, pointer, *arguments, passing=passing)

    @property
    def closed(self) -> bool:
        return self._pointer is None

    def close(self) -> None:
        """Frees it now. BusyError if another thread is inside it, or if a view of it is in use."""
        pointer, self._pointer = self._pointer, None
        if pointer is None:
            return
        if self._users:
            self._pointer = pointer
            raise error_of(_abi.E_BUSY, f"{type(self).__name__}: it cannot be closed while a call "
                           "or a view of its arrays uses it")
        self._finalizer.detach()  # at the interpreter's exit it would do nothing
        _release(self._free_name, pointer)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Two objects with one pointer would free it twice."""
        raise TypeError(f"a specbatch.{type(self).__name__} cannot be copied or pickled; "
                        f"{self._elsewhere}")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()


class Lease:
    """What a view has of its handle: while it lives the handle cannot be closed."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        handle._users.append(None)

    def __del__(self) -> None:
        self._handle._users.pop()


# ------------------------------------------------------------ arrays and text

def listed(what: str, given: Any) -> List[Any]:
    try:
        return list(given)
    except TypeError:
        raise TypeError(f"{what}: a sequence is needed, not {given!r}") from None


def ids_argument(ids: Any, what: str = "ids") -> Tuple[Any, int]:
    """Token ids as a C array and its length. A contiguous buffer of 32-bit integers that may be
    written, as NumPy's arrays are, is used where it lies; other integers are copied."""
    try:
        view = memoryview(ids)
    except TypeError:
        values = listed(what, ids)
    else:
        if isinstance(ids, (bytes, bytearray)) or view.ndim != 1 or view.format not in _INTEGERS:
            raise InvalidError(f"{what}: neither a sequence nor a one-dimensional array of "
                               "integers")
        if view.itemsize == 4 and view.format in "il" and view.contiguous and not view.readonly:
            return (c_int32 * len(view)).from_buffer(view), len(view)
        values = view.tolist()
    try:
        for value in values:
            if not -2**31 <= operator.index(value) < 2**31:
                raise InvalidError(f"{what}: {value} is no token id")
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    return (c_int32 * len(values))(*values), len(values)


def sized(name: str, capacity: int, kind: Any, *before: Any) -> Any:
    """Calls a function whose last arguments are a buffer, its capacity and where n goes, with a
    larger buffer if it asks for one. Returns the buffer and n."""
    n = c_size_t()
    while True:
        buffer = (kind * capacity)()
        status = call(name, *before, buffer, capacity, ctypes.byref(n), passing=(_abi.E_BUFFER,))
        if status != _abi.E_BUFFER:
            return buffer, n.value
        capacity = n.value + 1


def text_at(address: Optional[int], length: int) -> str:
    return ctypes.string_at(address, length).decode() if address else ""


def text_argument(what: str, text: Any) -> bytes:
    """A text in UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"{what}: a text is needed, not {text!r}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"{what}: {error}") from None


def string_argument(text: Path, what: str) -> bytes:
    """A file name or a name as C takes it."""
    try:
        value = os.fsencode(text)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    except UnicodeEncodeError as error:
        raise InvalidError(f"{what}: {error}") from None
    if b"\0" in value:
        raise InvalidError(f"{what}: {text!r} has a NUL in it")
    return value

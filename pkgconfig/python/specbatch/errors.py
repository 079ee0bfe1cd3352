"""The exceptions. Each is an `Error`; those that Python has a name for are that too.

    Error
      InvalidError (ValueError)      E_INVALID, E_OPTIONS, E_TOO_LONG, E_TOKEN, E_BUFFER, E_VOCAB
      NotFoundError (LookupError)    E_NOT_FOUND
      BusyError                      E_BUSY: another thread, or a callback, is inside the object
      QueueFullError                 E_QUEUE_FULL
      OutOfMemoryError (MemoryError) E_NOMEM, E_BUDGET
      FileError (OSError)            E_IO
      FormatError (ValueError)       E_FORMAT
      UnsupportedError               E_UNSUPPORTED, E_NO_TOKENIZER, E_NO_DEVICE
      StoppedError                   E_CANCELLED, E_INTERRUPTED: Pool.step may be repeated
      FatalError                     E_DEVICE, E_INTERNAL: the pool is dead
"""

from . import _abi

__all__ = ["Error", "InvalidError", "NotFoundError", "BusyError", "QueueFullError",
           "OutOfMemoryError", "FileError", "FormatError", "UnsupportedError", "StoppedError",
           "FatalError"]


class Error(Exception):
    """A failure of the library: str() is its one line, which names the place."""

    status: int = _abi.E_INTERNAL
    """The status code, below 0."""

    @property
    def status_name(self) -> str:
        """The name of the status, "SPECBATCH_E_NOMEM" for example."""
        return STATUS_NAMES.get(self.status, "unknown status")


class InvalidError(Error, ValueError):
    """The call was wrong, and nothing has changed."""

    status = _abi.E_INVALID


class NotFoundError(Error, LookupError):
    """There is no such request, counter, policy or format."""

    status = _abi.E_NOT_FOUND


class BusyError(Error):
    """Another thread is inside the object, or the call came from one of its callbacks."""

    status = _abi.E_BUSY


class QueueFullError(Error):
    """As many requests wait as the pool's queue_max allows."""

    status = _abi.E_QUEUE_FULL


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed, or budget_bytes are too few."""

    status = _abi.E_NOMEM


class FileError(Error, OSError):
    """A file cannot be opened, read or written."""

    status = _abi.E_IO


class FormatError(Error, ValueError):
    """A file's content breaks the rules of its format."""

    status = _abi.E_FORMAT


class UnsupportedError(Error):
    """Nothing that this library, this model or this machine can do."""

    status = _abi.E_UNSUPPORTED


class StoppedError(Error):
    """The step was interrupted, or a callback has ended it. Pool.step may be repeated; a stream has
    ended, and its requests are cancelled."""

    status = _abi.E_CANCELLED


class FatalError(Error):
    """The device failed, or the library has a bug: the pool is dead."""


STATUS_NAMES = {value: "SPECBATCH_" + name for name, value in vars(_abi).items()
                if name == "OK" or name.startswith("E_")}
_KINDS = {
    _abi.E_INVALID: InvalidError, _abi.E_OPTIONS: InvalidError, _abi.E_TOO_LONG: InvalidError,
    _abi.E_TOKEN: InvalidError, _abi.E_BUFFER: InvalidError, _abi.E_VOCAB: InvalidError,
    _abi.E_NOT_FOUND: NotFoundError, _abi.E_BUSY: BusyError, _abi.E_QUEUE_FULL: QueueFullError,
    _abi.E_NOMEM: OutOfMemoryError, _abi.E_BUDGET: OutOfMemoryError, _abi.E_IO: FileError,
    _abi.E_FORMAT: FormatError, _abi.E_UNSUPPORTED: UnsupportedError,
    _abi.E_NO_TOKENIZER: UnsupportedError, _abi.E_NO_DEVICE: UnsupportedError,
    _abi.E_CANCELLED: StoppedError, _abi.E_INTERRUPTED: StoppedError,
    _abi.E_DEVICE: FatalError, _abi.E_INTERNAL: FatalError}


def error_of(status: int, line: str) -> Error:
    """The exception for a status and the library's line about it."""
    error = _KINDS.get(status, Error)(line)
    error.status = status
    return error

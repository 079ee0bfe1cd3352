"""Fast and exact text generation by batch speculative decoding: libspecbatch for Python.

    import specbatch

    with specbatch.Model.open("qwen3-8b") as target, specbatch.Model.open("qwen3-0.6b") as small:
        with specbatch.Pool(target, specbatch.Draft.from_model(small)) as pool:
            print(pool.generate("Once upon a time", max_new=100).text)
            for event in pool.stream(["It was", "Two and two"], max_new=50):
                print(event.id, event.text)

Whatever the draft, the batch and the order of arrival, the tokens of a request are those of plain
decoding of that request alone, bit for bit. docs/python.md has the rest.
"""

from . import hf_names as hf
from ._abi import VERSION as __version__
from ._library import FUNCTIONS
from .draft import Draft, DraftRow, make_table
from .errors import (BusyError, Error, FatalError, FileError, FormatError, InvalidError,
                     NotFoundError, OutOfMemoryError, QueueFullError, StoppedError,
                     UnsupportedError)
from .model import Model, TextStream, chat_formats, convert
from .pool import Pool, Stats, audit
from .pool_options import PoolOptions
from .request import Mask, MaskRow, Request, RequestOptions
from .result import AuditReport, Event, RequestState, Result

__all__ = ["AuditReport", "BusyError", "Draft", "DraftRow", "Error", "Event", "FatalError",
           "FileError", "FormatError", "InvalidError", "Mask", "MaskRow", "Model", "NotFoundError",
           "OutOfMemoryError", "Pool", "PoolOptions", "QueueFullError", "Request", "RequestOptions",
           "RequestState", "Result", "Stats", "StoppedError", "TextStream", "UnsupportedError",
           "__version__", "audit", "chat_formats", "convert", "has", "hf", "library_version",
           "make_table", "policies"]


def library_version() -> str:
    """The version of the library that is loaded."""
    return str(FUNCTIONS["version_string"]().decode())


def has(feature: str) -> bool:
    """Whether this build has a feature on this machine: "cuda", "avx512", "amx" and so on."""
    return bool(FUNCTIONS["has"](feature.encode()))


def policies() -> "list[str]":
    """The names of the policies, the default first."""
    return [FUNCTIONS["policy_name"](i).decode() for i in range(FUNCTIONS["policy_count"]())]

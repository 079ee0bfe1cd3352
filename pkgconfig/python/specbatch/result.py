"""What comes out of a pool: results, events, and reports of an audit.

A result's arrays stay where the library has them: `logprobs_array()` and its like are views, which
hold the result, so that it cannot be closed as long as they live.
"""

import ctypes
from ctypes import c_float, c_int32, c_size_t
from dataclasses import dataclass
from typing import Any, Iterable, List, Optional, Tuple

from . import _abi
from ._library import FUNCTIONS, Handle, Lease, text_at
from .errors import Error, error_of


def finish_name(finish: int) -> Optional[str]:
    """None for 0: the request runs."""
    return FUNCTIONS["finish_name"](finish).decode() if finish else None


def request_error(request_id: int, status: int) -> Optional[Error]:
    if status == _abi.OK:
        return None
    name = FUNCTIONS["status_name"](status).decode()
    return error_of(status, f"request {request_id} ended with {name}")


class Result(Handle):
    """A finished request. It may outlive its pool, and any number of threads may read it."""

    _free_name = "result_free"
    _made_by = "a pool's requests end with one"
    _elsewhere = "pass on what it holds, such as its text and its ids"
    user: Any
    """The object that the request had as `user`."""
    _place: Tuple[int, int]  # its request's, and its own among those of the request's answers
    _is_one_of_several: bool  # the request made several answers

    def _number(self, name: str) -> int:
        return int(self._call("result_" + name))

    def _view(self, name: str, kind: Any, rows: int = 1) -> Any:
        """An array of the library's, of `n` or `rows * n` elements; None where it has none."""
        n = c_size_t()
        pointer = self._call("result_" + name, ctypes.byref(n))
        if not pointer:
            return None
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        view = (kind * (n.value * rows)).from_address(address)
        view.lease, view.n = Lease(self), n.value
        return view

    def _values(self, name: str, kind: Any, rows: int = 1) -> Optional[List[Any]]:
        view = self._view(name, kind, rows)
        return None if view is None else view[:]

    def _numpy(self, name: str, kind: Any, rows: Optional[int] = None) -> Any:
        """Of one dimension, or with as many rows."""
        import numpy
        view = self._view(name, kind, 1 if rows is None else rows)
        if view is None:
            return None
        values = numpy.frombuffer(view, numpy.int32 if kind is c_int32 else numpy.float32)
        values.flags.writeable = False
        return values if rows is None else values.reshape(rows, view.n)

    # ------------------------------------------------------------ how it ended

    @property
    def id(self) -> int:
        return self._number("id")

    @property
    def finish(self) -> str:
        """"eos", "stop", "length", "cancelled", "error" or "deadline"."""
        return finish_name(self._number("finish")) or "unknown"

    @property
    def error(self) -> Optional[Error]:
        """What ended the request, if that was an error."""
        return request_error(self.id, self._number("status"))

    @property
    def answer(self) -> int:
        """Which of the request's answers it is."""
        return self._number("answer")

    @property
    def fingerprint(self) -> str:
        return str(self._call("result_fingerprint").decode())

    # ------------------------------------------------------------ what it says

    @property
    def text(self) -> Optional[str]:
        """The answer without special tokens; None if the model has no tokenizer."""
        length = c_size_t()
        address = self._call("result_text", ctypes.byref(length))
        return text_at(address, length.value) if address else None

    @property
    def ids(self) -> List[int]:
        return self._values("tokens", c_int32) or []

    @property
    def prompt_ids(self) -> List[int]:
        return self._values("prompt", c_int32) or []

    @property
    def logprobs(self) -> Optional[List[float]]:
        return self._values("logprobs", c_float)

    @property
    def prompt_logprobs(self) -> Optional[List[float]]:
        """Those of the prompt's tokens from the second on."""
        return self._values("prompt_logprobs", c_float)

    @property
    def top_logprobs(self) -> Optional[List[List[Tuple[int, float]]]]:
        """For each token the alternatives and their log-probabilities, the most probable first."""
        return self._pairs("", len(self.ids))

    @property
    def prompt_top_logprobs(self) -> Optional[List[List[Tuple[int, float]]]]:
        return self._pairs("prompt_", len(self.prompt_ids) - 1)

    def _pairs(self, prefix: str, rows: int) -> Optional[List[List[Tuple[int, float]]]]:
        ids = self._values(prefix + "top_ids", c_int32, rows)
        values = self._values(prefix + "top_logprobs", c_float, rows)
        if ids is None or values is None:
            return None
        n = len(ids) // rows if rows else 0
        pairs = [(id_, value) for id_, value in zip(ids, values)]
        return [[pair for pair in pairs[i * n:(i + 1) * n] if pair[0] >= 0] for i in range(rows)]

    # NumPy's views of the same, without a copy and read-only; None where there is nothing.

    def ids_array(self) -> Any:
        return self._numpy("tokens", c_int32)

    def prompt_ids_array(self) -> Any:
        return self._numpy("prompt", c_int32)

    def logprobs_array(self) -> Any:
        return self._numpy("logprobs", c_float)

    def prompt_logprobs_array(self) -> Any:
        return self._numpy("prompt_logprobs", c_float)

    def top_ids_array(self) -> Any:
        """A row for each token."""
        return self._numpy("top_ids", c_int32, len(self.ids))

    def top_logprobs_array(self) -> Any:
        return self._numpy("top_logprobs", c_float, len(self.ids))

    # ------------------------------------------------------------ what it took

    @property
    def rounds(self) -> int:
        """Passes of the target that decoded it."""
        return self._number("rounds")

    @property
    def drafted(self) -> int:
        return self._number("drafted")

    @property
    def accepted(self) -> int:
        return self._number("accepted")

    @property
    def time_queued(self) -> float:
        """Seconds from the submission until it got a slot."""
        return self._number("time_queued_ns") / 1e9

    @property
    def time_first_token(self) -> float:
        """Seconds from the submission until the end of the step that gave the first token; 0: it
        has none."""
        return self._number("time_first_token_ns") / 1e9

    @property
    def time_total(self) -> float:
        return self._number("time_total_ns") / 1e9

    def __repr__(self) -> str:
        if self.closed:
            return "<specbatch.Result, closed>"
        return f"<specbatch.Result {self.id}: {self.finish}, {len(self.ids)} tokens>"


def in_order(results: Iterable[Result]) -> List[Result]:
    """Results by their requests. Of one request: by the number of the answer, or, where the best of
    more were chosen, as they came out, which is the best first."""
    return sorted(results, key=lambda result: result._place)


@dataclass
class Event:
    """What a request has got since its last event."""

    id: int
    user: Any
    ids: List[int]
    text: Optional[str]
    """What these tokens complete, never half a character; None if the model has no tokenizer."""
    finish: Optional[str]
    """None while the request runs; in its last event how it ended."""
    error: Optional[Error]
    """What ended the request, if that was an error."""
    result: Optional[Result] = None
    """In the last event of a stream: the result."""


@dataclass
class RequestState:
    """Where a request is. Times are in seconds from the submission on."""

    state: str
    finish: Optional[str]
    n_prompt: int
    n_filled: int
    n_generated: int
    time_queued: float
    time_first_token: float
    time_total: float


@dataclass
class AuditReport:
    """A result beside plain decoding of the same request, alone."""

    equal: bool
    first_divergence: int
    """The first token that differs; -1: none does."""
    token_expected: int
    token_got: int
    margin: float
    n_tokens: int

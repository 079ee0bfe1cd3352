"""Requests: what may be asked for, and how it becomes the C struct.

While the library has a request it knows it by a number in the field `user`. RECORDS has what Python
has of it: the object that its user gave, and the mask, which C may call. A record lives until the
pool has handed out all results of its request, or is freed; the pool holds it.
"""

import ctypes
import itertools
import weakref
from array import array
from ctypes import c_char_p, c_double, c_float, c_int32, c_size_t
from dataclasses import dataclass
from typing import (Any, Callable, Iterable, List, Mapping, Optional, Sequence, Set,
                    TypedDict, Union)

from . import _abi
from ._library import (callback, field_kind, function_argument, ids_argument, listed, number,
                       struct, text_argument)
from ._options import count, flags
from .errors import InvalidError

Prompt = Union[str, Sequence[int], Any]
"""A text, or token ids: a sequence of int, or an array of integers such as NumPy's."""


class MaskRow:
    """A position of a request that a mask is asked about. It is usable during that call only."""

    def __init__(self, row: Any) -> None:
        self._row: Any = row
        self.request_id: int = row.request_id
        record = RECORDS.get(row.request_user or 0)
        self.user: Any = record.user if record else None
        self.n_prompt: int = row.n_prompt
        self.n_answer: int = row.n_answer

    @property
    def tokens(self) -> "array[int]":
        """A copy of prompt, answer, and the proposals before the position, which may be wrong."""
        return copied_ids(self._row.tokens, self._row.n_tokens)

    def keep(self, ids: Iterable[int]) -> None:
        """Forbids all ids but these. An id that has no token stays forbidden."""
        self.keep_bits(self._bits(ids))

    def forbid(self, ids: Iterable[int]) -> None:
        self.keep_bits(bytes(byte ^ 0xff for byte in self._bits(ids)))

    def _check(self, id_: int) -> None:
        # A mask may name all ids of a vocabulary, so what is an int anyway is not converted.
        known = id_ if isinstance(id_, int) else number("mask", c_int32, id_).value
        if not 0 <= known < 32 * self._row.n_words:
            raise InvalidError(f"mask: {id_} is no token id")

    def _bits(self, ids: Iterable[int]) -> bytearray:
        bits = bytearray(4 * self._row.n_words)
        for id_ in listed("mask", ids):
            self._check(id_)
            bits[id_ // 8] |= 1 << id_ % 8
        return bits

    def keep_bits(self, bits: Any) -> None:
        """Forbids the ids whose bit is 0: bit id % 32 of the 32-bit word id // 32 of a buffer."""
        size = 4 * self._row.n_words
        try:
            other = memoryview(bits).cast("B")
        except TypeError as error:
            raise TypeError(f"keep_bits: {error}") from None
        if len(other) != size:
            raise InvalidError(f"keep_bits: {len(other)} bytes instead of {size}")
        old = ctypes.string_at(self._row.allowed, size)
        new = int.from_bytes(old, "little") & int.from_bytes(other, "little")
        ctypes.memmove(self._row.allowed, new.to_bytes(size, "little"), size)

    def allowed(self, id: int) -> bool:
        self._check(id)
        return bool(self._row.allowed[id // 32] >> id % 32 & 1)


class Mask:
    """What may be generated, as a function of a list of MaskRow. It must depend on nothing but the
    request and the tokens. Requests that share a Mask share its calls."""

    def __init__(self, function: Callable[[List[MaskRow]], object]) -> None:
        function_argument("mask", function)

        def allow(_user: Any, rows: Any, n_rows: int) -> int:
            seen = [MaskRow(rows[i].contents) for i in range(n_rows)]
            try:
                function(seen)
            except BaseException:
                for i in range(n_rows):
                    RECORDS[rows[i].contents.request_user].failed.add(seen[i].request_id)
                raise
            finally:
                for row in seen:
                    row._row = None
            return 0

        self._struct = struct(_abi.mask)
        self._struct.allow = callback(field_kind(_abi.mask, "allow"), allow)


@dataclass
class Request:
    """What to generate: the fields of specbatch_request and of the structs that it points to, with
    the same meanings, in the header and in docs/requests.md."""

    prompt: Prompt
    max_new: int
    draft_len: Optional[int] = None
    """Proposals in a round at most; None: as many as the pool's; 0: none."""
    bos: bool = True
    parse_special: bool = True
    """Special tokens in a text are tokens; False: they are text, as untrusted input needs."""
    ignore_eos: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    filtered_logprobs: bool = False
    top_logprobs: int = 0
    stop_ids: Sequence[int] = ()
    stop: Union[str, Sequence[str]] = ()
    min_new: int = 0
    temperature: float = 0.0
    seed: int = 0
    top_k: int = 0
    top_p: float = 0.0
    typical_p: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 0
    spare_prompt: bool = False
    bias: Optional[Mapping[int, float]] = None
    mask: Union[None, Mask, Callable[[List[MaskRow]], object]] = None
    n: int = 1
    best_of: int = 0
    priority: int = 0
    draft_sources: Optional[Iterable[int]] = None
    """Places in the pool's list of drafts that may propose; None: all."""
    deadline: Optional[float] = None
    """Seconds from the submission on."""
    user: Any = None
    """Any object, which draft functions, masks, events and the result have again."""


class RequestOptions(TypedDict, total=False):
    """The fields of a Request behind its prompt, as the options of submit, stream and generate."""

    max_new: int
    draft_len: Optional[int]
    bos: bool
    parse_special: bool
    ignore_eos: bool
    logprobs: bool
    prompt_logprobs: bool
    filtered_logprobs: bool
    top_logprobs: int
    stop_ids: Sequence[int]
    stop: Union[str, Sequence[str]]
    min_new: int
    temperature: float
    seed: int
    top_k: int
    top_p: float
    typical_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    spare_prompt: bool
    bias: Optional[Mapping[int, float]]
    mask: Union[None, Mask, Callable[[List[MaskRow]], object]]
    n: int
    best_of: int
    priority: int
    draft_sources: Optional[Iterable[int]]
    deadline: Optional[float]
    user: Any


class Record:
    """What Python keeps of a submitted request."""

    def __init__(self, request: Request) -> None:
        self.key = next(_KEYS)
        self.user = request.user
        self.mask = request.mask if isinstance(request.mask, (Mask, type(None))) else Mask(
            request.mask)
        self.n, self.best_of = request.n, request.best_of
        self.n_out = 0  # results that the pool has handed out
        self.failed: Set[int] = set()  # the numbers of its answers whose mask has raised
        RECORDS[self.key] = self


RECORDS: "weakref.WeakValueDictionary[int, Record]" = weakref.WeakValueDictionary()
_KEYS = itertools.count(1)


def _sampling(request: Request) -> Any:
    value = struct(
        _abi.sampling, seed=request.seed, temperature=request.temperature, top_k=request.top_k,
        top_p=request.top_p, typical_p=request.typical_p, min_p=request.min_p,
        repetition_penalty=request.repetition_penalty, presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty, penalty_window=request.penalty_window,
        flags=flags(SAMPLING_SPARE_PROMPT=request.spare_prompt))
    bias = {} if request.bias is None else request.bias
    if not isinstance(bias, Mapping):
        raise TypeError(f"bias: a mapping of ids to numbers is needed, not {bias!r}")
    if bias:
        value.bias_ids, value.n_bias = ids_argument(list(bias), "bias")
        value.bias = (c_float * value.n_bias)(*(number("bias", c_float, x) for x in bias.values()))
    return value


def _stops(strings: Sequence[str]) -> Any:
    texts = [text_argument("stop", string) for string in strings]
    return struct(_abi.stops, strings=(c_char_p * len(texts))(*texts), n_strings=len(texts),
                  lengths=(c_size_t * len(texts))(*map(len, texts)))


def _sources(places: Optional[Iterable[int]]) -> int:
    """A bit for each; without any bit all drafts propose."""
    if places is None:
        return 0
    numbers = listed("draft_sources", places)
    if not numbers:
        raise InvalidError("draft_sources: there is none; draft_len=0 lets none propose, and None "
                           "lets all")
    bits = 0
    for place in numbers:
        if not 0 <= number("draft_sources", c_int32, place).value < 32:
            raise InvalidError(f"draft_sources: {place} is not in 0..31")
        bits |= 1 << place
    return bits


def _deadline_ns(seconds: Optional[float]) -> int:
    if seconds is None:
        return 0
    value: float = number("deadline", c_double, seconds).value
    if not value < 1e10:  # not a number is not either
        raise InvalidError(f"deadline: {seconds} is not a number of seconds below 1e10")
    return max(1, int(value * 1e9))


def c_request(request: Request, record: Record) -> Any:
    """The C struct of a request. ctypes keeps what it points to alive with it."""
    value = struct(
        _abi.request, max_new=request.max_new, draft_len=count(request.draft_len),
        min_new=request.min_new, top_logprobs=request.top_logprobs, priority=request.priority,
        draft_sources=_sources(request.draft_sources), deadline_ns=_deadline_ns(request.deadline),
        text_flags=flags(TEXT_NO_BOS=not request.bos,
                         TEXT_PLAIN_SPECIAL=not request.parse_special),
        flags=flags(REQUEST_IGNORE_EOS=request.ignore_eos, REQUEST_LOGPROBS=request.logprobs,
                    REQUEST_PROMPT_LOGPROBS=request.prompt_logprobs,
                    REQUEST_FILTERED_LOGPROBS=request.filtered_logprobs), user=record.key)
    if isinstance(request.prompt, str):
        data = text_argument("prompt", request.prompt)
        value.text, value.text_length = data, len(data)
    else:
        value.ids, value.n_ids = ids_argument(request.prompt, "prompt")
        value.text_flags = 0
    value.stop_ids, value.n_stop_ids = ids_argument(request.stop_ids, "stop_ids")
    value.sampling = ctypes.pointer(_sampling(request))
    stop = [request.stop] if isinstance(request.stop, str) else listed("stop", request.stop)
    if stop:
        value.stops = ctypes.pointer(_stops(stop))
    if record.mask is not None:
        value.mask = ctypes.pointer(record.mask._struct)
    answers = struct(_abi.answers, n=request.n, best_of=request.best_of)
    if request.n != 1 or request.best_of:
        value.answers = ctypes.pointer(answers)
    return value


def copied_ids(pointer: Any, n: int) -> "array[int]":
    """Ids of the library's as an array of Python's own; C's int has 32 bits wherever this runs."""
    ids = array("i")
    ids.frombytes(ctypes.string_at(pointer, n * ctypes.sizeof(c_int32)))
    return ids

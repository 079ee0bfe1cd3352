"""Pools: requests are submitted, steps decode them, and events and results come out.

There are two ways to take what comes out. With `submit`, `step`, `events` and `collect` a program
does what it would do in C. `stream`, `generate` and their async twins do these calls themselves.
Both may be used on one pool, and any number of streams at once: each stream is a Route, and events
and results of its requests go to it, whoever has made the step that brought them.

                       step                        stream A: Route.events
    requests --> pool ------> _take_event, _take_result --> stream B: Route.events
                                                        --> _events, _results (submit's)
"""

import ctypes
from collections import deque
from contextlib import contextmanager, nullcontext
from ctypes import c_int32, c_size_t, c_uint64, c_void_p
from numbers import Integral
from typing import (TYPE_CHECKING, Any, AsyncGenerator, Deque, Dict, Iterable, Iterator, List,
                    Mapping, Optional, Tuple, Union)

from . import _abi
from ._library import (FUNCTIONS, Handle, Path, call, ids_argument, make, string_argument, struct,
                       text_at)
from ._options import check_names, names_of
from ._steps import Named, Route, Stepper
from .draft import Draft
from .errors import Error, InvalidError, QueueFullError
from .model import Model
from .pool_options import PoolOptions, c_pool_options
from .request import Prompt, Record, Request, RequestOptions, c_request
from .result import (AuditReport, Event, RequestState, Result, finish_name, in_order,
                     request_error)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Asked = Union[Request, Prompt]


def _request(asked: Asked, options: RequestOptions) -> Request:
    if not isinstance(asked, Request):
        check_names("Request", options, RequestOptions.__annotations__)
        return Request(asked, **options)
    if options:
        raise InvalidError("a Request has its options itself: " + ", ".join(options))
    return asked


def _one(asked: Asked, options: RequestOptions) -> List[Named]:
    """What generate asks a stream for."""
    request = _request(asked, options)
    if request.n != 1:
        raise InvalidError("generate: it has one answer; generate_all and astream have those of n")
    return [("", request)]


def _several(asked: Iterable[Asked], options: RequestOptions) -> Iterator[Named]:
    """What a stream is asked for. A text is iterable too, and its letters are no prompts."""
    if isinstance(asked, (str, bytes, bytearray, Request)):
        raise TypeError("requests: a stream takes a list of prompts; use [prompt]")
    check_names("Request", options, RequestOptions.__annotations__)
    if not isinstance(asked, Iterable):
        raise TypeError(f"requests: a stream takes a list of prompts, not {asked!r}")
    return _numbered(asked, options)


def _numbered(requests: Iterable[Asked], options: RequestOptions) -> Iterator[Named]:
    for i, asked in enumerate(requests):
        place = f"prompt {i}: "
        with _placed(place):
            if isinstance(asked, Integral):
                raise TypeError(f"{asked!r} is none; a stream takes a list of prompts; use "
                                "[prompt]")
            request = _request(asked, options)
        yield place, request


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Puts the place before the line of an error."""
    try:
        yield
    except (Error, TypeError) as error:
        error.args = (place + str(error), )
        raise


@contextmanager
def _use_pair(target: Model, draft: Optional[Draft]) -> Iterator[Tuple[int, Optional[int]]]:
    """The pointers of what decodes and of what proposes, if anything does."""
    proposer = nullcontext() if draft is None else Draft._use_of("draft", draft)
    with Model._use_of("target", target) as model, proposer as source:
        yield model, source


_COUNTERS = tuple(FUNCTIONS["stat_name"](i).decode() for i in range(FUNCTIONS["stat_count"]()))


class Stats(Mapping[str, int]):
    """The pool's counters by their names (docs/stats.md), each read when it is asked for."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    def __getitem__(self, name: str) -> int:
        value = c_uint64()
        if not isinstance(name, str) or name not in _COUNTERS:
            raise KeyError(f"no counter is called {name!r}; there are {', '.join(self)}")
        self._pool._call("pool_stat", name.encode(), ctypes.byref(value))
        return value.value

    def __iter__(self) -> Iterator[str]:
        return iter(_COUNTERS)

    def __len__(self) -> int:
        return len(_COUNTERS)


class Pool(Handle):
    """Decodes requests on a target model. One thread at a time may be inside it: another gets a
    BusyError, except from interrupt()."""

    _free_name = "pool_free"
    _made_by = "Pool(model) makes one"

    def __init__(self, target: Model, draft: Optional[Draft] = None,
                 **options: "Unpack[PoolOptions]") -> None:
        """The options are those of PoolOptions: policy="exspec", batch=16, draft_len=4 (0: no
        speculation), fixed_k=True, log=function and so on."""
        given = c_pool_options("Pool", options)
        with _use_pair(target, draft) as (model, source):
            pointer = make("pool_create", model, source, ctypes.byref(given))
        self._records: Dict[int, Record] = {}
        self._own(pointer, target, draft, given.log, self._records)
        self._target = target
        self._routes: Dict[int, Route] = {}
        self._events: Deque[Event] = deque()
        self._results: Deque[Result] = deque()
        self._stepper: Optional[Stepper] = None
        self._active = 0  # requests that the last step has left, and those that came since
        self.stats = Stats(self)

    @staticmethod
    def bytes_needed(target: Model, draft: Optional[Draft] = None,
                     **options: "Unpack[PoolOptions]") -> int:
        """The memory that a pool with these options and no budget would take."""
        value = c_uint64()
        given = c_pool_options("Pool", options)
        with _use_pair(target, draft) as (model, source):
            call("pool_bytes", ctypes.byref(value), model, source, ctypes.byref(given))
        return value.value

    @property
    def bytes(self) -> int:
        """The memory that its caches and buffers take; docs/stats.md has the parts of it."""
        return self.stats["cache_bytes"] + self.stats["work_bytes"]

    # ------------------------------------------------------------ as in C

    def submit(self, request: Asked, **options: "Unpack[RequestOptions]") -> int:
        """Queues a Request, or a prompt with the fields of a Request as options. Returns its
        number; of several answers that of the first."""
        return self._submit(_request(request, options))

    def _submit(self, request: Request) -> int:
        number, record = c_uint64(), Record(request)
        given = c_request(request, record)
        self._records[record.key] = record
        try:
            self._call("pool_submit", ctypes.byref(given), ctypes.byref(number))
        except BaseException:
            del self._records[record.key]
            raise
        self._active += 1
        return number.value

    def step(self) -> int:
        """Runs one round. Returns how many requests are queued or unfinished. What a draft's
        function or a mask has raised is raised here, and the step may be repeated."""
        active = c_size_t()
        self._call("pool_step", ctypes.byref(active))
        self._active = active.value
        return active.value

    def run(self) -> None:
        """Steps until nothing is left to do. Ctrl-C ends it between two steps."""
        while self.step():
            pass

    def interrupt(self) -> None:
        """Ends the step that is under way, or the next one, with a StoppedError. On any thread."""
        self._call("pool_interrupt")

    def cancel(self, request_id: int) -> None:
        """Ends a request with the tokens it has."""
        self._call("pool_cancel", request_id)

    def poll(self, request_id: int) -> List[int]:
        """The tokens that a request has got since the last poll."""
        n = c_size_t()
        self._call("pool_poll", request_id, None, 0, ctypes.byref(n))
        ids = (c_int32 * n.value)()
        self._call("pool_poll", request_id, ids, n.value, ctypes.byref(n))
        return ids[:n.value]

    def state(self, request_id: int) -> RequestState:
        value = struct(_abi.request_state)
        self._call("pool_state", request_id, ctypes.byref(value))
        name = {number: name for name, number in names_of("STATE_").items()}[value.state]
        return RequestState(name, finish_name(value.finish), value.n_prompt, value.n_filled,
                            value.n_generated, value.time_queued_ns / 1e9,
                            value.time_first_token_ns / 1e9, value.time_total_ns / 1e9)

    def events(self) -> Iterator[Event]:
        """The events that there are now, of requests that were submitted by `submit`."""
        while self._events or self._take_event():
            if self._events:
                yield self._events.popleft()

    def collect(self) -> Optional[Result]:
        """The next finished request of those that were submitted by `submit`; None: there is none
        now. It drops the events that the request still has: read those first."""
        while self._routes and self._take_event():
            pass  # collecting would drop those of a stream
        while not self._results and self._take_result():
            pass
        return self._results.popleft() if self._results else None

    def results(self) -> Iterator[Result]:
        """All that collect() gives now."""
        while True:
            result = self.collect()
            if result is None:
                return
            yield result

    # ------------------------------------------------------------ what comes out

    def _take_event(self) -> bool:
        value = struct(_abi.event)
        if self._call("pool_next_event", ctypes.byref(value), passing=(_abi.E_EMPTY,)) < 0:
            return False
        record = self._records.get(value.user or 0)
        address = c_void_p.from_buffer(value, _abi.event.text.offset).value
        event = Event(value.id, record.user if record else None, value.ids[:value.n_ids],
                      text_at(address, value.text_length) if address else None,
                      finish_name(value.finish), request_error(value.id, value.status))
        route = self._routes.get(event.id)
        if route is None:
            self._events.append(event)
        else:
            route.take_event(event)
        return True

    def _take_result(self) -> bool:
        out = c_void_p()
        if self._call("pool_collect", ctypes.byref(out), passing=(_abi.E_EMPTY,)) < 0:
            return False
        result = Result._of(out.value or 0, self._target)
        record = self._records[result._call("result_user")]
        result.user = record.user
        is_ranked = record.best_of > record.n
        result._place = record.key, record.n_out if is_ranked else result.answer
        result._is_one_of_several = max(record.n, record.best_of) > 1
        record.n_out += 1
        if record.n_out == record.n:
            del self._records[record.key]
        route = self._routes.pop(result.id, None)
        if route is None:
            self._results.append(result)
        else:
            route.take_result(result)
        return True

    # ------------------------------------------------------------ streams

    def _admit(self, route: Route) -> None:
        """Submits a stream's requests, as many as the queue has room for."""
        while route.next_request():
            assert route.next is not None
            place, request = route.next
            try:
                with _placed(place):
                    first = self._submit(request)
            except QueueFullError:
                if self._active == 0:
                    raise  # more answers than the queue ever has room for
                return
            route.submitted(request)
            for number in range(first, first + max(request.n, request.best_of)):
                self._routes[number] = route

    def _round(self) -> None:
        """A step, and what it has brought. May be run on any thread."""
        self.step()
        while self._take_event():
            pass
        while self._take_result():
            pass

    def _failed_routes(self) -> List[Route]:
        """The streams of requests whose masks have raised."""
        failed = {number for record in self._records.values() for number in record.failed}
        return [self._routes[number] for number in failed if number in self._routes]

    def _drop(self, route: Route) -> None:
        """Ends what a stream has left unfinished. Its results go nowhere."""
        mine = [number for number, other in self._routes.items() if other is route]
        route.dropped = True
        for number in () if self.closed else mine:
            try:
                self.cancel(number)
            except Error:
                pass  # it had finished, or the pool is dead
        try:
            while not self.closed and (self._take_event() or self._take_result()):
                pass
        except Error:
            pass
        for number in mine:
            self._routes.pop(number, None)

    def stream(self, requests: Iterable[Asked],
               **options: "Unpack[RequestOptions]") -> Iterator[Event]:
        """Decodes requests, or prompts with the same options, and yields what each gets as it gets
        it. A request's last event has its result. Requests are taken from the iterable as the
        queue has room; the error of one that is refused names its place among them. What is
        unfinished when the stream is closed, or ends by an error, is cancelled."""
        return self._stream(_several(requests, options))

    def _stream(self, requests: Iterable[Named]) -> Iterator[Event]:
        if self._stepper is not None:
            raise InvalidError("stream: the pool is being stepped by an asyncio stream")
        route = Route(requests)
        try:
            self._admit(route)
            while True:
                complete = route.complete
                while route.events:
                    yield route.events.popleft()
                if complete:
                    return
                self._round()
                self._admit(route)
        finally:
            self._drop(route)

    def generate(self, request: Asked, **options: "Unpack[RequestOptions]") -> Result:
        """The result of one request. If it ended with an error, that is raised."""
        return _only(self._all(_one(request, options)))

    def generate_all(self, requests: Iterable[Asked],
                     **options: "Unpack[RequestOptions]") -> List[Result]:
        """The results of all, in the order of the requests, and of best_of the best first. The
        error of a request that is refused is raised, with its place among them, and the others are
        cancelled. Result.error tells of an error that ended a request later."""
        return self._all(_several(requests, options))

    def _all(self, requests: Iterable[Named]) -> List[Result]:
        return in_order(event.result for event in self._stream(requests) if event.result)

    def astream(self, requests: Iterable[Asked],
                **options: "Unpack[RequestOptions]") -> AsyncGenerator[Event, None]:
        """As stream, for asyncio. Steps run on a worker thread, one at a time, for all tasks that
        stream from the pool."""
        return self._astream(_several(requests, options))

    async def _astream(self, requests: Iterable[Named]) -> AsyncGenerator[Event, None]:
        if self._stepper is None:
            self._stepper = Stepper(self)
        route = Route(requests)
        stepper = self._stepper
        stepper.join(route)
        try:
            while True:
                complete = route.complete
                while route.events:
                    yield route.events.popleft()
                if complete:
                    return
                await route.news()
        finally:
            await stepper.leave(route)

    async def generate_async(self, request: Asked,
                             **options: "Unpack[RequestOptions]") -> Result:
        """As generate, for asyncio."""
        stream = self._astream(_one(request, options))
        try:
            return _only([event.result async for event in stream if event.result])
        finally:
            await stream.aclose()

    # ------------------------------------------------------------ prefixes and sessions

    def pin(self, ids: Any) -> int:
        """Keeps room in the prefix cache for a prefix. Returns the number for unpin."""
        array, n = ids_argument(ids)
        number = c_uint64()
        self._call("pool_pin", array, n, ctypes.byref(number))
        return number.value

    def unpin(self, pin: int) -> None:
        self._call("pool_unpin", pin)

    def save_session(self, ids: Any, path: Path) -> int:
        """Saves what the pool keeps of a token sequence. Returns how many tokens that is."""
        array, n = ids_argument(ids)
        kept = c_size_t()
        self._call("pool_save_session", array, n, string_argument(path, "path"),
                   ctypes.byref(kept))
        return kept.value

    def load_session(self, path: Path) -> List[int]:
        """Loads a session, and returns its ids."""
        name, n = string_argument(path, "path"), c_size_t()
        self._call("pool_load_session", name, None, 0, ctypes.byref(n), passing=(_abi.E_BUFFER,))
        ids = (c_int32 * n.value)()
        self._call("pool_load_session", name, ids, n.value, ctypes.byref(n))
        return ids[:n.value]


def _only(results: List[Result]) -> Result:
    result, = results
    if result.error is not None:
        raise result.error
    return result


def audit(target: Model, request: Request, result: Result,
          **options: "Unpack[PoolOptions]") -> AuditReport:
    """Decodes a finished request once more, plainly and alone, and compares. The options are those
    of a Pool, of which n_threads, budget_bytes and max_len are used."""
    if not isinstance(request, Request):
        raise InvalidError("audit: the request has to be the Request that was submitted")
    report, record = struct(_abi.audit_report), Record(request)
    given, pool_options = c_request(request, record), c_pool_options("audit", options)
    with Model._use_of("target", target) as model, Result._use_of("result", result) as finished:
        call("audit", model, ctypes.byref(pool_options), ctypes.byref(given), finished,
             ctypes.byref(report))
    return AuditReport(bool(report.equal), report.first_divergence, report.token_expected,
                       report.token_got, report.margin, report.n_tokens)

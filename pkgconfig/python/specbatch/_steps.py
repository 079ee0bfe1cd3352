"""Streams inside a pool: what belongs to each, and who makes the steps under asyncio.

Under asyncio the pool has one Stepper while anyone streams from it: a task that lets a worker
thread make a step and then wakes the streams. The pool is touched in two places, and never in both
at once: by the step in the thread, and by the task between two steps. A stream that ends while a
step is under way therefore waits for its end. So when the last stream has left, no thread is in
the pool, and it can be closed.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Deque, Dict, Iterable, Iterator, List, Optional, Tuple

from .errors import BusyError
from .request import Request
from .result import Event, Result

if TYPE_CHECKING:
    from .pool import Pool


Named = Tuple[str, Request]
"""A request, and what the line of an error about it begins with."""


class Route:
    """A stream's requests and its news. A last event waits here for its result."""

    def __init__(self, requests: Iterable[Named]) -> None:
        self.requests: Optional[Iterator[Named]] = iter(requests)
        self.next: Optional[Named] = None  # taken from there, and not submitted yet
        self.events: Deque[Event] = deque()
        self.last: Dict[int, Event] = {}
        self.n_left = 0  # results that are to come
        self.dropped = False
        self.error: Optional[BaseException] = None
        self.wake = asyncio.Event() if asyncio_runs() else None

    def next_request(self) -> bool:
        """Whether there is one to submit, which is `next` then."""
        if self.next is None and self.requests is not None:
            self.next = next(self.requests, None)
            if self.next is None:
                self.requests = None
        return self.next is not None

    def submitted(self, request: Request) -> None:
        self.next = None
        self.n_left += request.n

    @property
    def complete(self) -> bool:
        return (self.error is None and self.n_left == 0 and self.next is None
                and self.requests is None)

    def take_event(self, event: Event) -> None:
        if event.finish is None:
            self.events.append(event)
        else:
            self.last[event.id] = event

    def take_result(self, result: Result) -> None:
        if self.dropped:
            result.close()
        else:
            event = self.last.pop(result.id)
            event.result = result
            self.events.append(event)
        self.n_left -= 1  # last: another thread takes 0 for the end of the events

    async def news(self) -> None:
        """Waits until there are events, or the stream is complete. Raises what ended the step."""
        assert self.wake is not None
        if self.error is None:
            await self.wake.wait()
            self.wake.clear()
        if self.error is not None:
            raise self.error


def asyncio_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Stepper:
    """The task that steps a pool for the streams of one event loop."""

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.loop = asyncio.get_running_loop()
        self.routes: List[Route] = []
        self.changed = asyncio.Event()  # a stream has come or gone
        self.step: "Optional[asyncio.Future[None]]" = None  # the one that is under way
        self.task: "Optional[asyncio.Task[None]]" = None
        self.leaving: List[Route] = []  # streams that wait for its end

    def join(self, route: Route) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise BusyError("astream: another event loop is streaming from the pool")
        self.routes.append(route)
        self.changed.set()
        if self.task is None or self.task.done():
            self.task = self.loop.create_task(self._run())

    async def leave(self, route: Route) -> None:
        """Ends a stream, when no step is under way. A task that is cancelled again meanwhile waits
        no longer, and _run ends its stream then."""
        self.routes.remove(route)
        self.leaving.append(route)
        self.changed.set()
        try:
            while route in self.leaving and self.step is not None and not self.step.done():
                await asyncio.wait([self.step])
        finally:
            if self.step is None or self.step.done() or self.task is None or self.task.done():
                self._let_go(route)

    def _let_go(self, route: Route) -> None:
        if route in self.leaving:
            self.leaving.remove(route)
            self.pool._drop(route)
        if not self.routes and not self.leaving and self.pool._stepper is self:
            self.pool._stepper = None

    def _admit(self) -> None:
        """This is no part of _run: an exception has the frame that caught it in its traceback, and
        to clear that frame, as unittest does, would end _run."""
        for route in self.routes:
            try:
                if route.error is None:
                    self.pool._admit(route)
            except BaseException as error:
                route.error = error

    def _end(self, error: BaseException) -> None:
        """Ends the streams whose masks have raised, or else all: then it came of what they share.
        Their tasks may be busy for long, and a step that is repeated would only fail again."""
        for route in self.pool._failed_routes() or list(self.routes):
            route.error = error
            self.pool._drop(route)

    async def _run(self) -> None:
        while self.routes:
            self._admit()
            if all(route.complete or route.error for route in self.routes):
                self._wake()
                self.changed.clear()
                await self.changed.wait()
                continue
            self.step = self.loop.run_in_executor(None, self.pool._round)
            await asyncio.wait([self.step])
            error = self.step.exception()
            self.step = None
            if error is not None:
                self._end(error)
            for route in list(self.leaving):  # they come before the next step
                self._let_go(route)
            self._wake()

    def _wake(self) -> None:
        for route in self.routes:
            if route.wake is not None:
                route.wake.set()

"""Drafts: what proposes tokens. A wrong proposal costs time and never changes a token."""

import contextlib
import ctypes
from array import array
from ctypes import c_int32, c_void_p
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _abi
from ._library import (Handle, Path, call, callback, field_kind, function_argument, ids_argument,
                       listed, make, string_argument, struct)
from .errors import InvalidError
from .model import Model
from .request import RECORDS, copied_ids


class DraftRow:
    """A sequence that a propose function is asked about."""

    def __init__(self, row: Any) -> None:
        self.request_id: int = row.request_id
        record = RECORDS.get(row.request_user or 0)
        self.user: Any = record.user if record else None
        self.tokens: "array[int]" = copied_ids(row.tokens, row.n_tokens)
        self.k: int = row.k


ProposeFunction = Callable[[List[DraftRow]], Sequence[Optional[Sequence[int]]]]
"""Returns for each row its proposals, at most row.k ids: the first of more are taken."""

# The C functions of the drafts of from_functions, by the number that is their `user`. The library
# says by `release` when it will call them no more, which may be long after the Python object's end.
_functions: Dict[int, Tuple[Any, ...]] = {}


def _released(user: int) -> None:
    release = _functions.pop(user)[0]
    if release is not None:
        release()


_RELEASE = callback(field_kind(_abi.draft_ops, "release"), _released, None)


class Draft(Handle):
    """What proposes. It never changes: any number of pools may use it at once."""

    _free_name = "draft_release"
    _made_by = "Draft.from_model(model), Draft.ngram() and so on make one"

    @classmethod
    def from_model(cls, model: Model) -> "Draft":
        """A model that proposes: a small one of the target's family."""
        with Model._use_of("model", model) as pointer:
            return cls._of(make("draft_from_model", pointer), model)

    @classmethod
    def ngram(cls, *, max_match: int = 0, min_match: int = 0) -> "Draft":
        """The text's own repetitions."""
        options = struct(_abi.ngram_options, max_match=max_match, min_match=min_match)
        return cls._of(make("draft_from_ngrams", ctypes.byref(options)))

    @classmethod
    def table(cls, path: Path) -> "Draft":
        """A file of make_table."""
        return cls._of(make("draft_from_table", string_argument(path, "path")))

    @classmethod
    def from_functions(cls, propose: ProposeFunction, *,
                       retire: Optional[Callable[[int, Any], object]] = None,
                       release: Optional[Callable[[], object]] = None) -> "Draft":
        """Functions that propose. retire(request_id, user) is called when a request that propose
        has seen has ended, and release() when the library has dropped the draft."""
        function_argument("propose", propose)
        for what, function in (("retire", retire), ("release", release)):
            if function is not None:
                function_argument(what, function)

        def proposed(_user: Any, rows: Any, n_rows: int) -> int:
            _propose(propose, [rows[i].contents for i in range(n_rows)])
            return 0

        def retired(_user: Any, request_id: int, user: Optional[int]) -> None:
            record = RECORDS.get(user or 0)
            if retire is not None:
                retire(request_id, record.user if record else None)

        ops = struct(_abi.draft_ops, release=_RELEASE,
                     propose=callback(field_kind(_abi.draft_ops, "propose"), proposed))
        if retire is not None:
            ops.retire = callback(field_kind(_abi.draft_ops, "retire"), retired, None)
        key = ops.user = id(ops)
        _functions[key] = (release, ops)  # `ops` holds the C functions, and so its id is unique
        try:
            return cls._of(make("draft_from_ops", ctypes.byref(ops)))
        except BaseException:
            _functions.pop(key, None)
            raise

    @classmethod
    def list(cls, *drafts: "Draft") -> "Draft":
        """Drafts that are asked in turn: the first that proposes anything for a row counts."""
        with contextlib.ExitStack() as stack:
            used = [stack.enter_context(Draft._use_of("drafts", draft)) for draft in drafts]
            pointers = (c_void_p * len(used))(*used)
            return cls._of(make("draft_from_list", pointers, len(used)), drafts)


def _propose(propose: ProposeFunction, rows: Sequence[Any]) -> None:
    proposals = listed("propose", propose([DraftRow(row) for row in rows]))
    if len(proposals) != len(rows):
        raise InvalidError(f"propose: proposals for {len(proposals)} rows instead of {len(rows)}")
    for row, proposal in zip(rows, proposals):
        ids, n = ids_argument(() if proposal is None else _first(proposal, row.k), "propose")
        ctypes.memmove(row.out, ids, n * ctypes.sizeof(c_int32))
        row.n_out = n


def _first(proposal: Sequence[int], k: int) -> Sequence[int]:
    try:
        return proposal[:k]
    except (TypeError, LookupError):
        raise TypeError(f"propose: a row's proposals are a sequence of ids or None, not "
                        f"{proposal!r}") from None


def make_table(to: Path, model: Model, ids: Any, *, max_match: int = 0, min_match: int = 0,
               min_count: int = 0) -> None:
    """Writes the file `to` for Draft.table, of texts that `model` has tokenized."""
    options = struct(_abi.table_options, max_match=max_match, min_match=min_match,
                     min_count=min_count)
    array_, n = ids_argument(ids)
    with Model._use_of("model", model) as pointer:
        call("table_make", string_argument(to, "to"), pointer, array_, n, ctypes.byref(options))

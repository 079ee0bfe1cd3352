"""The options of a pool: what may be given, and how it becomes the C struct."""

from typing import Any, Dict, Optional, TypedDict

from . import _abi
from ._library import call, string_argument, struct
from ._options import LogFunction, check_names, count, flags, log_callback


class PoolOptions(TypedDict, total=False):
    """The options of a Pool: the fields of specbatch_pool_options, which explains them, and its
    flags each by its name. One that is left out has the default."""

    policy: str  # one of policies()
    batch: int
    window: int
    draft_len: Optional[int]  # None: the default; 0: no speculation
    max_len: int
    prefill_chunk: int
    n_threads: int
    sort_by_length: bool
    eqspec_replace: bool
    fixed_k: bool
    grow_slots: bool
    queue_max: int
    budget_bytes: int
    cache_columns: int
    prefix_bytes: int
    draft_min_prob: float
    log: Optional[LogFunction]


def c_pool_options(what: str, options: PoolOptions) -> Any:
    """The C struct of a pool's options. `what` has them, for messages."""
    check_names(what, options, PoolOptions.__annotations__)
    given: Dict[str, Any] = dict(options)
    policy, log = given.pop("policy", "ragged"), given.pop("log", None)
    is_set = {"POOL_" + name.upper(): given.pop(name, False)
              for name in ("sort_by_length", "eqspec_replace", "fixed_k", "grow_slots")}
    return struct(
        _abi.pool_options, policy=call("policy_by_name", string_argument(policy, "policy")),
        draft_len=count(given.pop("draft_len", None)), flags=flags(**is_set),
        log=log_callback(log), **given)

"""python -m specbatch generate|chat|bench: thin programs with the options of the C examples.

They read and write what those do. Options of theirs that are not here (--resume, --trace and some
more) are refused. Exit codes: 0 done, 1 --verify or bench found a difference, 2 bad usage or input,
3 the run failed, 130 interrupted.
"""

import argparse
import datetime
import json
import sys
import time
from contextlib import ExitStack
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import (Draft, Error, Model, Pool, Request, Result, StoppedError, TextStream, audit,
               chat_formats, library_version, policies)
from ._options import names_of
from ._steps import Named
from .request import Record, c_request
from .result import in_order

# Options of sampling, with the fields of a Request.
SAMPLING = (("--temperature", "temperature", float), ("--seed", "seed", int),
            ("--top-k", "top_k", int), ("--top-p", "top_p", float),
            ("--typical-p", "typical_p", float), ("--min-p", "min_p", float),
            ("--repeat-penalty", "repetition_penalty", float),
            ("--presence-penalty", "presence_penalty", float),
            ("--frequency-penalty", "frequency_penalty", float),
            ("--penalty-window", "penalty_window", int))
# Fields of a line of prompts that are called otherwise in a Request; the others are the same.
LINE_FIELDS = {"repeat_penalty": "repetition_penalty", **{name: name for name in (
    "max_new", "min_new", "n", "best_of", "top_logprobs", "priority", "temperature", "seed",
    "top_k", "top_p", "typical_p", "min_p", "presence_penalty", "frequency_penalty",
    "penalty_window", "ignore_eos", "logprobs", "filtered_logprobs", "spare_prompt", "stop",
    "stop_ids", "draft_len", "draft_sources")}}

UNUSED = ("question_id", "category", "reference")  # of a record of Spec-Bench


class InputError(Exception):
    """Bad input; the message names file, line and field."""


def size(text: str) -> int:
    """A number of bytes: 64M, 2G."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 0)
    return int(text[:-1]) * unit if unit else int(text)


def day(text: str) -> datetime.date:
    """A day as 20261129."""
    return datetime.datetime.strptime(text, "%Y%m%d").date()


def int_list(text: str) -> List[int]:
    return [int(word) for word in text.split(",")]


# ------------------------------------------------------------ options

def add_models(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target", metavar="DIR", required=True, help="checkpoint, or a GGUF file")
    add("--draft", metavar="DIR|ngram|table:FILE", action="append", default=[],
        help="what proposes; of several the first that has anything for a row counts")
    add("--threads", metavar="N", type=int, default=0)
    add("--device", choices=list(names_of("DEVICE_")), default="cpu")
    for option in ("compute", "kv", "weights", "simd"):
        add("--" + option, choices=list(names_of(option.upper() + "_")), default="auto")
    add("--draft-compute", choices=list(names_of("COMPUTE_")))
    add("--draft-weights", choices=list(names_of("WEIGHTS_")))
    add("--chat", choices=chat_formats(), default="auto")
    add("--no-think", action="store_true", help="answers without reasoning")
    add("--effort", choices=list(names_of("EFFORT_")), default="default",
        help="how long gpt-oss is to reason")
    add("--date", metavar="YYYYMMDD", type=day, help="the day that a chat format says; today, for "
        "those that ask")
    for name, field, kind in SAMPLING:
        add(name, dest=field, type=kind, default=kind(0), metavar="N" if kind is int else "X")
    add("--prefix-bytes", metavar="BYTES", type=size, default=0)
    add_version(parser)


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version="specbatch " + library_version())


def add_prompts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--prompts", metavar="FILE", required=True, help="JSON lines; -: stdin")
    add("--limit", metavar="N", type=int, default=None)
    add("--max-new", metavar="N", type=int, default=128)
    add("--cache-columns", metavar="N", type=int, default=0)
    add("--grow-slots", action="store_true")


def arguments(given: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specbatch", description=(
        "Fast and exact text generation by batch speculative decoding."), allow_abbrev=False)
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True)

    generate = commands.add_parser("generate", help="answers to a file of prompts",
                                   allow_abbrev=False)
    add_models(generate)
    add_prompts(generate)
    add = generate.add_argument
    add("--output", metavar="FILE", default="-")
    add("--in-order", action="store_true")
    add("--stats", metavar="FILE", help="the pool's counters as JSON; -: stdout")
    add("--verify", action="store_true", help="replay each plainly at batch 1 and compare")
    for name in ("--n", "--best-of", "--min-new", "--top-logprobs"):
        add(name, metavar="N", type=int, default=1 if name == "--n" else 0)
    add("--stop", metavar="TEXT", action="append", default=[])
    add("--ignore-eos", action="store_true")
    add("--logprobs", action="store_true")
    add("--policy", choices=policies(), default="ragged")
    for name in ("--batch", "--window", "--max-len"):
        add(name, metavar="N", type=int, default=0)
    add("--draft-len", metavar="K", type=int, default=None)
    add("--fixed-k", action="store_true")
    add("--sort-by-length", action="store_true")

    chat = commands.add_parser("chat", help="a conversation in a terminal", allow_abbrev=False)
    add_models(chat)
    add = chat.add_argument
    add("--draft-len", metavar="K", type=int, default=None)
    add("--fixed-k", action="store_true")
    add("--system", metavar="TEXT")
    add("--max-new", metavar="N", type=int, default=512)
    chat.set_defaults(prefix_bytes=256 << 20)

    bench = commands.add_parser("bench", help="which policy, batch and draft length pay",
                                allow_abbrev=False)
    add_models(bench)
    add_prompts(bench)
    add = bench.add_argument
    add("--policies", metavar="LIST", type=lambda text: text.split(","),
        default=["plain", "eqspec", "exspec", "ragged"])
    add("--batches", metavar="LIST", type=int_list, default=[1, 4, 8])
    add("--draft-lens", metavar="LIST", type=int_list, default=[3, 5])
    add("--adaptive", action="store_true", help="draft lengths are limits")
    return parser.parse_args(given)


def open_models(args: argparse.Namespace, stack: ExitStack) -> Tuple[Model, Optional[Draft]]:
    def opened(path: str, compute: str, weights: str) -> Model:
        return stack.enter_context(Model.open(path, device=args.device, compute=compute,
                                              kv=args.kv, weights=weights, simd=args.simd))

    def draft(name: str) -> Draft:
        if name == "ngram":
            return Draft.ngram()
        if name.startswith("table:"):
            return Draft.table(name[len("table:"):])
        return Draft.from_model(opened(name, args.draft_compute or args.compute,
                                       args.draft_weights or args.weights))

    target = opened(args.target, args.compute, args.weights)
    drafts = [draft(name) for name in args.draft]
    return target, Draft.list(*drafts) if len(drafts) > 1 else drafts[0] if drafts else None


def options_of(args: argparse.Namespace, *names: str) -> Dict[str, Any]:
    """The options of these names as keyword arguments."""
    return {name: getattr(args, name) for name in names}


# ------------------------------------------------------------ prompts

def read_prompts(args: argparse.Namespace, target: Model,
                 settings: Dict[str, Any]) -> List[Named]:
    """A request for each line that is not empty, behind its place; its `user` is the id of its
    result."""
    name = "stdin" if args.prompts == "-" else args.prompts
    file = sys.stdin if args.prompts == "-" else open(args.prompts, encoding="utf-8-sig")
    requests: List[Named] = []
    lines: Dict[str, int] = {}  # where an id is
    with file:
        for number, text in enumerate(file, 1):
            if len(requests) == args.limit:
                break
            if not text.strip():
                continue
            place = f"{name}:{number}: "
            try:
                line = json.loads(text, object_pairs_hook=fields_once)
                if not isinstance(line, dict):
                    raise ValueError("not an object")
                request = read_line(line, number, args, target, settings)
                own_id = json.dumps(request.user)
                if lines.setdefault(own_id, number) != number:
                    raise ValueError(f"id {own_id} is that of line {lines[own_id]} too")
            except (Error, ValueError, TypeError, LookupError) as error:
                raise InputError(f"{place}{error}") from None
            requests.append((place, request))
    if not requests:
        raise InputError(f"{name}: no prompts")
    return requests


def fields_once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """An object of JSON; Python would take the last of fields with one name."""
    fields: Dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f'"{name}" is there twice')
        fields[name] = value
    return fields


def read_line(line: Dict[str, Any], number: int, args: argparse.Namespace, target: Model,
              settings: Dict[str, Any]) -> Request:
    kinds = [kind for kind in ("prompt", "turns", "ids") if kind in line]
    if len(kinds) != 1:
        raise ValueError("one of prompt, turns and ids is needed")
    if kinds != ["prompt"] and not (isinstance(line[kinds[0]], list) and line[kinds[0]]):
        raise ValueError(f"{kinds[0]}: not an array, or an empty one")
    text = line[kinds[0]][0] if kinds == ["turns"] else line[kinds[0]]
    if kinds == ["turns"] or (kinds == ["prompt"] and args.chat not in ("auto", "raw")):
        text = conversation(target, [("user", text)], args)
    elif kinds == ["prompt"]:
        text = target.tokenize(text)
    if not text:
        raise ValueError("the prompt is empty")
    own: Dict[str, Any] = {}
    for name, value in line.items():
        if name in LINE_FIELDS:
            own[LINE_FIELDS[name]] = value
        elif name == "bias":
            if not isinstance(value, dict):
                raise ValueError("bias: not an object")
            own["bias"] = {int(id_): float("-inf") if bias is None else bias
                           for id_, bias in value.items()}
        elif name == "deadline_ms":
            own["deadline"] = value / 1e3 or None
        elif name not in ("id", *kinds, *UNUSED):
            raise ValueError(f"unknown field {name}")
    request = Request(text, user=line.get("id", number), **{**settings, **own})
    c_request(request, Record(request))  # refuses what is no number, and so on
    return request


# ------------------------------------------------------------ generate

def result_line(result: Result) -> str:
    line = {"id": result.user, "ids": result.ids, "text": result.text, "finish": result.finish,
            "answer": result.answer if result._is_one_of_several else None,
            "error": None if result.error is None else result.error.status_name,
            "logprobs": result.logprobs, "top_logprobs": result.top_logprobs}
    return json.dumps({name: value for name, value in line.items() if value is not None},
                      ensure_ascii=False, separators=(",", ":"))


def generate(args: argparse.Namespace, stack: ExitStack) -> int:
    target, draft = open_models(args, stack)
    settings = options_of(args, "max_new", "n", "best_of", "min_new", "stop", "ignore_eos",
                          "logprobs", "top_logprobs", *(field for _, field, _ in SAMPLING))
    requests = read_prompts(args, target, settings)
    pool = stack.enter_context(Pool(
        target, draft, n_threads=args.threads, max_len=longest(requests, args.max_len, target),
        **options_of(args, "policy", "batch", "window", "draft_len", "fixed_k", "cache_columns",
                     "grow_slots", "prefix_bytes", "sort_by_length")))
    output = sys.stdout if args.output == "-" else stack.enter_context(
        open(args.output, "w", encoding="utf-8"))
    began, results = time.monotonic(), []
    for event in pool._stream(requests):
        if event.result is not None:
            results.append(event.result)
            if not args.in_order:
                print(result_line(event.result), file=output, flush=True)
    results = in_order(results)
    for result in results if args.in_order else ():
        print(result_line(result), file=output)
    failed = [result for result in results if result.error is not None]
    for result in failed:
        print(f"generate: {json.dumps(result.user)} ended early: "
              f"{result.error and result.error.status_name}", file=sys.stderr)
    if failed:
        return 3
    seconds, n_tokens = time.monotonic() - began, sum(len(result.ids) for result in results)
    print(f"{args.policy}: {len(results)} requests, {n_tokens} tokens in {seconds:.2f} s, "
          f"{n_tokens / seconds:.1f} tokens/s", file=sys.stderr)
    if args.stats:
        with open(args.stats, "w", encoding="utf-8") if args.stats != "-" else sys.stdout as file:
            json.dump(dict(pool.stats), file, indent=1)
    return verify(target, requests, results) if args.verify else 0


def longest(requests: List[Named], max_len: int, target: Model) -> int:
    """The max_len that the requests need, so that the pool takes no more memory than that."""
    limit = max_len or target.context
    if limit > target.context:
        raise InputError(f"--max-len: {limit} is more than the target's context, {target.context}")
    for place, request in requests:
        n_prompt, n_new = len(request.prompt), request.max_new
        if n_prompt + n_new > limit:
            raise InputError(f"{place}too long: {n_prompt} tokens and {n_new} new ones, where "
                             f"{limit} fit")
    return max(len(request.prompt) + request.max_new for _, request in requests)


def verify(target: Model, requests: List[Named], results: List[Result]) -> int:
    """Replays requests with one answer each, in their order."""
    if len(requests) != len(results):
        raise InputError("--verify: not with several answers to a prompt")
    different = 0
    for (_, request), result in zip(requests, results):
        report = audit(target, request, result)
        if not report.equal:
            different += 1
            print(f"prompt {request.user}: token {report.first_divergence} is {report.token_got} "
                  f"instead of {report.token_expected}, margin {report.margin:g}", file=sys.stderr)
    print(f"verify: {len(results) - different} of {len(results)} equal", file=sys.stderr)
    return 1 if different else 0


# ------------------------------------------------------------ chat

def format_of(target: Model, args: argparse.Namespace) -> Optional[str]:
    return target.chat_format if args.chat == "auto" else str(args.chat)


def conversation(target: Model, messages: List[Tuple[str, str]],
                 args: argparse.Namespace) -> List[int]:
    date = args.date
    if date is None and format_of(target, args) in ("llama3.2", "gpt-oss"):
        date = datetime.date.today()
    return target.chat_tokens(messages, format=args.chat, think=not args.no_think, date=date,
                              effort=args.effort)


def chat(args: argparse.Namespace, stack: ExitStack) -> int:
    target, draft = open_models(args, stack)
    pool = stack.enter_context(Pool(
        target, draft, batch=1, n_threads=args.threads, max_len=min(target.context, 8192),
        **options_of(args, "draft_len", "fixed_k", "prefix_bytes")))
    settings = options_of(args, "max_new", *(field for _, field, _ in SAMPLING))
    start = [("system", args.system)] if args.system else []
    messages = list(start)
    marks = target if format_of(target, args) == "gpt-oss" else None
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return 0
        if line == "/quit":
            return 0
        if line == "/reset":
            messages = list(start)
        elif line == "/stats":
            for name, value in pool.stats.items():
                print(f"{name} {value}")
        elif line.startswith("/") and not line.startswith("//"):
            print("/reset  begin a new conversation\n/stats  counters so far\n/quit   end\n"
                  "//...   a message that begins with a slash")
        elif line:
            messages.append(("user", line[line.startswith("//"):]))
            try:
                ids = conversation(target, messages, args)
                messages.append(("assistant", answer(pool, ids, settings, marks)))
            except Error as error:
                messages.pop()
                print(f"chat: {error}", file=sys.stderr)


def answer(pool: Pool, ids: List[int], settings: Dict[str, Any], marks: Optional[Model]) -> str:
    """Shows an answer while it is made. Ctrl-C ends it, and what there is of it counts. marks: the
    model, if the answer's marks are shown, and a later conversation has its last part only."""
    text, stream = "", pool._stream([("", Request(ids, **settings))])
    marked = TextStream(marks, keep_special=True) if marks else None
    try:
        for event in stream:
            piece = marked.push(event.ids) if marked else event.text or ""
            if marked and event.result:
                piece += marked.finish()
            text += piece
            print(piece, end="", flush=True)
        print()
    except (KeyboardInterrupt, StoppedError):
        print(" [interrupted]")
    if marked:
        _, mark, last = text.rpartition("<|channel|>final<|message|>")
        return last.partition("<|")[0] if mark else ""
    return text


# ------------------------------------------------------------ bench

def bench(args: argparse.Namespace, stack: ExitStack) -> int:
    target, draft = open_models(args, stack)
    settings = options_of(args, "max_new", *(field for _, field, _ in SAMPLING))
    requests = read_prompts(args, target, settings)
    max_len = longest(requests, 0, target)

    def run(policy: str, batch: int, draft_len: int) -> Tuple[float, List[Tuple[Any, ...]]]:
        with Pool(target, draft, policy=policy, batch=batch, draft_len=draft_len,
                  fixed_k=not args.adaptive, n_threads=args.threads, max_len=max_len,
                  **options_of(args, "cache_columns", "grow_slots", "prefix_bytes")) as pool:
            began = time.monotonic()
            results = pool._all(requests)
            seconds = time.monotonic() - began
            n_tokens = sum(len(result.ids) for result in results)
            return n_tokens / seconds, [(result.user, result.ids) for result in results]

    reference, expected = run("plain", 1, 0)
    print(f"{len(requests)} prompts, {args.max_new} new tokens each\n{target.fingerprint}\n\n"
          "policy       B   K   tokens/s   times plain 1   equal to it")
    best, all_equal = (0.0, ""), True
    for policy in args.policies:
        for batch in args.batches:
            for draft_len in [0] if policy == "plain" else args.draft_lens:
                speed, got = run(policy, batch, draft_len)
                equal = sum(a == b for a, b in zip(got, expected))
                all_equal = all_equal and equal == len(expected)
                print(f"{policy:<10}{batch:>4}{draft_len:>4}{speed:>11.1f}"
                      f"{speed / reference:>16.2f}   {equal}/{len(expected)}", flush=True)
                best = max(best, (speed, f"--policy {policy} --batch {batch}" + (
                    f" --draft-len {draft_len}" if draft_len else "")))
    print(f"\nfastest: {best[1]}" if all_equal else "\nsome output differs")
    return 0 if all_equal else 1


def main(given: Optional[Sequence[str]] = None) -> int:
    args = arguments(given)
    try:
        with ExitStack() as stack:
            return {"generate": generate, "chat": chat, "bench": bench}[args.command](args, stack)
    except KeyboardInterrupt:
        return 130
    except (InputError, ValueError, OSError) as error:
        print(f"{args.command}: {error}", file=sys.stderr)
        return 2
    except Error as error:
        print(f"{args.command}: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())

"""Models: opening a checkpoint, its text, and conversations."""

import ctypes
import datetime
from ctypes import c_char, c_int32, c_size_t, c_void_p
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._library import (FUNCTIONS, Handle, Path, call, callback, function_argument, ids_argument,
                       listed, make, sized, string_argument, struct, text_argument, text_at)
from ._options import LogFunction, choice, flags, log_callback
from .errors import InvalidError

ProgressFunction = Callable[[int, int], object]
"""Is called with the bytes that are loaded, and all of them. An exception ends the loading."""

Message = Union[Dict[str, str], Tuple[str, str]]
"""{"role": "user", "content": "..."}, or the two as a tuple; also "system" and "assistant"."""


def _model_options(device: str, device_index: int, compute: str, simd: str, kv: str, weights: str,
                   prefill: str, cuda_module: Optional[Path], plan_file: Optional[Path],
                   log: Optional[LogFunction], progress: Optional[ProgressFunction]) -> Any:
    show = None if progress is None else function_argument("progress", progress)

    def watch(_user: Any, done: int, total: int) -> int:
        # Also without a function of the user's: Python sees a Ctrl-C here.
        if show is not None:
            show(done, total)
        return 0

    return struct(
        _abi.model_options, device=choice("DEVICE_", device, "device"), device_index=device_index,
        compute=choice("COMPUTE_", compute, "compute"), simd=choice("SIMD_", simd, "simd"),
        kv=choice("KV_", kv, "kv"), weights=choice("WEIGHTS_", weights, "weights"),
        prefill=choice("PREFILL_", prefill, "prefill"),
        cuda_module=_optional(cuda_module, "cuda_module"),
        plan_file=_optional(plan_file, "plan_file"), log=log_callback(log),
        progress=callback(_abi.progress_fn, watch))


def _optional(path: Optional[Path], what: str) -> Optional[bytes]:
    """A file name; none is None or the empty one."""
    return None if path is None else string_argument(path, what) or None


class Model(Handle):
    """An opened checkpoint. It never changes: any number of pools and threads may use it."""

    _free_name = "model_close"
    _made_by = "Model.open(path) opens one"

    @classmethod
    def open(cls, path: Path, *, device: str = "cpu", device_index: int = 0, compute: str = "auto",
             simd: str = "auto", kv: str = "auto", weights: str = "auto", prefill: str = "own",
             cuda_module: Optional[Path] = None, plan_file: Optional[Path] = None,
             log: Optional[LogFunction] = None,
             progress: Optional[ProgressFunction] = None) -> "Model":
        """Opens a folder as Hugging Face lays it out, or a GGUF file. The options are those of
        specbatch_model_options; constants are given by their names, as in compute="f32"."""
        options = _model_options(device, device_index, compute, simd, kv, weights, prefill,
                                 cuda_module, plan_file, log, progress)
        pointer = make("model_open", string_argument(path, "path"), ctypes.byref(options))
        return cls._of(pointer, options.log)

    # ------------------------------------------------------------ what it is

    def _text(self, name: str) -> str:
        value: bytes = self._call(name)
        return value.decode()

    @property
    def arch(self) -> str:
        return self._text("model_arch")

    @property
    def dtype(self) -> str:
        return self._text("model_dtype")

    @property
    def fingerprint(self) -> str:
        """One line that names all that the bits of results depend on."""
        return self._text("model_fingerprint")

    @property
    def digest(self) -> str:
        return self._text("model_digest")

    @property
    def vocab_size(self) -> int:
        return int(self._call("model_vocab_size"))

    @property
    def layers(self) -> int:
        return int(self._call("model_layers"))

    @property
    def context(self) -> int:
        """The most tokens that a prompt and its answer may have together."""
        return int(self._call("model_context"))

    @property
    def bytes(self) -> int:
        return int(self._call("model_bytes"))

    @property
    def has_tokenizer(self) -> bool:
        return bool(self._call("model_has_tokenizer"))

    @property
    def eos(self) -> List[int]:
        """The ids that end a sequence."""
        n = c_size_t()
        ids = self._call("model_eos", ctypes.byref(n))
        return list(ids[:n.value])

    # ------------------------------------------------------------ text

    def _sized(self, name: str, capacity: int, kind: Any, *before: Any) -> Any:
        with self._use() as pointer:
            return sized(name, capacity, kind, pointer, *before)

    def tokenize(self, text: str, *, bos: bool = True, special: bool = True) -> List[int]:
        """The ids of a text. bos=False leaves out what the tokenizer's template adds;
        special=False takes special tokens in the text for ordinary text."""
        data = text_argument("text", text)
        flag = flags(TEXT_NO_BOS=not bos, TEXT_PLAIN_SPECIAL=not special)
        ids, n = self._sized("tokenize", len(data) + 8, c_int32, data, len(data), flag)
        return list(ids[:n])

    def detokenize(self, ids: Any, *, keep_special: bool = False) -> str:
        array, n_ids = ids_argument(ids)
        text, n = self._sized("detokenize", 8 * n_ids + 16, c_char, array, n_ids,
                              flags(TEXT_KEEP_SPECIAL=keep_special))
        return str(text.raw[:n].decode())

    def token_text(self, id: int) -> str:
        """One token as the vocabulary spells it."""
        text, n = self._sized("token_text", 64, c_char, id)
        return str(text.raw[:n].decode("utf-8", "replace"))

    # ------------------------------------------------------------ conversations

    @property
    def chat_format(self) -> Optional[str]:
        """The name of the format of the model's own template; None if it has none, or another."""
        number = self._call("model_chat_format", passing=(_abi.E_NOT_FOUND,))
        return FUNCTIONS["chat_name"](number).decode() if number >= 0 else None

    def chat_tokens(self, messages: Sequence[Message], *, format: str = "auto", think: bool = True,
                    answer_prompt: bool = True, parse_special: bool = False,
                    date: Optional[datetime.date] = None, effort: str = "default") -> List[int]:
        """The ids of a conversation, up to the place where the assistant answers next. format is
        one of chat_formats(); think=False asks for an answer without reasoning. Formats of Llama
        3.1 and later and of gpt-oss say the date; how long gpt-oss reasons is its effort, "low",
        "medium" or "high"."""
        options, array = _conversation(messages, format, think, answer_prompt, parse_special, date,
                                       effort)
        size = sum(message.content_length for message in array)
        ids, n = self._sized("chat_tokens", size // 2 + 64, c_int32, options, array,
                             ctypes.sizeof(_abi.message), len(array))
        return list(ids[:n])

    def chat_text(self, messages: Sequence[Message], *, format: str = "auto", think: bool = True,
                  answer_prompt: bool = True, date: Optional[datetime.date] = None,
                  effort: str = "default") -> str:
        """The same as text, to be looked at."""
        options, array = _conversation(messages, format, think, answer_prompt, False, date, effort)
        size = sum(message.content_length for message in array)
        text, n = self._sized("chat_text", size + 1024, c_char, options, array,
                              ctypes.sizeof(_abi.message), len(array))
        return str(text.raw[:n].decode())


def _conversation(messages: Sequence[Message], format: str, think: bool, answer_prompt: bool,
                  parse_special: bool, date: Optional[datetime.date],
                  effort: str) -> Tuple[Any, Any]:
    options = struct(
        _abi.chat_options, format=call("chat_by_name", string_argument(format, "format")),
        flags=flags(CHAT_NO_THINK=not think, CHAT_NO_ANSWER_PROMPT=not answer_prompt,
                    CHAT_PARSE_SPECIAL=parse_special),
        date=0 if date is None else date.year * 10000 + date.month * 100 + date.day,
        effort=choice("EFFORT_", effort, "effort"))
    if isinstance(messages, (str, bytes, Mapping)):  # their letters and keys are no messages
        raise TypeError(f"messages: a list of messages is needed, not {messages!r}; use "
                        '[{"role": "user", "content": ...}]')
    pairs = [_role_and_content(message) for message in listed("messages", messages)]
    array = (_abi.message * len(pairs))()
    for place, (role, content) in zip(array, pairs):
        data = text_argument("content", content)
        place.role, place.content = string_argument(role, "role"), data
        place.content_length = len(data)
    return ctypes.byref(options), array


def _role_and_content(message: Message) -> Tuple[Any, Any]:
    if isinstance(message, Mapping):
        if set(message) != {"role", "content"}:
            raise InvalidError("messages: a message has the keys role and content, not "
                               f"{', '.join(map(str, message)) or 'none'}")
        return message["role"], message["content"]
    if not isinstance(message, (tuple, list)) or len(message) != 2:
        raise TypeError('messages: a message is {"role": ..., "content": ...} or the two as a '
                        f"tuple, not {message!r}")
    return message[0], message[1]


def chat_formats() -> List[str]:
    """The names of the chat formats, "auto" first."""
    return [FUNCTIONS["chat_name"](i).decode() for i in range(FUNCTIONS["chat_count"]())]


class TextStream(Handle):
    """Makes text of a growing sequence of ids, piece by piece and never half a character."""

    _free_name = "text_stream_free"

    def __init__(self, model: Model, *, keep_special: bool = False) -> None:
        with Model._use_of("model", model) as of:
            pointer = make("text_stream_create", of, flags(TEXT_KEEP_SPECIAL=keep_special))
        self._own(pointer, model)

    def push(self, ids: Any) -> str:
        """Adds ids, and returns the text that they complete."""
        array, n_ids = ids_argument(ids)
        return self._piece("text_stream_push", array, n_ids)

    def finish(self) -> str:
        """Ends the text, and returns what was held back."""
        return self._piece("text_stream_finish")

    def _piece(self, name: str, *arguments: Any) -> str:
        text, length = c_void_p(), c_size_t()
        self._call(name, *arguments, ctypes.byref(text), ctypes.byref(length))
        return text_at(text.value, length.value)


def convert(to: Path, checkpoint: Path, *, weights: str = "auto", log: Optional[LogFunction] = None,
            progress: Optional[ProgressFunction] = None) -> None:
    """Writes a checkpoint, a folder or a GGUF file, as the GGUF file `to`, quantised as Model.open
    would."""
    options = _model_options("cpu", 0, "auto", "auto", "auto", weights, "own", None, None, log,
                             progress)
    call("convert", string_argument(to, "to"), string_argument(checkpoint, "checkpoint"),
         ctypes.byref(options))

"""`generate` with the names that users of Transformers know.

    from specbatch import hf
    answers = hf.generate(model, None, "Once upon a time", max_new_tokens=50)

What cannot be honoured is an error: an unknown or unsupported option is never ignored. Beams,
constraints and logits processors have no counterpart here, and a torch generator cannot be: what is
sampled is a function of `seed`, so it is other than what Transformers would draw, and the same on
any machine. Where Transformers takes an option from generation_config.json it has to be given here.
"""

from ctypes import c_float, c_int32
from typing import Any, Iterable, List, Optional, Sequence, Union

from ._library import function_argument, listed, number
from .draft import Draft
from .errors import InvalidError
from .model import Model
from .pool import Pool
from .request import Request
from .result import Result, in_order

__all__ = ["generate"]


def _prompts(model: Model, tokenizer: Any, inputs: Any) -> List[List[int]]:
    """The ids of `inputs`: a text, texts, ids, or rows of ids."""
    if hasattr(inputs, "tolist"):  # an array or a tensor
        inputs = inputs.tolist()
    rows = [inputs] if isinstance(inputs, str) else listed("inputs", inputs)
    if rows and isinstance(rows[0], int):
        rows = [rows]
    encode = (model.tokenize if tokenizer is None
              else lambda text: function_argument("tokenizer", tokenizer)(text)["input_ids"])
    return [encode(row) if isinstance(row, str) else listed("inputs", row) for row in rows]


def _request(prompt: Any, max_new_tokens: int, do_sample: bool, temperature: float, top_p: float,
             top_k: int, min_p: float, typical_p: float, repetition_penalty: float,
             min_new_tokens: int, num_return_sequences: int,
             stop_strings: Union[str, Sequence[str]],
             eos_token_id: Union[None, int, Sequence[int]], output_logprobs: bool,
             seed: int) -> Request:
    number("max_new_tokens", c_int32, max_new_tokens)
    number("num_return_sequences", c_int32, num_return_sequences)
    if do_sample and number("temperature", c_float, temperature).value <= 0:
        raise InvalidError("hf.generate: do_sample needs a temperature above 0")
    if num_return_sequences > 1 and not do_sample:
        raise InvalidError("hf.generate: num_return_sequences needs do_sample: the answers would "
                           "all be the same")
    if not do_sample and (temperature, top_p, top_k, min_p, typical_p) != (1.0, 1.0, 0, 0.0, 1.0):
        raise InvalidError("hf.generate: temperature, top_p, top_k, min_p and typical_p need "
                           "do_sample")
    stop_ids = ([eos_token_id] if isinstance(eos_token_id, int)
                else listed("eos_token_id", () if eos_token_id is None else eos_token_id))
    return Request(
        prompt, max_new_tokens, temperature=temperature if do_sample else 0.0, top_p=top_p,
        top_k=top_k, min_p=min_p, typical_p=typical_p, repetition_penalty=repetition_penalty,
        min_new=min_new_tokens, n=num_return_sequences, stop=stop_strings, stop_ids=stop_ids,
        ignore_eos=eos_token_id is not None, logprobs=output_logprobs, seed=seed)


def generate(model: Model, tokenizer: Any, inputs: Any, *, max_new_tokens: int,
             assistant_model: Union[None, Model, Draft] = None, do_sample: bool = False,
             temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0,
             typical_p: float = 1.0, repetition_penalty: float = 1.0, min_new_tokens: int = 0,
             num_return_sequences: int = 1, stop_strings: Union[str, Sequence[str]] = (),
             eos_token_id: Union[None, int, Sequence[int]] = None, output_logprobs: bool = False,
             seed: int = 0, streamer: Any = None, pool: Optional[Pool] = None,
             **unsupported: Any) -> List[Result]:
    """Generates for a text, texts, ids, or rows of ids (without padding), and returns results in
    their order, num_return_sequences for each. tokenizer makes input_ids of a text; None: the
    model's own does. assistant_model is what proposes. streamer has put and end: put gets pieces
    of the answer's text, or lists of ids if the model has no tokenizer, and never the prompt. pool
    is one to be used again; else there is one for this call. top_k is 0, which is all, where
    Transformers has 50 if nothing is said."""
    given = {name for name, value in unsupported.items() if value is not None}
    if given:
        raise InvalidError(f"hf.generate: not supported: {', '.join(sorted(given))}")
    Model._checked("model", model)
    requests = [_request(prompt, max_new_tokens, do_sample, temperature, top_p, top_k, min_p,
                         typical_p, repetition_penalty, min_new_tokens, num_return_sequences,
                         stop_strings, eos_token_id, output_logprobs, seed)
                for prompt in _prompts(model, tokenizer, inputs)]
    if streamer is not None and (len(requests), num_return_sequences) != (1, 1):
        raise InvalidError("hf.generate: a streamer takes one prompt with one answer")
    if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
        raise TypeError(f"streamer: an object with put and end is needed, not {streamer!r}")
    if pool is not None and assistant_model is not None:
        raise InvalidError("hf.generate: a pool has its draft already, without assistant_model")
    if pool is not None:
        return _run(Pool._checked("pool", pool), requests, streamer)
    draft = (Draft.from_model(assistant_model) if isinstance(assistant_model, Model)
             else assistant_model)
    longest = max((len(request.prompt) for request in requests), default=1) + max_new_tokens
    n_rows = min(8, len(requests) * num_return_sequences)
    with Pool(model, draft, batch=max(1, n_rows), max_len=min(model.context, longest)) as own:
        return _run(own, requests, streamer)


def _run(pool: Pool, requests: Iterable[Request], streamer: Any) -> List[Result]:
    results = []
    for event in pool.stream(requests):
        piece = event.ids if event.text is None else event.text
        if streamer is not None and piece:
            streamer.put(piece)
        if event.result is not None:
            results.append(event.result)
    if streamer is not None:
        streamer.end()
    for result in results:
        if result.error:
            raise result.error
    return in_order(results)

"""python -m specbatch, and the names that users of Transformers know."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import DEMO, EMOJI, TARGET, known_answers, plain, prompts, specbatch
from specbatch.__main__ import main

PAIR = ["--target", os.path.join(DEMO, "target"), "--draft", os.path.join(DEMO, "draft")]
PROMPTS = ["--prompts", os.path.join(DEMO, "prompts.jsonl")]


def run(*arguments, text=""):
    """The exit code, what is printed, and what goes to stderr."""
    out, err, stdin = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(text)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(list(arguments))
            except SystemExit as end:
                code = end.code
    finally:
        sys.stdin = stdin
    return code, out.getvalue(), err.getvalue()


class TestPrograms(unittest.TestCase):
    def test_generate_gives_the_tokens_of_the_c_program(self):
        with open(os.path.join(DEMO, "golden.jsonl"), encoding="utf-8") as file:
            golden = [json.loads(line)["ids"][:12] for line in list(file)[:4]]
        for options in ([], ["--policy", "exspec", "--batch", "2", "--draft-len", "3", "--fixed-k"],
                        ["--draft", "ngram", "--in-order", "--verify"]):
            code, out, err = run("generate", *PAIR, *PROMPTS, "--limit", "4", "--max-new", "12",
                                 "--compute", "f32", *options)
            self.assertEqual(code, 0, err)
            lines = sorted(map(json.loads, out.splitlines()), key=lambda line: line["id"])
            self.assertEqual([line["ids"] for line in lines], golden)
            self.assertEqual(set(lines[0]), {"id", "ids", "text", "finish"})

    def test_the_best_come_first_in_order_too(self):
        asked = ["generate", *PAIR[:2], "--prompts", "-", "--max-new", "6", "--temperature", "1",
                 "--n", "3", "--best-of", "6", "--logprobs"]
        one, two = ('{"prompt": "The old man", "id": %d}\n' % i for i in (1, 2))
        _, first, _ = run(*asked, text=one)
        code, both, err = run(*asked, "--in-order", text=one + two)
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in both.splitlines()]
        self.assertEqual(lines[:3], [json.loads(line) for line in first.splitlines()])
        self.assertEqual([(line["id"], line["ids"]) for line in lines[3:]],
                         [(2, line["ids"]) for line in lines[:3]])

    def test_answers_are_numbered_where_there_are_several(self):
        text = ('{"ids": [1, 2], "id": "one"}\n{"ids": [1, 2], "id": "two", "n": 2}\n'
                '{"ids": [1, 2], "id": "best", "best_of": 3}\n')
        code, out, err = run("generate", "--target", TARGET, "--prompts", "-", "--in-order",
                             "--max-new", "3", "--temperature", "1", text=text)
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(line["id"], line.get("answer")) for line in lines[:3]],
                         [("one", None), ("two", 0), ("two", 1)])
        self.assertIn(lines[3]["answer"], (0, 1, 2))

    def test_lines_wish_for_themselves_and_wrong_ones_are_refused(self):
        line = {"ids": [1, 2, 3], "id": "a", "max_new": 4, "bias": {"7": None}, "seed": 3,
                "temperature": 0.9, "repeat_penalty": 1.2, "n": 2, "logprobs": True,
                "draft_sources": [0], "deadline_ms": 60000}
        code, out, err = run("generate", "--target", TARGET, "--draft", "ngram", "--prompts", "-",
                             text=json.dumps(line) + "\n")
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(line["id"], len(line["logprobs"])) for line in lines], [("a", 4)] * 2)
        for wrong, why in (({"ids": [1], "unknown": 1}, "unknown field unknown"),
                           ({"max_new": 4}, "one of prompt, turns and ids"),
                           ({"turns": []}, "turns"), ({"ids": [1], "bias": 3}, "bias"),
                           (["ids"], "not an object"), ({"ids": "text"}, "ids: not an array"),
                           ({"ids": []}, "ids: "), ({"turns": "text"}, "turns: not an array"),
                           ({"ids": [1], "draft_sources": []}, "draft_sources: there is none"),
                           ({"ids": [1], "temperature": "x"}, "temperature: "),
                           ({"ids": [1], "max_new": "3"}, "max_new: "),
                           ({"ids": [1], "max_new": 10**5}, "too long: 1 tokens and 100000 new"),
                           ({"ids": [1], "bias": {"99999": 1}}, "request: sampling: bias_ids"),
                           ({"ids": [1], "id": "b"}, 'id "b" is that of line 1 too'),
                           ({"ids": [1], "top_k": -1}, "top_k"), ({"prompt": "x"}, "tokenizer"),
                           ('{"ids": [1], "max_new": 3, "max_new": 4}', '"max_new" is there twice'),
                           ('{"ids": [1], "bias": {"3": 1, "3": 2}}', '"3" is there twice')):
            text = wrong if isinstance(wrong, str) else json.dumps(wrong)
            code, out, err = run("generate", "--target", TARGET, "--prompts", "-",
                                 text='{"ids": [1], "id": "b"}\n\n' + text + "\n")
            with self.subTest(wrong):
                self.assertEqual(code, 2)
                self.assertRegex(err, "^generate: stdin:3: .*" + re.escape(why))
        self.assertEqual(run("generate", "--target", TARGET, "--prompts", "-", text="\n"),
                         (2, "", "generate: stdin: no prompts\n"))
        code, out, err = run("generate", *PAIR, "--prompts", "-", text='{"prompt": ""}\n')
        self.assertEqual((code, err), (2, "generate: stdin:1: the prompt is empty\n"))
        self.assertEqual(run("generate", "--target", TARGET, "--prompts", "-", "--resume")[0], 2)
        self.assertEqual(run("generate", "--target", "/nowhere", "--prompts", "-")[0], 2)

    def test_a_request_that_fails_fails_the_program(self):
        with specbatch.Model.open(TARGET) as model:
            none = {"ids": [1, 2], "id": "none", "bias": dict.fromkeys(range(model.vocab_size))}
        code, out, err = run("generate", "--target", TARGET, "--prompts", "-", "--max-new", "3",
                             "--in-order", text='{"ids": [1, 2]}\n' + json.dumps(none) + "\n")
        self.assertEqual((code, err), (3, 'generate: "none" ended early: SPECBATCH_E_NO_CHOICE\n'))
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(len(line["ids"]), line.get("error")) for line in lines],
                         [(3, None), (0, "SPECBATCH_E_NO_CHOICE")])

    def test_prompts_may_be_as_long_as_the_context(self):
        for options, code in (([], 0), (["--max-len", "2999"], 2), (["--max-len", "5000"], 2)):
            line = {"ids": [7] * 2998, "max_new": 2, "category": "writing"}
            with self.subTest(options):
                self.assertEqual(run("generate", *PAIR[:2], "--prompts", "-", *options,
                                     text=json.dumps(line) + "\n")[0], code)

    def test_chat_answers_and_keeps_the_conversation(self):
        code, out, err = run("chat", *PAIR, "--chat", "raw", "--max-new", "8",
                             text="Once\n upon\n/reset\nOnce\n/stats\n//x\n/what\n/quit\n")
        self.assertEqual(code, 0, err)
        lines = out.splitlines()
        self.assertEqual(lines[0], lines[2])
        self.assertNotEqual(lines[0], lines[1])
        self.assertIn("begin a new conversation", out)

    def test_bench_compares_with_plain_decoding(self):
        code, out, err = run("bench", *PAIR, *PROMPTS, "--limit", "2", "--max-new", "6",
                             "--policies", "plain,ragged", "--batches", "2", "--draft-lens", "3")
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("2/2"), 2)
        self.assertIn("fastest: --policy", out)

    def test_the_module_is_a_program(self):
        for command in ([], ["generate"]):
            done = subprocess.run([sys.executable, "-m", "specbatch", *command, "--version"],
                                  stdout=subprocess.PIPE, check=True, encoding="utf-8")
            self.assertEqual(done.stdout, f"specbatch {specbatch.library_version()}\n")


class TestTransformersNames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = specbatch.Model.open(EMOJI)
        cls.target = specbatch.Model.open(TARGET)

    def test_texts_ids_and_a_streamer(self):
        class Streamer:
            def __init__(self):
                self.pieces, self.ended = [], False

            def put(self, piece):
                self.pieces.append(piece)

            def end(self):
                self.ended = True

        known = known_answers()
        results = specbatch.hf.generate(self.model, None, [prompt for prompt, _ in known],
                                        max_new_tokens=64, assistant_model=specbatch.Draft.ngram())
        self.assertEqual([result.text for result in results], [answer for _, answer in known])
        streamer = Streamer()
        specbatch.hf.generate(self.model, lambda text: {"input_ids": self.model.tokenize(text)},
                              known[0][0], max_new_tokens=64, streamer=streamer)
        self.assertEqual("".join(streamer.pieces), known[0][1])
        self.assertTrue(streamer.ended)
        rows = prompts(3)
        results = specbatch.hf.generate(self.target, None, rows, max_new_tokens=6)
        self.assertEqual([result.prompt_ids for result in results], rows)
        one, = specbatch.hf.generate(self.target, None, rows[0], max_new_tokens=6)
        self.assertEqual(one.ids, results[0].ids)

    def test_options_are_those_of_a_request(self):
        results = specbatch.hf.generate(
            self.target, None, [[1, 2, 3]], max_new_tokens=8, do_sample=True, temperature=0.8,
            top_p=0.9, top_k=20, min_p=0.01, repetition_penalty=1.1, num_return_sequences=2,
            seed=5, output_logprobs=True, min_new_tokens=2, eos_token_id=3)
        request = specbatch.Request(
            [1, 2, 3], 8, temperature=0.8, top_p=0.9, top_k=20, min_p=0.01, repetition_penalty=1.1,
            seed=6, logprobs=True, min_new=2, stop_ids=[3], ignore_eos=True)
        want = plain(self.target, request)
        self.assertEqual((results[1].ids, results[1].logprobs), (want.ids, want.logprobs))

    def test_what_cannot_be_honoured_is_refused(self):
        for wrong in (dict(num_beams=4), dict(top_k=5), dict(temperature=0.5),
                      dict(do_sample=True, temperature=0.0), dict(num_return_sequences=2),
                      dict(logits_processor=[]), dict(nonsense=1)):
            with self.subTest(wrong), self.assertRaises(ValueError):
                specbatch.hf.generate(self.target, None, [[1, 2]], max_new_tokens=2, **wrong)
        with tempfile.TemporaryFile() as streamer, self.assertRaises(ValueError):
            specbatch.hf.generate(self.target, None, [[1], [2]], max_new_tokens=2,
                                  streamer=streamer)


if __name__ == "__main__":
    unittest.main()

"""Arguments of a wrong type: the error is a TypeError whose line names the argument."""

import os
import unittest

from support import EMOJI, TARGET, specbatch


class TestWrongTypes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, cls.target = specbatch.Model.open(EMOJI), specbatch.Model.open(TARGET)
        cls.pool = specbatch.Pool(cls.target)

    def refused(self, line, function, *arguments, **options):
        with self.subTest(line), self.assertRaisesRegex(TypeError, "^" + line):
            function(*arguments, **options)

    def test_messages(self):
        for method in (self.model.chat_tokens, self.model.chat_text):
            for wrong in ("hi", b"hi", {"role": "user", "content": "hi"}):
                self.refused("messages: a list of messages is needed, not ", method, wrong,
                             format="chatml")
            for wrong in (None, 5):
                self.refused("messages: a sequence is needed, not ", method, wrong,
                             format="chatml")
            for wrong in ("hi", 5, None, ("user", ), ("user", "hi", "you")):
                self.refused("messages: a message is ", method, [wrong], format="chatml")
        pairs = [("user", "hi"), ["assistant", "hi"], {"role": "user", "content": "hi"}]
        self.assertEqual(self.model.chat_text(iter(pairs), format="chatml"),
                         self.model.chat_text(pairs, format="chatml"))

    def test_counters(self):
        stats = self.pool.stats
        for wrong in (5, None, b"rounds", "rounds\0", "\ud800", []):
            with self.subTest(wrong):
                self.assertNotIn(wrong, stats)
                self.assertIsNone(stats.get(wrong))
                with self.assertRaisesRegex(KeyError, "no counter is called .* there are rounds"):
                    stats[wrong]
        self.assertIn("rounds", stats)

    def test_what_is_no_function(self):
        for name in ("log", "progress"):
            self.refused(name + ": a function is needed, not 5", specbatch.Model.open, TARGET,
                         **{name: 5})
        self.refused("log: a function", specbatch.Pool, self.target, log="x")
        self.refused("mask: a function", specbatch.Mask, 5)
        self.refused("mask: a function", self.pool.submit, [1], max_new=1, mask="x")
        draft = specbatch.Draft.from_functions
        self.refused("propose: a function", draft, [[1]])
        self.refused("retire: a function", draft, print, retire=5)
        self.refused("release: a function", draft, print, release=5)
        self.refused("tokenizer: a function", specbatch.hf.generate, self.model, 5, "hi",
                     max_new_tokens=1)

    def test_what_functions_return_and_masks_are_given(self):
        for line, proposals in (("propose: a sequence is needed", None),
                                ("propose: a row's proposals are ", [5]),
                                ("propose: a row's proposals are ", [{"a": 1}]),
                                ("propose: 'str' object", [["x"]])):
            draft = specbatch.Draft.from_functions(lambda rows, given=proposals: given)
            with specbatch.Pool(self.target, draft) as pool:
                self.refused(line, pool.generate, [1, 2, 3], max_new=6)
        for line, name, given in (("mask: 'str' object", "keep", ["x"]),
                                  ("mask: a sequence is needed, not 5", "forbid", 5),
                                  ("mask: 'str' object", "allowed", "x"),
                                  ("keep_bits: ", "keep_bits", [1])):
            mask = specbatch.Mask(lambda rows, name=name, given=given:
                                  [getattr(row, name)(given) for row in rows])
            self.refused(line, self.pool.generate, [1], max_new=2, mask=mask)

    def test_requests_and_files(self):
        for method in (self.pool.stream, self.pool.generate_all, self.pool.astream):
            self.refused("requests: a stream takes a list of prompts, not 5", method, 5)
        for name in ("n", "best_of"):
            self.refused(name + ": ", self.pool.submit, [1], max_new=1, **{name: {}})
            self.assertEqual(self.pool.run(), None)
        self.refused("plan_file: ", specbatch.Model.open, TARGET, plan_file={})
        for wrong in ([], {}):
            with self.assertRaisesRegex(specbatch.InvalidError, "^compute: .* is not one of auto"):
                specbatch.Model.open(TARGET, compute=wrong)
        with self.assertRaisesRegex(specbatch.InvalidError, "^path: "):
            specbatch.Model.open(os.path.join(TARGET, "\ud800"))

    def test_transformers_names(self):
        generate = specbatch.hf.generate
        self.refused("model: a specbatch.Model is needed, not str", generate, "x", None, [1],
                     max_new_tokens=1)
        for line, inputs, options in (
                ("inputs: a sequence is needed, not 5", 5, {}),
                ("inputs: a sequence is needed, not None", None, {}),
                ("inputs: a sequence is needed, not None", [None], {}),
                ("max_new_tokens: ", [1], {"max_new_tokens": "x"}),
                ("num_return_sequences: ", [1], {"num_return_sequences": "x"}),
                ("temperature: ", [1], {"do_sample": True, "temperature": "x"}),
                ("eos_token_id: a sequence is needed, not 5.5", [1], {"eos_token_id": 5.5}),
                ("streamer: ", [1], {"streamer": 5}),
                ("pool: a specbatch.Pool is needed, not int", [1], {"pool": 5})):
            self.refused(line, generate, self.target, None, inputs,
                         **{"max_new_tokens": 1, **options})


if __name__ == "__main__":
    unittest.main()

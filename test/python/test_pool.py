"""The package on small checkpoints: bits, options, events, results, errors."""

import datetime
import os
import pathlib
import pickle
import random
import tempfile
import typing
import unittest

from support import DEMO, EMOJI, SMALL, TARGET, known_answers, plain, prompts, specbatch
from specbatch import _abi
from specbatch.request import Record, c_request


class TestExactness(unittest.TestCase):
    """What the library promises, through the package: struct fields that were mixed up, or ids
    that were cut, would show."""

    @classmethod
    def setUpClass(cls):
        cls.target = specbatch.Model.open(TARGET, compute="f32")
        cls.small = specbatch.Model.open(SMALL, compute="f32")

    def requests(self, n):
        rng = random.Random(7)
        return [specbatch.Request(
            prompt, rng.randint(8, 24), logprobs=True, top_logprobs=i % 4,
            temperature=rng.choice((0.0, 0.7, 1.3)), seed=rng.getrandbits(64),
            top_k=rng.choice((0, 5)), top_p=rng.choice((0.0, 0.9)),
            repetition_penalty=rng.choice((0.0, 1.2)), min_new=rng.choice((0, 4)),
            bias={3: -2.0, 5: float("-inf")} if i % 2 else None, user=("request", i))
            for i, prompt in enumerate(prompts(n))]

    def test_tokens_and_logprobs_are_those_of_plain_decoding(self):
        requests = self.requests(8)
        expected = [plain(self.target, request) for request in requests]
        drafts = [specbatch.Draft.from_model(self.small), specbatch.Draft.ngram(min_match=1),
                  specbatch.Draft.list(specbatch.Draft.ngram(),
                                       specbatch.Draft.from_model(self.small))]
        accepted = 0
        for policy, draft in zip(("ragged", "exspec", "eqspec"), drafts):
            with specbatch.Pool(self.target, draft, policy=policy, batch=3, draft_len=4,
                                fixed_k=True, n_threads=2) as pool:
                results = pool.generate_all(requests)
                for request, result, want in zip(requests, results, expected):
                    self.assertEqual(result.user, request.user)
                    self.assertEqual(result.prompt_ids, request.prompt)
                    self.assertEqual(result.ids, want.ids)
                    self.assertEqual(result.logprobs, want.logprobs)
                    self.assertEqual(result.top_logprobs, want.top_logprobs)
                    accepted += result.accepted
                self.assertEqual(pool.stats["tokens_committed"],
                                 sum(len(result.ids) for result in results))
        self.assertGreater(accepted, 0)

    def test_audit_agrees_and_notices_another_request(self):
        request = self.requests(1)[0]
        with specbatch.Pool(self.target, specbatch.Draft.from_model(self.small)) as pool:
            result = pool.generate(request)
        report = specbatch.audit(self.target, request, result, n_threads=1)
        self.assertTrue(report.equal)
        self.assertEqual((report.first_divergence, report.n_tokens), (-1, len(result.ids)))
        other = specbatch.Request([1, 2, 3], request.max_new)
        with self.assertRaises(specbatch.InvalidError):
            specbatch.audit(self.target, other, result)
        with self.assertRaisesRegex(specbatch.InvalidError, "the Request that was submitted"):
            specbatch.audit(self.target, "a text", result)

    def test_answers_and_scores(self):
        with specbatch.Pool(self.target) as pool:
            three = pool.generate_all([[1, 2, 3]], max_new=6, temperature=1.0, seed=5, n=3)
            self.assertEqual([result.answer for result in three], [0, 1, 2])
            alone = pool.generate([1, 2, 3], max_new=6, temperature=1.0, seed=6)
            self.assertEqual(three[1].ids, alone.ids)
            best = pool.generate_all([[1, 2, 3]], max_new=6, temperature=1.0, n=2, best_of=5,
                                     user="mine")
            self.assertEqual([result.user for result in best], ["mine"] * 2)
            score = pool.generate([4, 5, 6, 7], max_new=0, prompt_logprobs=True, top_logprobs=2)
            self.assertEqual(len(score.prompt_logprobs), 3)
            self.assertEqual([len(row) for row in score.prompt_top_logprobs], [2, 2, 2])
            self.assertEqual((score.ids, score.finish), ([], "length"))
            self.assertFalse(pool._records)

    def test_of_best_of_the_best_come_first_and_other_answers_in_their_order(self):
        def mean(result):
            return sum(result.logprobs) / len(result.logprobs)

        asked = prompts(2), dict(max_new=6, temperature=1.0, logprobs=True)
        by_number = True
        with specbatch.Pool(self.target) as pool:
            for seed in range(4):
                results = pool.generate_all(asked[0], **asked[1], n=3, best_of=6, seed=seed)
                self.assertEqual([result.prompt_ids for result in results],
                                 [prompt for prompt in asked[0] for _ in range(3)])
                for three in (results[:3], results[3:]):
                    self.assertEqual(three, sorted(three, key=mean, reverse=True))
                    by_number = by_number and three == sorted(three, key=lambda one: one.answer)
        self.assertFalse(by_number)
        with specbatch.Pool(self.target, batch=4) as pool:
            bans = specbatch.Request([1, 2, 3], 9, temperature=1.0, n=4, stop_ids=range(20))
            arrived = [event.result.answer for event in pool.stream([bans]) if event.result]
            results = pool.generate_all([bans, bans])
            self.assertNotEqual(arrived, sorted(arrived))
            self.assertEqual([result.answer for result in results], [0, 1, 2, 3] * 2)

    def test_prefixes_and_sessions(self):
        ids = [i % 40 for i in range(70)]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "session")
            with specbatch.Pool(self.target, prefix_bytes=1 << 22) as pool:
                pin = pool.pin(ids)
                first = pool.generate(ids, max_new=4).ids
                self.assertEqual(pool.save_session(ids, path), 64)
                pool.unpin(pin)
                with self.assertRaises(specbatch.NotFoundError):
                    pool.unpin(pin)
            with specbatch.Pool(self.target, prefix_bytes=1 << 22) as pool:
                self.assertEqual(pool.load_session(path), ids)
                self.assertEqual(pool.generate(ids, max_new=4).ids, first)
                self.assertEqual(pool.stats["prefix_tokens"], 64)


class TestStreams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = specbatch.Model.open(EMOJI)

    def pool(self, **options):
        return specbatch.Pool(self.model, specbatch.Draft.ngram(), fixed_k=True, **options)

    def test_three_known_answers_at_once(self):
        known = known_answers()
        for policy in ("plain", "ragged"):
            with self.pool(policy=policy, batch=3) as pool:
                texts, results, order = {}, {}, []
                for event in pool.stream([prompt for prompt, _ in known], max_new=64):
                    texts[event.id] = texts.get(event.id, "") + event.text
                    order.append(event.id)
                    if event.finish:
                        results[event.id] = event.result
                want = {i + 1: answer for i, (_, answer) in enumerate(known)}
                self.assertEqual(texts, want)
                self.assertEqual({i: result.text for i, result in results.items()}, want)
                self.assertGreater(sum(a != b for a, b in zip(order, order[1:])), 3)
                accepted = sum(result.accepted for result in results.values())
                self.assertEqual(accepted > 0, policy == "ragged")

    def test_streams_inside_each_other_and_requests_beside_them(self):
        (first, one), (second, two), (third, three) = known_answers()
        with self.pool() as pool:
            number = pool.submit(third, max_new=64)
            texts = ["", ""]
            inner = pool.stream([second], max_new=64)
            for event in pool.stream([first], max_new=64):
                texts[0] += event.text
                more = next(inner, None)
                texts[1] += more.text if more else ""
            texts[1] += "".join(event.text for event in inner)
            self.assertEqual(texts, [one, two])
            pool.run()
            events = list(pool.events())
            self.assertEqual({event.id for event in events}, {number})
            self.assertEqual("".join(event.text for event in events), three)
            self.assertEqual([result.text for result in pool.results()], [three])
            self.assertIsNone(pool.collect())

    def test_a_stream_that_is_left_is_cancelled(self):
        first, second = known_answers()[0][0], known_answers()[1]
        with self.pool() as pool:
            for _ in pool.stream([first], max_new=64):
                break
            self.assertEqual(pool.step(), 0)
            self.assertFalse(pool._routes or pool._records)
            self.assertEqual(pool.generate(second[0], max_new=64).text, second[1])

    def test_more_requests_than_the_queue_has_room_for(self):
        prompt, answer = known_answers()[0]
        with self.pool(batch=1, queue_max=2) as pool:
            results = pool.generate_all((prompt for _ in range(7)), max_new=64)
            self.assertEqual([result.text for result in results], [answer] * 7)
            with self.assertRaises(specbatch.QueueFullError):
                pool.generate_all([prompt], max_new=4, n=3)

    def test_a_prompt_is_not_taken_for_a_list(self):
        with self.pool() as pool:
            for one in ("hi", b"hi", bytearray(b"hi"), specbatch.Request("hi", 2)):
                for call in (pool.stream, pool.astream, pool.generate_all):
                    with self.subTest(one=one, call=call), self.assertRaisesRegex(
                            TypeError, r"takes a list of prompts; use \[prompt\]"):
                        call(one, max_new=2)
            with self.assertRaisesRegex(TypeError, r"^prompt 0: 1 is none; .*use \[prompt\]"):
                pool.generate_all([1, 2, 3], max_new=2)
            self.assertFalse(pool._routes or pool._records)

    def test_the_error_of_a_prompt_has_its_place_and_cancels_the_others(self):
        good = specbatch.Request("hi", 200, ignore_eos=True)
        for wrong, kind, line in (
                (("", 4), ValueError, "prompt 2: the prompt is empty"),
                (("hi", 10**6), ValueError, "prompt 2: 1 prompt tok"),
                (("hi", -1), ValueError, "prompt 2: request"),
                ((None, 4), TypeError, "prompt 2: prompt: a sequence is needed, not None")):
            with self.subTest(wrong), self.pool() as pool:
                other = pool.submit("hi", max_new=3)
                with self.assertRaises(kind) as error:
                    pool.generate_all([good, good, specbatch.Request(*wrong), good])
                self.assertTrue(str(error.exception).startswith(line), error.exception)
                self.assertFalse(pool._routes)
                self.assertEqual(len(pool._records), 1)
                pool.run()
                self.assertEqual([result.id for result in pool.results()], [other])
                self.assertEqual(pool.stats["requests_finished"], 3)
        with self.pool() as pool, self.assertRaisesRegex(ValueError, "^the prompt is empty"):
            pool.generate("", max_new=2)

    def test_stop_strings_and_text_streams(self):
        prompt, answer = known_answers()[0]
        middle = answer[len(answer) // 2]
        with self.pool() as pool:
            result = pool.generate(prompt, max_new=64, stop=[middle])
            self.assertEqual(result.text, answer[:answer.index(middle)])
            self.assertEqual(result.finish, "stop")
            ids = pool.generate(prompt, max_new=64).ids
        with specbatch.TextStream(self.model) as stream:
            pieces = [stream.push([id_]) for id_ in ids] + [stream.finish()]
        self.assertEqual("".join(pieces), answer)
        self.assertEqual(self.model.detokenize(ids), answer)

    def test_states_polls_cancelling_and_deadlines(self):
        prompt = known_answers()[0][0]
        with specbatch.Pool(self.model, batch=1) as pool:
            first = pool.submit(prompt, max_new=64, ignore_eos=True)
            second = pool.submit(prompt, max_new=64, user=self)
            third = pool.submit(prompt, max_new=64, deadline=1e-9)
            pool.step()
            pool.step()
            self.assertEqual(pool.state(second).state, "queued")
            self.assertEqual(pool.state(first).state, "decoding")
            self.assertEqual(len(pool.poll(first)), pool.state(first).n_generated)
            pool.cancel(first)
            pool.cancel(second)
            with self.assertRaises(specbatch.NotFoundError):
                pool.cancel(12345)
            pool.run()
            finishes = {result.id: (result.finish, result.user) for result in pool.results()}
            self.assertEqual(finishes, {first: ("cancelled", None), second: ("cancelled", self),
                                        third: ("deadline", None)})
            pool.interrupt()
            with self.assertRaises(specbatch.StoppedError) as error:
                pool.run()
            self.assertEqual(error.exception.status_name, "SPECBATCH_E_INTERRUPTED")


class TestModelsAndErrors(unittest.TestCase):
    def test_a_model_and_its_conversation(self):
        told, logged = [], []
        with specbatch.Model.open(os.path.join(DEMO, "target"), compute="f32",
                                  progress=lambda done, total: told.append((done, total)),
                                  log=lambda level, line: logged.append(level)) as model:
            self.assertEqual(told[-1][0], told[-1][1])
            self.assertTrue(set(logged) <= {"error", "warn", "info"})
            self.assertEqual(model.arch, "qwen3")
            self.assertIn("cpu-f32", model.fingerprint)
            text = "Once upon a time, caf\u00e9 \U0001f642\0!"
            self.assertEqual(model.detokenize(model.tokenize(text)), text)
            messages = [{"role": "user", "content": "Hi\0there"}, ("assistant", "Yes")]
            shown = model.chat_text(messages, format="chatml")
            self.assertIn("<|im_start|>user\nHi\0there<|im_end|>", shown)
            self.assertGreater(len(model.chat_tokens(messages, format="raw")), 3)
            self.assertIn("Today Date: 26 Jul 2024", model.chat_text(messages, format="llama3.1"))
            dated = model.chat_text(messages, format="gpt-oss", date=datetime.date(2026, 11, 29),
                                    effort="low")
            self.assertIn("Current date: 2026-11-29\n\nReasoning: low\n", dated)
            with self.assertRaisesRegex(specbatch.InvalidError, "effort: 'none' is not one of"):
                model.chat_text(messages, format="gpt-oss", effort="none")
            self.assertEqual(specbatch.chat_formats()[:2], ["auto", "raw"])
            with self.assertRaises(specbatch.InvalidError):
                model.chat_text([{"role": "user", "content": "", "name": "x"}], format="raw")
        self.assertTrue(model.closed)
        model.close()
        with self.assertRaisesRegex(specbatch.InvalidError, "it is closed"):
            model.tokenize("x")

    def test_tables_and_files(self):
        with tempfile.TemporaryDirectory() as folder:
            table, gguf = os.path.join(folder, "table"), os.path.join(folder, "model.gguf")
            with specbatch.Model.open(EMOJI) as model:
                prompt, answer = known_answers()[0]
                specbatch.make_table(table, model, model.tokenize(prompt + answer) * 3)
                specbatch.convert(gguf, EMOJI)
                with specbatch.Pool(model, specbatch.Draft.table(table), fixed_k=True) as pool:
                    result = pool.generate(prompt, max_new=64)
                    self.assertEqual(result.text, answer)
                    self.assertGreater(result.accepted, 0)
                with specbatch.Model.open(gguf) as twin, specbatch.Pool(twin) as pool:
                    self.assertEqual(pool.generate(prompt, max_new=64).ids, result.ids)

    def test_errors_are_of_kinds(self):
        with self.assertRaises(OSError) as error:
            specbatch.Model.open("/nowhere/at\nall")
        self.assertIsInstance(error.exception, specbatch.FileError)
        self.assertNotIn("\n", str(error.exception))
        again = pickle.loads(pickle.dumps(error.exception))
        self.assertEqual((again.status, str(again)), (error.exception.status, str(error.exception)))
        with specbatch.Model.open(TARGET) as model:
            with self.assertRaises(specbatch.UnsupportedError):
                model.tokenize("no tokenizer")
            with self.assertRaises(MemoryError):
                specbatch.Pool(model, budget_bytes=1000)
            self.assertGreater(specbatch.Pool.bytes_needed(model), 1000)
            with specbatch.Pool(model, batch=2) as pool:
                self.assertEqual(pool.bytes, specbatch.Pool.bytes_needed(model, batch=2))
            with self.assertRaisesRegex(ValueError, "ragged"), specbatch.Pool(model) as pool:
                pool.generate([1], max_new=1)
                specbatch.Model.open(TARGET, compute="ragged")
            with specbatch.Pool(model) as pool:
                for wrong in (dict(max_new=2**32 + 4), dict(max_new=4, top_k=-1),
                              dict(max_new=4, seed=-1), dict(max_new=4, stop_ids=[2**32 + 1]),
                              dict(max_new=4, draft_sources=[40])):
                    with self.subTest(wrong), self.assertRaises(ValueError):
                        pool.submit([1, 2], **wrong)
                for wrong in (b"bytes", [2**40], [-1], []):
                    with self.subTest(wrong), self.assertRaises(ValueError):
                        pool.submit(wrong, max_new=4)
                with self.assertRaises(TypeError):
                    pool.submit([1.5], max_new=4)
                with self.assertRaisesRegex(KeyError, "rounds, target_passes"):
                    pool.stats["no such counter"]
                self.assertFalse(pool._records)

    def test_a_wrong_value_is_refused_with_its_field(self):
        with specbatch.Model.open(TARGET) as model, specbatch.Pool(model) as pool:
            for wrong, kind in (
                    (dict(temperature="x"), TypeError), (dict(temperature=None), TypeError),
                    (dict(max_new="2"), TypeError), (dict(max_new=1.5), TypeError),
                    (dict(stop=None), TypeError), (dict(stop=b"a"), TypeError),
                    (dict(stop=["a", 3]), TypeError), (dict(stop="\udcff"), ValueError),
                    (dict(stop_ids=5), TypeError), (dict(stop_ids=["a"]), TypeError),
                    (dict(bias=[(1, 2.0)]), TypeError), (dict(bias={1: "x"}), TypeError),
                    (dict(bias={"1": 1.0}), TypeError), (dict(deadline="x"), TypeError),
                    (dict(deadline=float("inf")), ValueError), (dict(n="2"), TypeError),
                    (dict(deadline=float("nan")), ValueError), (dict(n=2**32 + 1), ValueError),
                    (dict(draft_sources=[]), ValueError), (dict(draft_sources=0), TypeError),
                    (dict(draft_sources=[-1]), ValueError), (dict(draft_sources=[32]), ValueError),
                    (dict(draft_sources=["0"]), TypeError), (dict(prompt=5), TypeError),
                    (dict(prompt=[1.5]), TypeError), (dict(prompt=b"text"), ValueError),
                    (dict(prompt="\udcff"), ValueError)):
                name, = wrong
                with self.subTest(wrong), self.assertRaisesRegex(kind, f"^{name}: "):
                    pool.submit(specbatch.Request(**{"prompt": [1, 2], "max_new": 4, **wrong}))
            for wrong in ((5,), ([1.5],), ([2**40],)):
                with self.subTest(wrong), self.assertRaisesRegex((TypeError, ValueError), "^ids: "):
                    pool.pin(*wrong)
            self.assertFalse(pool._records)
        with specbatch.Model.open(EMOJI) as model:
            for wrong in (b"x", None, "\udcff"):
                with self.subTest(wrong), self.assertRaisesRegex((TypeError, ValueError),
                                                                 "^text: "):
                    model.tokenize(wrong)
            with self.assertRaisesRegex(TypeError, "^content: "):
                model.chat_text([("user", b"x")], format="raw")

    def test_a_path_is_text_or_a_pathlib_path(self):
        with specbatch.Model.open(pathlib.Path(TARGET)) as model:
            self.assertEqual(model.arch, "qwen3")
        with self.assertRaisesRegex(TypeError, "^path: expected str"):
            specbatch.Model.open(None)

    def test_a_prompt_of_text_may_have_a_nul(self):
        with specbatch.Model.open(os.path.join(DEMO, "target")) as model, \
                specbatch.Pool(model) as pool:
            self.assertEqual(pool.generate("a\0b", max_new=0, prompt_logprobs=True).prompt_ids,
                             model.tokenize("a\0b"))

    def test_integers_are_not_cut(self):
        with specbatch.Model.open(os.path.join(DEMO, "target")) as model, \
                specbatch.Pool(model, prefix_bytes=1 << 22) as pool:
            asked, pin = pool.submit([1, 2], max_new=4), pool.pin([1] * 64)
            for call, given in ((pool.cancel, asked), (pool.poll, asked), (pool.state, asked),
                                (pool.unpin, pin), (model.token_text, 5)):
                bits = 32 if given == 5 else 64
                for wrong in (given + 2**bits, given - 2**bits, given - 2**(bits + 1)):
                    with self.subTest(call=call, wrong=wrong), self.assertRaisesRegex(
                            specbatch.InvalidError, rf"^\w+: {wrong} is not in -?\d+\.\.\d+$"):
                        call(wrong)
                with self.assertRaisesRegex(TypeError, r"^\w+: 'str' object"):
                    call(str(given))
            pool.run()
            self.assertEqual(pool.collect().finish, "length")

    def test_an_option_that_does_not_exist_is_refused_with_the_nearest(self):
        with specbatch.Model.open(TARGET) as model, specbatch.Pool(model) as pool:
            result = pool.generate([1, 2], max_new=2)
            asked = specbatch.Request([1, 2], 2)
            for call, line in (
                    (lambda: specbatch.Pool(model, fixedk=True),
                     "Pool has no option 'fixedk'; did you mean 'fixed_k'?"),
                    (lambda: specbatch.Pool.bytes_needed(model, max_lem=4),
                     "Pool has no option 'max_lem'; did you mean 'max_len'?"),
                    (lambda: specbatch.Pool(model, zzz=1),
                     "Pool has no option 'zzz'; it has policy, batch, window, draft_len, "),
                    (lambda: specbatch.audit(model, asked, result, n_thread=1),
                     "audit has no option 'n_thread'; did you mean 'n_threads'?"),
                    (lambda: pool.submit([1, 2], max_nw=2),
                     "Request has no option 'max_nw'; did you mean 'max_new'?"),
                    (lambda: pool.generate_all([[1, 2]], max_new=2, prompt="x"),
                     "Request has no option 'prompt'; did you mean "),
                    (lambda: pool.generate([1, 2], max_new=2, temprature=1.0),
                     "Request has no option 'temprature'; did you mean 'temperature'?")):
                with self.subTest(line), self.assertRaises(TypeError) as error:
                    call()
                self.assertTrue(str(error.exception).startswith(line), error.exception)
            self.assertFalse(pool._records)

    def test_typed_options_are_those_that_there_are(self):
        of_request = typing.get_type_hints(specbatch.Request)
        del of_request["prompt"]
        self.assertEqual(typing.get_type_hints(specbatch.RequestOptions), of_request)
        fields = {name for name, _ in _abi.pool_options._fields_}
        given = {"struct_size", "flags", "alloc", "free", "alloc_user", "log_user", "reserved"}
        flags = {name[len("POOL_"):].lower() for name in vars(_abi) if name.startswith("POOL_")}
        self.assertEqual(set(specbatch.PoolOptions.__annotations__), fields - given | flags)

    def test_every_field_of_a_request_is_set_by_an_option(self):
        request = specbatch.Request(
            "text", 7, draft_len=0, bos=False, parse_special=False, ignore_eos=True, logprobs=True,
            prompt_logprobs=True, filtered_logprobs=True, top_logprobs=3, stop_ids=[8, 9],
            stop=["ab", "c"], min_new=2, temperature=0.5, seed=2**63 + 1, top_k=4, top_p=0.25,
            typical_p=0.125, min_p=0.0625, repetition_penalty=1.5, presence_penalty=2.5,
            frequency_penalty=3.5, penalty_window=10, spare_prompt=True, bias={5: 0.75}, n=2,
            best_of=6, priority=-11, draft_sources=[0, 3], deadline=1.5,
            mask=lambda rows: None)
        value = c_request(request, Record(request))

        def fields(struct):
            return {name: getattr(struct, name) for name, _ in struct._fields_}

        numbers = {name: number for name, number in fields(value).items()
                   if isinstance(number, (int, float, bytes))}
        self.assertEqual(numbers, dict(
            struct_size=136, n_ids=0, text=b"text", text_flags=3, flags=15, max_new=7,
            draft_len=-1, n_stop_ids=2, user=value.user, text_length=4, min_new=2, top_logprobs=3,
            priority=-11, draft_sources=9, deadline_ns=1500000000))
        self.assertFalse(value.ids)
        self.assertEqual(value.stop_ids[:2], [8, 9])
        sampling = fields(value.sampling.contents)
        self.assertEqual((sampling.pop("bias_ids")[0], sampling.pop("bias")[0]), (5, 0.75))
        self.assertEqual(sampling, dict(
            struct_size=80, seed=2**63 + 1, temperature=0.5, top_k=4, top_p=0.25, typical_p=0.125,
            min_p=0.0625, repetition_penalty=1.5, presence_penalty=2.5, frequency_penalty=3.5,
            penalty_window=10, flags=1, n_bias=1))
        stops = value.stops.contents
        self.assertEqual((stops.strings[:2], stops.lengths[:2], stops.n_strings),
                         ([b"ab", b"c"], [2, 1], 2))
        self.assertEqual(fields(value.answers.contents), dict(struct_size=16, n=2, best_of=6))
        self.assertTrue(value.mask.contents.allow)

    def test_an_error_of_one_request_is_its_own(self):
        def nothing(rows):
            for row in rows:
                row.keep([])
        with specbatch.Model.open(TARGET) as model, specbatch.Pool(model) as pool:
            bad = specbatch.Request([1, 2], 4, mask=nothing)
            good, failed = pool.generate_all([specbatch.Request([1, 2], 4), bad])
            self.assertEqual((good.error, len(good.ids)), (None, 4))
            self.assertEqual(failed.finish, "error")
            self.assertEqual(failed.error.status_name, "SPECBATCH_E_NO_CHOICE")
            with self.assertRaises(specbatch.Error):
                pool.generate(bad)


if __name__ == "__main__":
    unittest.main()

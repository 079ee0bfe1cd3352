"""Functions of the user's that the library calls: drafts, masks, progress, log; and the GIL."""

import gc
import os
import sys
import threading
import time
import traceback
import unittest
import weakref

from support import DEMO, TARGET, plain, prompts, specbatch


class Stop(Exception):
    pass


class TestCallbacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.target = specbatch.Model.open(TARGET, compute="f32")

    def test_a_draft_of_functions_sees_its_requests_and_proposes(self):
        requests = [specbatch.Request(prompt, 12, user={"number": i})
                    for i, prompt in enumerate(prompts(4))]
        expected = [plain(self.target, request).ids for request in requests]
        seen, retired, released = set(), [], []

        def propose(rows):
            proposals = []
            for row in rows:
                number = row.user["number"]
                seen.add((row.request_id, number))
                prompt, answer = requests[number].prompt, expected[number]
                self.assertEqual(list(row.tokens[:len(prompt)]), prompt)
                at = len(row.tokens) - len(prompt)
                # The first row has none, the second too many, and the third a wrong one.
                right = answer[at:at + row.k + number]
                proposals.append(None if number == 0 else right if number == 1 else [1] + right)
            return proposals

        draft = specbatch.Draft.from_functions(
            propose, retire=lambda number, user: retired.append((number, user["number"])),
            release=lambda: released.append(True))
        with specbatch.Pool(self.target, draft, fixed_k=True) as pool:
            results = pool.generate_all(requests)
            draft.close()
            self.assertEqual(released, [])
        self.assertEqual(released, [True])
        self.assertEqual([result.ids for result in results], expected)
        self.assertEqual(sorted(retired), sorted(seen))
        self.assertEqual([result.accepted > 0 for result in results][:2], [False, True])

    def test_an_exception_in_a_draft_comes_out_of_the_step_which_can_be_repeated(self):
        failures = [Stop("first"), KeyboardInterrupt(), Stop("second")]

        def propose(rows):
            gc.collect()
            if failures:
                raise failures.pop(0)
            return [[1] for _ in rows]

        draft = specbatch.Draft.from_functions(propose)
        with specbatch.Pool(self.target, draft, fixed_k=True) as pool:
            pool.submit([1, 2, 3], max_new=8)
            raised = []
            while True:
                gc.collect()
                try:
                    if pool.step() == 0:
                        break
                except (Stop, KeyboardInterrupt) as error:
                    raised.append(type(error))
                    frames = traceback.extract_tb(error.__traceback__)
                    self.assertEqual(frames[-1].name, "propose")
            self.assertEqual(raised, [Stop, KeyboardInterrupt, Stop])
            self.assertEqual(pool.collect().ids, plain(self.target, specbatch.Request(
                [1, 2, 3], 8)).ids)

    def test_wrong_proposals_are_errors(self):
        for propose, kind in ((lambda rows: [], ValueError), (lambda rows: None, TypeError),
                              (lambda rows: [["x"]], TypeError)):
            draft = specbatch.Draft.from_functions(propose)
            with self.subTest(kind), specbatch.Pool(self.target, draft, fixed_k=True) as pool:
                with self.assertRaises(kind):
                    pool.generate([1, 2, 3], max_new=8)

    def test_a_kept_exception_does_not_keep_what_it_refers_to(self):
        class Thing:
            pass

        def propose(rows):
            local = Thing()
            things.append(weakref.ref(local))
            raise Stop

        things = []
        with specbatch.Pool(self.target, specbatch.Draft.from_functions(propose),
                            fixed_k=True) as pool:
            with self.assertRaises(Stop):
                pool.generate([1, 2, 3], max_new=8)
        gc.collect()
        self.assertEqual([thing() for thing in things], [None])

    def test_masks(self):
        asked = []

        def even(rows):
            asked.append(len(rows))
            for row in rows:
                self.assertEqual(row.n_prompt, len(row.user))
                self.assertEqual(list(row.tokens[:row.n_prompt]), row.user)
                self.assertTrue(row.allowed(1))
                row.keep(range(0, 40, 2))
                row.forbid([4, 6])
                self.assertFalse(row.allowed(1) or row.allowed(4) or row.allowed(41))
                self.assertTrue(row.allowed(2))
                for id_ in (-1, 1 << 30):  # neither memory before the row's bits, nor behind them
                    for use in (row.allowed, lambda one: row.keep([one]),
                                lambda one: row.forbid([one])):
                        with self.assertRaisesRegex(specbatch.InvalidError, "is no token id"):
                            use(id_)
            kept.append(rows[0])

        kept = []
        mask = specbatch.Mask(even)
        requests = [specbatch.Request(prompt, 10, mask=mask, user=prompt, ignore_eos=True)
                    for prompt in prompts(3)]
        with specbatch.Pool(self.target, specbatch.Draft.ngram(min_match=1), fixed_k=True) as pool:
            for request, result in zip(requests, pool.generate_all(requests)):
                self.assertTrue(set(result.ids) <= set(range(0, 40, 2)) - {4, 6})
                self.assertEqual(result.ids, plain(self.target, request).ids)
        self.assertGreater(max(asked), 1)
        with self.assertRaises(AttributeError):
            kept[0].keep([1])  # the library's memory is not reached behind the call

    def test_an_exception_in_a_mask(self):
        def broken(rows):
            raise Stop

        with specbatch.Pool(self.target) as pool:
            with self.assertRaises(Stop):
                pool.generate([1, 2, 3], max_new=8, mask=broken)
            self.assertEqual(len(pool.generate([1, 2, 3], max_new=8).ids), 8)

    def test_an_exception_while_a_model_is_opened(self):
        def progress(done, total):
            gc.collect()
            raise Stop

        def log(level, line):
            raise Stop

        with self.assertRaises(Stop):
            specbatch.Model.open(TARGET, progress=progress)
        opened = None
        try:
            opened = specbatch.Model.open(TARGET, log=log)
        except Stop:
            pass
        # Whether there is something to log or not, nothing is left to be raised later.
        self.assertEqual(specbatch.Model.open(TARGET).arch, "qwen3")
        del opened

    def test_calls_from_callbacks(self):
        other = specbatch.Pool(self.target)

        def propose(rows):
            self.assertGreater(pool.stats["prefill_tokens"], 0)
            with self.assertRaises(specbatch.BusyError):
                pool.submit([1], max_new=1)
            with self.assertRaises(specbatch.BusyError):
                pool.close()
            nested.append(other.generate([1, 2], max_new=2).ids)
            return [None for _ in rows]

        nested = []
        with specbatch.Pool(self.target, specbatch.Draft.from_functions(propose),
                            fixed_k=True) as pool:
            pool.generate([1, 2, 3], max_new=4)
        self.assertTrue(nested and len(nested[0]) == 2)


class TestThreads(unittest.TestCase):
    def test_other_threads_run_while_a_step_does(self):
        """No thread is made to give the GIL up here, so another one counts only while a thread
        releases it: the counting one by sleeping, and this one inside a step or nowhere."""
        counter, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counter[0] += 1
                time.sleep(0)

        thread = threading.Thread(target=count)
        counted, interval = 0, sys.getswitchinterval()
        with specbatch.Model.open(os.path.join(DEMO, "target")) as model, \
                specbatch.Pool(model, n_threads=1) as pool:
            pool.submit(model.tokenize("Once upon a time there was a king. " * 30), max_new=100)
            sys.setswitchinterval(1000)
            thread.start()
            try:
                for _ in range(50):
                    before = counter[0]
                    pool.step()
                    counted += counter[0] - before
                    if counted:
                        break
            finally:
                stop.set()
                sys.setswitchinterval(interval)
                thread.join()
        self.assertGreater(counted, 0)

    def test_another_thread_is_told_that_the_pool_is_busy(self):
        inside, go_on = threading.Event(), threading.Event()

        def propose(rows):
            inside.set()
            go_on.wait()
            return [None for _ in rows]

        with specbatch.Model.open(TARGET) as model, \
                specbatch.Pool(model, specbatch.Draft.from_functions(propose),
                               fixed_k=True) as pool:
            done = []
            thread = threading.Thread(
                target=lambda: done.append(pool.generate([1, 2, 3], max_new=4)))
            thread.start()
            inside.wait()
            try:
                with self.assertRaises(specbatch.BusyError):
                    pool.step()
                with self.assertRaises(specbatch.BusyError):
                    pool.close()
            finally:
                go_on.set()
                thread.join()
            self.assertEqual(len(done[0].ids), 4)


if __name__ == "__main__":
    unittest.main()

"""How handles end: closed, collected in any order, at the interpreter's exit, across processes."""

import copy
import gc
import itertools
import multiprocessing
import os
import pickle
import threading
import unittest

from support import EMOJI, TARGET, known_answers, run_python, specbatch

OPEN = """
import gc, os, sys
from support import TARGET, specbatch
model = specbatch.Model.open(TARGET)
draft = specbatch.Draft.from_functions(lambda rows: [[1] for _ in rows],
                                       retire=lambda number, user: said.append(number),
                                       release=lambda: said.append("release"))
said = []
pool = specbatch.Pool(model, draft, fixed_k=True, log=lambda level, line: None)
pool.submit([1, 2, 3], max_new=30)
pool.step()
pool.step()
"""


def generate_in_child(path, prompt, queue):
    with specbatch.Model.open(path) as model, specbatch.Pool(model) as pool:
        queue.put(pool.generate(prompt, max_new=64).text)


class TestEnds(unittest.TestCase):
    def test_handles_may_go_in_any_order(self):
        for order in itertools.permutations(range(5)):
            said = []
            model = specbatch.Model.open(EMOJI, log=lambda level, line: None)
            draft = specbatch.Draft.from_functions(lambda rows: [None for _ in rows],
                                                   release=lambda: said.append("release"))
            draft = specbatch.Draft.list(draft, specbatch.Draft.ngram())
            pool = specbatch.Pool(model, draft, log=lambda level, line: None)
            result = pool.generate("hi", max_new=3)
            stream = specbatch.TextStream(model)
            handles = [model, draft, pool, result, stream]
            del model, draft, pool, result, stream
            for i in order:
                if i % 2:
                    handles[i].close()
                    self.assertTrue(handles[i].closed)
                handles[i] = None
            gc.collect()
            self.assertEqual(said, ["release"])

    def test_cycles_are_collected(self):
        said = []
        model = specbatch.Model.open(EMOJI)
        draft = specbatch.Draft.from_functions(lambda rows: [None for _ in rows],
                                               release=lambda: said.append("release"))
        pool = specbatch.Pool(model, draft)
        pool.submit("hi", max_new=3, user=pool)
        model.pool = draft.pool = pool
        del model, draft, pool
        gc.collect()
        self.assertEqual(said, ["release"])

    def test_a_result_outlives_its_pool_and_is_read_by_threads(self):
        prompt, answer = known_answers()[0]
        model = specbatch.Model.open(EMOJI)
        with specbatch.Pool(model) as pool:
            result = pool.generate(prompt, max_new=64)
        model.close()
        texts = []
        threads = [threading.Thread(target=lambda: texts.append(result.text)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, [answer] * 4)

    def test_the_interpreter_ends_quietly_with_everything_open(self):
        for end in ("", "sys.exit()", "del model", "del draft, pool", "pool.cycle = pool",
                    "import threading; threading.Thread(target=pool.run).start()",
                    "import threading; threading.Thread(target=pool.run, daemon=True).start()",
                    "stream = pool.stream([[1, 2]] * 3, max_new=20); next(stream)",
                    "view = pool.generate([1, 2], max_new=3, logprobs=True)._view('logprobs', "
                    "__import__('ctypes').c_float)"):
            with self.subTest(end):
                self.assertEqual(run_python(OPEN + end), (0, "", ""))

    def test_callbacks_are_called_before_the_interpreter_ends(self):
        program = "import atexit\natexit.register(lambda: print(said))\n" + OPEN
        code, out, err = run_python(program)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, "[1, 'release']\n")


class TestClasses(unittest.TestCase):
    def test_a_class_that_opens_or_makes_its_objects_is_not_called(self):
        for kind, line in (
                (specbatch.Model, "Model.open(path) opens one"),
                (specbatch.Draft, "Draft.from_model(model), Draft.ngram() and so on make one"),
                (specbatch.Result, "a pool's requests end with one")):
            for given in ((), (TARGET,), (TARGET, None)):
                with self.subTest(kind=kind, given=given), self.assertRaises(TypeError) as error:
                    kind(*given)
                self.assertTrue(str(error.exception).endswith(": " + line), error.exception)
        gc.collect()  # nothing of what has failed is freed


    def test_an_argument_of_another_class_is_refused(self):
        with specbatch.Model.open(TARGET) as model, specbatch.Draft.ngram() as draft, \
                specbatch.Pool(model) as pool, pool.generate([1, 2], max_new=2) as result:
            asked = specbatch.Request([1, 2], 2)
            for call, line in (
                    (lambda: specbatch.Pool(TARGET), "target: a specbatch.Model is needed, not "
                     "str; Model.open(path) opens one"),
                    (lambda: specbatch.Pool(draft), "target: a specbatch.Model is needed, not "
                     "Draft; Model.open(path) opens one"),
                    (lambda: specbatch.Pool(model, model), "draft: a specbatch.Draft is needed, "
                     "not Model; Draft.from_model(model), Draft.ngram() and so on make one"),
                    (lambda: specbatch.Pool(model, 0), "draft: a specbatch.Draft is needed, not "
                     "int; "),
                    (lambda: specbatch.Pool.bytes_needed(pool), "target: "),
                    (lambda: specbatch.Pool.bytes_needed(model, model), "draft: "),
                    (lambda: specbatch.Draft.list(draft, model), "drafts: "),
                    (lambda: specbatch.Draft.from_model(pool), "model: "),
                    (lambda: specbatch.Draft.from_model(draft), "model: "),
                    (lambda: specbatch.TextStream(draft), "model: "),
                    (lambda: specbatch.make_table(os.devnull, draft, [1, 2]), "model: "),
                    (lambda: specbatch.audit(draft, asked, result), "target: "),
                    (lambda: specbatch.audit(model, asked, pool), "result: a specbatch.Result is "
                     "needed, not Pool; a pool's requests end with one")):
                with self.subTest(line), self.assertRaises(TypeError) as error:
                    call()
                self.assertTrue(str(error.exception).startswith(line), error.exception)


    def test_handles_are_neither_copied_nor_pickled(self):
        with specbatch.Model.open(EMOJI) as model, specbatch.Draft.ngram() as draft, \
                specbatch.Pool(model) as pool, specbatch.TextStream(model) as stream:
            *first, last = pool.stream(["hi"], max_new=3)
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                for handle in (model, draft, pool, stream):
                    with self.subTest(copied=copied, handle=handle), self.assertRaisesRegex(
                            TypeError, f"^a specbatch.{type(handle).__name__} cannot be copied or "
                            "pickled; open it in each process$"):
                        copied(handle)
                with self.assertRaisesRegex(TypeError, "^a specbatch.Result .* its text and"):
                    copied(last.result)
            with self.assertRaisesRegex(TypeError, "^a specbatch.Result cannot be copied"):
                pickle.dumps(last)
            self.assertEqual(pickle.loads(pickle.dumps(first)), first)
            self.assertEqual(pickle.loads(pickle.dumps((last.result.text, last.result.ids))),
                             (last.result.text, last.result.ids))


class TestProcesses(unittest.TestCase):
    def test_a_forked_child_is_refused_the_pool_and_ends_quietly(self):
        code, out, err = run_python(OPEN + """
import warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
sys.stdout.flush()
child = os.fork()
if child == 0:
    try:
        pool.step()
    except specbatch.InvalidError as error:
        print("child:", error)
    pool.close()
    with specbatch.Pool(model) as own:
        print(len(own.generate([1, 2, 3], max_new=5).ids))
else:
    _, status = os.waitpid(child, 0)
    print("status", status)
    pool.run()
    print(len(pool.collect().ids))
""")
        self.assertEqual((code, err), (0, ""))
        lines = out.splitlines()
        self.assertRegex(lines[0], "child: .*fork")
        self.assertEqual(lines[1:], ["5", "status 0", "30"])

    def test_spawned_processes_have_models_of_their_own(self):
        prompt, answer = known_answers()[0]
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=generate_in_child, args=(EMOJI, prompt, queue))
        process.start()
        self.assertEqual(queue.get(timeout=120), answer)
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_the_library_is_refused_with_a_reason(self):
        for library, why in (("/nowhere.so", "cannot load /nowhere.so"),
                             ("libc.so.6", "is not libspecbatch")):
            code, _, err = run_python(
                f"import os; os.environ['SPECBATCH_LIBRARY'] = '{library}'\n"
                "try:\n    import specbatch\n"
                "except ImportError as error:\n    raise SystemExit(str(error))")
            with self.subTest(library):
                self.assertEqual(code, 1)
                self.assertIn(why, err)


class TestArrays(unittest.TestCase):
    def setUp(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy here")
        self.numpy = numpy

    def test_views_are_no_copies_and_keep_their_result(self):
        numpy = self.numpy
        with specbatch.Model.open(TARGET) as model, specbatch.Pool(model) as pool:
            result = pool.generate([1, 2, 3], max_new=6, logprobs=True, top_logprobs=2,
                                   prompt_logprobs=True)
        lists = result.ids, result.logprobs, result.top_logprobs, result.prompt_logprobs
        ids, logprobs, top = result.ids_array(), result.logprobs_array(), result.top_ids_array()
        self.assertEqual((ids.dtype, logprobs.dtype), (numpy.int32, numpy.float32))
        self.assertEqual(top.shape, (6, 2))
        self.assertEqual(result.top_logprobs_array().shape, (6, 2))
        self.assertEqual(ids.ctypes.data, result.ids_array().ctypes.data)
        self.assertFalse(ids.flags.writeable or logprobs.flags.owndata)
        with self.assertRaises(specbatch.BusyError):
            result.close()
        tail = logprobs[3:]
        del result, logprobs
        gc.collect()
        self.assertEqual(tail.tolist(), lists[1][3:])
        self.assertEqual(ids.tolist(), lists[0])
        self.assertEqual(top.tolist(), [[id_ for id_, _ in row] for row in lists[2]])
        self.assertEqual(len(lists[3]), 2)

    def test_alternatives_have_a_row_for_each_token_however_many_there_are(self):
        with specbatch.Model.open(TARGET) as model, specbatch.Pool(model) as pool:
            for max_new in range(3):
                result = pool.generate([1, 2, 3], max_new=max_new, logprobs=True, top_logprobs=4,
                                       prompt_logprobs=True)
                for array in (result.top_ids_array(), result.top_logprobs_array()):
                    self.assertEqual(array.shape, (max_new, 4))
                self.assertEqual(result.logprobs_array().shape, (max_new,))
            self.assertIsNone(pool.generate([1, 2, 3], max_new=1).top_ids_array())

    def test_a_result_is_closed_when_its_views_have_gone(self):
        with specbatch.Model.open(TARGET) as model, specbatch.Pool(model) as pool:
            result = pool.generate([1, 2, 3], max_new=6, logprobs=True)
        view = result.logprobs_array()
        del view
        gc.collect()
        result.close()
        self.assertTrue(result.closed)

    def test_prompts_of_arrays(self):
        from specbatch._library import ids_argument
        numpy = self.numpy
        ids = numpy.arange(12, dtype=numpy.int32)
        array, n = ids_argument(ids)
        self.assertEqual(n, 12)
        ids[3] = 33
        self.assertEqual(array[3], 33)  # it is the same memory
        ids.flags.writeable = False
        for given in (ids, ids[::2], ids.astype(numpy.int64), ids.astype(numpy.uint16),
                      ids[::-1]):
            array, n = ids_argument(given)
            self.assertEqual(array[:n], given.tolist())
        for wrong in (ids.astype(numpy.float32), ids.reshape(3, 4), numpy.array([2**40])):
            with self.assertRaises(ValueError):
                ids_argument(wrong)
        with specbatch.Model.open(TARGET) as model, specbatch.Pool(model) as pool:
            self.assertEqual(pool.generate(ids, max_new=4).prompt_ids, ids.tolist())


if __name__ == "__main__":
    unittest.main()

"""Streams under asyncio: steps run on a worker thread, for all tasks together."""

import asyncio
import gc
import time
import unittest

from support import EMOJI, TARGET, known_answers, plain, specbatch


class TestAsyncio(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = specbatch.Model.open(EMOJI)
        cls.known = known_answers()

    def pool(self, **options):
        return specbatch.Pool(self.model, specbatch.Draft.ngram(), fixed_k=True, **options)

    def test_tasks_stream_known_answers_at_once(self):
        async def one(pool, prompt, order):
            text = ""
            async for event in pool.astream([prompt], max_new=64):
                text += event.text
                order.append(event.id)
            return text

        async def all_of_them(pool):
            order = []
            texts = await asyncio.gather(*(one(pool, prompt, order) for prompt, _ in self.known),
                                         pool.generate_async(self.known[0][0], max_new=64))
            return texts, order

        with self.pool() as pool:
            for _ in range(2):  # each in an event loop of its own
                (*texts, result), order = asyncio.run(all_of_them(pool))
                self.assertEqual(texts, [answer for _, answer in self.known])
                self.assertEqual(result.text, self.known[0][1])
                self.assertGreater(sum(a != b for a, b in zip(order, order[1:])), 3)
            self.assertFalse(pool._routes or pool._records or pool._stepper)

    def test_the_loop_runs_while_a_step_does(self):
        """The draft's function waits, inside a step, for the event loop."""
        async def run(pool):
            ticked.clear()
            task = asyncio.ensure_future(pool.generate_async([1, 2, 3], max_new=6))
            while not task.done():
                ticked.append(None)
                event.set()
                await asyncio.sleep(0)
            return await task

        def propose(rows):
            event.clear()
            self.assertTrue(event.wait(60))
            return [None for _ in rows]

        import threading
        event, ticked = threading.Event(), []
        with specbatch.Model.open(TARGET) as model, \
                specbatch.Pool(model, specbatch.Draft.from_functions(propose),
                               fixed_k=True) as pool:
            self.assertEqual(len(asyncio.run(run(pool)).ids), 6)
            self.assertEqual(asyncio.run(run(pool)).ids,
                             plain(model, specbatch.Request([1, 2, 3], 6)).ids)

    def test_a_stream_that_is_left_or_cancelled_ends_its_requests(self):
        async def leave(pool):
            stream = pool.astream([prompt for prompt, _ in self.known], max_new=64)
            async for _ in stream:
                break
            await stream.aclose()
            task = asyncio.ensure_future(pool.generate_async(self.known[0][0], max_new=64))
            other = asyncio.ensure_future(pool.generate_async(self.known[1][0], max_new=64))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual((await other).text, self.known[1][1])
            self.assertFalse(pool._routes or pool._stepper)
            self.assertEqual(pool.step(), 0)

        with self.pool() as pool:
            asyncio.run(leave(pool))
            self.assertFalse(pool._records)

    def test_a_stream_that_is_cancelled_does_not_wait_for_the_others(self):
        def propose(rows):
            time.sleep(0.01)  # the step is under way while the task that it has woken is cancelled
            return [None for _ in rows]

        async def main(pool):
            async def leave():
                async for _ in pool.astream([[1, 2]], max_new=30, ignore_eos=True):
                    task.cancel()

            task = asyncio.ensure_future(leave())
            seen = 0
            async for _ in pool.astream([[1, 2]], max_new=30, ignore_eos=True):
                seen += not task.done()
            return seen

        with specbatch.Model.open(TARGET) as model, \
                specbatch.Pool(model, specbatch.Draft.from_functions(propose),
                               fixed_k=True) as pool:
            self.assertLess(asyncio.run(main(pool)), 10)

    def test_a_stream_that_is_cancelled_until_it_ends(self):
        """As a cancel scope of anyio does, in which servers run what answers a request."""
        def propose(rows):
            time.sleep(0.01)  # the step is under way all the while
            return [None for _ in rows]

        async def main(pool):
            async def stream():
                async for _ in pool.astream([[1, 2]], max_new=200, ignore_eos=True):
                    started.set()

            started = asyncio.Event()
            task = asyncio.ensure_future(stream())
            await started.wait()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            result = await pool.generate_async([1, 2, 3], max_new=3)
            self.assertEqual(pool.step(), 0)
            self.assertFalse(pool._routes or pool._records or pool._stepper)
            self.assertFalse(pool._events or pool._results)
            return result.ids

        with specbatch.Model.open(TARGET) as model, \
                specbatch.Pool(model, specbatch.Draft.from_functions(propose),
                               fixed_k=True) as pool:
            self.assertEqual(asyncio.run(main(pool)),
                             plain(model, specbatch.Request([1, 2, 3], 3)).ids)

    def test_the_pool_is_closed_by_a_task_that_is_cancelled(self):
        async def work(started):
            with self.pool() as pool:
                async for _ in pool.astream([self.known[0][0]] * 8, max_new=200, ignore_eos=True):
                    started.set()
            return pool

        async def main():
            started = asyncio.Event()
            task = asyncio.ensure_future(work(started))
            await started.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        for _ in range(5):
            asyncio.run(main())

    def test_a_loop_that_ends_in_the_middle(self):
        async def main(pool):
            started = asyncio.Event()

            async def stream():
                async for _ in pool.astream([self.known[0][0]], max_new=200, ignore_eos=True):
                    started.set()
            asyncio.ensure_future(stream())
            await started.wait()

        with self.pool() as pool:
            asyncio.run(main(pool))
            gc.collect()
            self.assertEqual(pool.generate(self.known[0][0], max_new=64).text, self.known[0][1])

    def test_exceptions_and_errors_reach_the_tasks(self):
        class Stop(Exception):
            pass

        def propose(rows):
            gc.collect()
            raise Stop

        async def main(pool):
            results = await asyncio.gather(
                pool.generate_async([1, 2, 3], max_new=6),
                pool.generate_async([1, 2, 4], max_new=6), return_exceptions=True)
            self.assertEqual([type(error) for error in results], [Stop, Stop])
            with self.assertRaises(ValueError):
                await pool.generate_async([10**6], max_new=6)
            return await pool.generate_async([1, 2, 3], max_new=6, draft_len=0)

        with specbatch.Model.open(TARGET) as model, \
                specbatch.Pool(model, specbatch.Draft.from_functions(propose),
                               fixed_k=True) as pool:
            self.assertEqual(len(asyncio.run(main(pool)).ids), 6)

    def test_what_a_mask_raises_reaches_its_own_stream_only(self):
        class Stop(Exception):
            pass

        def broken(rows):
            if any(row.n_answer > 2 for row in rows):
                raise Stop

        async def busy(pool, others):
            """Has its error when it asks for more, and does not hold up others until then."""
            stream = pool.astream([self.known[0][0]] * 2, max_new=64, mask=broken)
            async for _ in stream:
                await others

        async def main(pool):
            good = [pool.generate_async(prompt, max_new=64) for prompt, _ in self.known]
            others = asyncio.ensure_future(asyncio.gather(*good))
            bad = await asyncio.gather(
                *(pool.generate_async(self.known[0][0], max_new=64, mask=broken)
                  for _ in range(2)), busy(pool, others), return_exceptions=True)
            self.assertEqual([type(error) for error in bad], [Stop] * 3)
            return [result.text for result in await others]

        with self.pool() as pool:
            self.assertEqual(asyncio.run(asyncio.wait_for(main(pool), 100)),
                             [answer for _, answer in self.known])
            self.assertFalse(pool._routes or pool._records or pool._stepper)

    def test_a_pool_has_one_loop_at_a_time(self):
        async def main(pool):
            stream = pool.astream([self.known[0][0]], max_new=64)
            async for _ in stream:
                with self.assertRaises(specbatch.BusyError):
                    await asyncio.get_running_loop().run_in_executor(
                        None, lambda: asyncio.run(other(pool)))
                with self.assertRaises(specbatch.InvalidError):
                    next(pool.stream([self.known[0][0]], max_new=4))
                break
            await stream.aclose()

        async def other(pool):
            return await pool.generate_async(self.known[0][0], max_new=4)

        with self.pool() as pool:
            asyncio.run(main(pool))


if __name__ == "__main__":
    unittest.main()

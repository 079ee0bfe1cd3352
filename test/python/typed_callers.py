"""Calls as a user writes them, for a type checker: this file is not run.

test/python/check_python.sh has mypy look at it. What is marked is wrong, and a mark on a line that
mypy finds nothing wrong with is an error too. So options without types would not pass.
"""

from pathlib import Path

import specbatch


def right(model: specbatch.Model) -> str:
    draft = specbatch.Draft.ngram(max_match=3)
    with specbatch.Pool(model, draft, batch=4, draft_len=None, fixed_k=True) as pool:
        pool.submit("a text", max_new=4, stop=["\n"], bias={3: -1.0}, user=pool)
        results = pool.generate_all([[1, 2], "a text"], max_new=4, seed=3)
        for event in pool.stream(["a text"], max_new=4, n=2):
            print(event.id)
        return pool.generate([1, 2, 3], max_new=1).text or str(len(results))


def paths(folder: Path) -> None:
    with specbatch.Model.open(folder / "model", plan_file=folder / "plan") as model:
        specbatch.convert(folder / "model.gguf", folder / "model")
        specbatch.make_table(folder / "table", model, [1, 2, 3])
        with specbatch.Pool(model, specbatch.Draft.table(folder / "table")) as pool:
            pool.save_session([1, 2, 3], folder / "session")
            pool.load_session(folder / "session")


def wrong(model: specbatch.Model, pool: specbatch.Pool) -> None:
    specbatch.Model.open(b"folder")  # type: ignore[arg-type]
    specbatch.Model("folder")  # type: ignore[arg-type]
    specbatch.Pool(model, fixedk=True)  # type: ignore[call-arg]
    specbatch.Pool(model, batch="8")  # type: ignore[arg-type]
    specbatch.Pool.bytes_needed(model, drafts=3)  # type: ignore[call-arg]
    specbatch.Model.open("folder", weight="q4")  # type: ignore[call-arg]
    specbatch.Model.open("folder", weights=4)  # type: ignore[arg-type]
    pool.submit("a text", max_nw=4)  # type: ignore[call-arg]
    pool.submit("a text", max_new="4")  # type: ignore[arg-type]
    pool.stream(["a text"], stops="a")  # type: ignore[call-arg]
    pool.generate_all(["a text"], temperatur=1.0)  # type: ignore[call-arg]


async def wrong_async(pool: specbatch.Pool) -> None:
    await pool.generate_async("a text", top=4)  # type: ignore[call-arg]
    async for _ in pool.astream(["a text"], seed="1"):  # type: ignore[arg-type]
        pass

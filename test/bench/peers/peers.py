#!/usr/bin/env python3
"""Measures this library beside what a user would take instead, in one run.

All systems get the same weights, prompts, number of new tokens and threads.

Every peer first runs plainly at batch 1, in each arithmetic in which it is run. Its other rows are
compared with that row: E is the share of outputs that are equal, P the mean share of tokens before
the first difference, both in percent. A peer is thus held to its own plain output and not to ours.
The column `ours` is E in comparison with our plain output in f32, which shows that everybody runs
the same model.

The peers are programs beside this one; job.py says what they share. A peer that is not installed is
skipped, one that fails is reported, and the others still run. Writes peers.csv, and peers.txt with
facts about the machine.
"""
import argparse
import ctypes
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import job

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = {"ours": "ours.py", "Transformers": "hf.py", "llama.cpp": "llama_server.py",
         "llama-cpp-python": "llama_python.py", "the paper's code": "paper_code.py"}
COLUMNS = ("peer", "version", "method", "batch", "prompts", "max_new", "threads", "E", "P", "ours",
           "tokens", "seconds", "tps", "note")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build/cpu",
                        help="has libspecbatch.so and examples/generate")
    parser.add_argument("--demo", default="examples/demo", help="holds target/ and draft/")
    parser.add_argument("--prompts", default="test/data/prompts/spec_bench_60.jsonl")
    parser.add_argument("--limit", type=int, default=60, help="prompts, drawn evenly from the file")
    parser.add_argument("--max-new", type=int, default=128)
    parser.add_argument("--draft-len", type=int, default=5)
    parser.add_argument("--batches", default="1,4,8", help="1 is always among them")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--paper-code", metavar="DIR", help="a checkout of eBay/spec_dec")
    parser.add_argument("--only", metavar="NAME,...", help="of: " + ", ".join(PEERS))
    parser.add_argument("--out", default="build/paper")
    parser.add_argument("--quick", action="store_true",
                        help="few prompts and tokens: tries the pipeline")
    args = parser.parse_args()
    if args.quick:
        args.limit, args.max_new = 4, 24
    return args


# ---------------------------------------------------------------------------------------- the job

def tokenize(library, model_dir, texts):
    """Returns the ids of each text as this library makes them, and the model's end-of-sequence
    ids."""
    lib = ctypes.CDLL(os.path.abspath(library))
    lib.specbatch_last_error.restype = ctypes.c_char_p
    lib.specbatch_model_eos.restype = ctypes.POINTER(ctypes.c_int32)
    model, n = ctypes.c_void_p(), ctypes.c_size_t()
    if lib.specbatch_model_open(ctypes.byref(model), model_dir.encode(), None):
        sys.exit("peers: " + lib.specbatch_last_error().decode())
    eos = lib.specbatch_model_eos(model, ctypes.byref(n))
    eos, found = eos[:n.value], []
    for text in map(str.encode, texts):
        ids = (ctypes.c_int32 * (len(text) + 2))()
        if lib.specbatch_tokenize(model, text, ctypes.c_size_t(len(text)), 0, ids,
                                  ctypes.c_size_t(len(ids)), ctypes.byref(n)):
            sys.exit("peers: " + lib.specbatch_last_error().decode())
        found.append(ids[:n.value])
    return found, eos


def make_job(args, scratch):
    with open(args.prompts, encoding="utf-8") as file:
        texts = [json.loads(line)["turns"][0] for line in file]
    n = min(args.limit, len(texts))
    texts = [texts[i * len(texts) // n] for i in range(n)]
    target, draft = (os.path.join(args.demo, name) for name in ("target", "draft"))
    ids, eos = tokenize(os.path.join(args.build, "libspecbatch.so"), target, texts)
    return {"target": target, "draft": draft, "eos": eos,
            "prompts": [{"text": text, "ids": row} for text, row in zip(texts, ids)],
            "max_new": args.max_new, "draft_len": args.draft_len, "threads": args.threads,
            "batches": sorted({1, *map(int, args.batches.split(","))}),
            "generate": os.path.join(args.build, "examples/generate"), "gguf": scratch,
            "paper_code": args.paper_code, "rows_file": os.path.join(scratch, "rows")}


def export(work):
    """Writes both models as GGUF files, as they are stored and in f32. Returns None, or the reason
    why that failed."""
    for name in ("target", "draft"):
        for kind in ("stored", "f32"):
            done = subprocess.run(
                [sys.executable, os.path.join(HERE, "to_gguf.py"), work[name],
                 os.path.join(work["gguf"], "%s-%s.gguf" % (name, kind)),
                 *([] if kind == "stored" else [kind])],
                capture_output=True, text=True, check=False)
            if done.returncode:
                return done.stderr.strip().split("\n")[-1]
    return None


# -------------------------------------------------------------------------------------- the peers

def run_peer(program, work, scratch):
    """Runs a peer. Returns its rows, also those from before a failure, its exit code and its last
    line of output."""
    if os.path.exists(work["rows_file"]):
        os.remove(work["rows_file"])
    job_file = os.path.join(scratch, "job.json")
    with open(job_file, "w", encoding="utf-8") as file:
        json.dump(work, file)
    env = dict(os.environ, OMP_NUM_THREADS=str(work["threads"]), HF_HUB_OFFLINE="1")
    # It needs an older version of transformers, which setup_peers.sh installs elsewhere.
    if program == "paper_code.py":
        env["PYTHONPATH"] = os.path.join(sys.prefix, "transformers-4.51.3")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, program), job_file], env=env, stdout=log,
            stderr=log, check=False)
        log.seek(0)
        last = (log.read().strip().split("\n") or [""])[-1]
    rows = []
    if os.path.exists(work["rows_file"]):
        with open(work["rows_file"], encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    return rows, done.returncode, last


def compare(outputs, reference):
    """Compares outputs with a reference and returns E and P, in percent."""
    exact = partial = 0.0
    for got, expected in zip(outputs, reference):
        differs = (i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
        same = next(differs, min(len(got), len(expected)))
        exact += got == expected
        partial += same / len(expected) if expected else float(got == expected)
    return 100 * exact / len(reference), 100 * partial / len(reference)


def plain_of(rows):
    """For each peer among the rows, the plain outputs at batch 1 that its rows are compared
    with."""
    return {
        row["peer"]: row["outputs"] for row in rows
        if row["method"] == "plain" and row["batch"] == 1}


def write_rows(csv, work, rows, ours):
    """`ours`: our plain outputs, or None where we did not run."""
    reference = plain_of(rows)
    for row in rows:
        plain = reference[row["peer"]]
        exact, partial = compare(row["outputs"], plain)
        tokens = sum(map(len, row["outputs"]))
        row.update(prompts=len(plain), max_new=work["max_new"], threads=work["threads"],
                   tokens=tokens, E="%.1f" % exact, P="%.1f" % partial,
                   ours="%.1f" % compare(row["outputs"], ours)[0] if ours else "",
                   tps="%.1f" % (tokens / row["seconds"]), seconds="%.2f" % row["seconds"])
        print(",".join(str(row[name]).replace(",", ";") for name in COLUMNS), file=csv, flush=True)
        print(
            "  {peer:22} {method:13} B {batch}  E {E:>5}  P {P:>5}  as ours {ours:>5}  "
            "{tps:>8} tokens/s  {note}".format(**row), flush=True)


# ------------------------------------------------------------------------------------ the machine

def busy_seconds():
    """The processor time of all programs on this machine: user, nice, system, interrupts and stolen
    time."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in use)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return "%s, %d processors" % (names[0] if names else "unknown processor", os.cpu_count())


def start():
    """What machine_facts needs from the beginning of a run."""
    return time.monotonic(), busy_seconds(), own_seconds()


def machine_facts(before):
    """Facts about the machine and about the run that began `before`."""
    wall = time.monotonic() - before[0]
    others = (busy_seconds() - before[1] - (own_seconds() - before[2])) / wall / os.cpu_count()
    return {"machine": processor(), "date": datetime.datetime.now(datetime.timezone.utc).date(),
            "others": "%.1f" % max(0.0, 100 * others), "minutes": "%.1f" % (wall / 60)}


def write_facts(path, facts, missing):
    with open(path, "w", encoding="utf-8") as file:
        for name, value in facts.items():
            print(name, value, sep="\t", file=file)
        for line in missing:
            print("missing", line, sep="\t", file=file)


def facts_of(args, work, before):
    command = "peers.py --limit %d --max-new %d --batches %s" % (
        args.limit, args.max_new, args.batches) + (" --paper-code DIR" if args.paper_code else "")
    return dict(machine_facts(before), prompts=len(work["prompts"]), max_new=args.max_new,
                draft_len=args.draft_len, threads=args.threads, quick=int(args.quick),
                command=command)


def main():
    args = arguments()
    before = start()
    chosen = args.only.split(",") if args.only else list(PEERS)
    if not set(chosen) <= set(PEERS):
        sys.exit("peers: --only takes " + ", ".join(PEERS))
    os.makedirs(args.out, exist_ok=True)
    facts = os.path.join(args.out, "peers.txt")
    if os.path.exists(facts):  # an earlier run's facts must not stay if this run is cut short
        os.remove(facts)
    missing, failed, ours = [], False, None
    with tempfile.TemporaryDirectory() as scratch, \
            open(os.path.join(args.out, "peers.csv"), "w", encoding="utf-8") as csv:
        work = make_job(args, scratch)
        print(",".join(COLUMNS), file=csv)
        no_gguf = export(work) if any(name.startswith("llama") for name in chosen) else None
        for name in (name for name in PEERS if name in chosen):
            if no_gguf and name.startswith("llama"):
                rows, code, last = [], job.SKIPPED, "no GGUF files (%s)" % no_gguf
            else:
                rows, code, last = run_peer(PEERS[name], work, scratch)
            if rows:
                if name == "ours":
                    ours = plain_of(rows).get("ours (f32)")
                write_rows(csv, work, rows, ours)
            if code:
                missing.append("%s: %s" % (name, last))
                print("%s %s" % ("SKIP" if code == job.SKIPPED else "FAIL", missing[-1]),
                      flush=True)
                failed |= code != job.SKIPPED
        write_facts(facts, facts_of(args, work, before), missing)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

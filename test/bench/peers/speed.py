#!/usr/bin/env python3
"""Measures this library beside llama.cpp and OpenVINO on models of real sizes with random weights,
each of which fills the caches and the memory's bandwidth as a trained one does.

Every system computes the same: a prompt, plain decoding at B = 1 and 8, a verification of K + 1
tokens for each of 8 rows, and speculation. speed_job.py says what the figures are. In each round
every system runs once, one after the other, each in a process of its own; a cell is the median of
the rounds, and a ratio is the median of the rounds' ratios to the first system of its group. So
what changes the machine's speed for a while changes all systems alike. Groups are there because
what has weights of 4 bits is to be compared with another of 4 bits.

A system is NAME:CLASS. The class of `ours` is any that the library has (auto, f32, bf16, ...); what
follows a `+` is a type of weights, either an option of the library (q8, q4) or the file of that
type that llama.cpp runs (q8_0, q4_0). The class of llama.cpp is the type of its file (stored, f32,
f16, q8_0, q4_0), that of OpenVINO is its inference precision (f32, bf16).

Each peer's outputs are compared with its own plain ones at batch 1. E is the share of rows that are
equal in all tokens that both have, in percent. A system that is not installed is skipped, and one
that fails is reported.

Writes peers_speed.csv, the table peers_speed.md, and peers_speed.txt with facts about the machine.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import zlib

import job
import peers
import speed_job

PROGRAMS = {"ours": "speed_ours.py", "llama.cpp": "speed_llama.py", "OpenVINO": "speed_openvino.py"}
SYSTEMS = ("ours:auto,ours:bf16,llama.cpp:stored,OpenVINO:bf16,OpenVINO:f32/"
           "llama.cpp:q8_0,ours:auto+q8_0,ours:bf16+q8_0,ours:bf16+q8,ours:int8+q8_0/"
           "llama.cpp:q4_0,ours:auto+q4_0,ours:bf16+q4_0,ours:bf16+q4,ours:int8+q4_0")
FIGURES = (("prompt", "prompt of %(prompt_len)d"), ("plain 1", "plain, B = 1"),
           ("plain 8", "plain, B = 8"), ("verify 8", "8 x %(width)d over 8 x 1"),
           ("spec 1", "speculative, B = 1"), ("spec 8", "speculative, B = 8"))

QUIET = 5  # percent of the processors that others may have in a run that counts
INTRODUCTION = """\
Random bf16 weights, and the same in 8 and 4 bits, greedy, %(threads)d threads: tokens/s, and in
brackets the multiple of the first line's; medians of %(rounds)d rounds in which the systems of all
tables alternate. q8_0 and q4_0 are the same file for everybody, whose embeddings have 8 bits;
q8 and q4 are made while the bf16 checkpoint is loaded. %(new)d new tokens a row after a prompt of
%(prompt_len)d. "8 x n over 8 x 1": the time of a pass that verifies n tokens for each of 8 rows
over that of a plain pass. Speculative: K = %(draft_len)d, a proposal is right with probability
%(accept)g, unless a note says otherwise. E: percent of rows equal to the same system's plain output
at batch 1; since random weights often repeat a token, the demo pair is the better test of that."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build/cpu", help="has libspecbatch.so")
    parser.add_argument("--models", default="qwen3-0.6b=build/bench/target", help="NAME=DIR,...")
    parser.add_argument("--draft", default="build/bench/draft", help="for those who need a model")
    parser.add_argument("--systems", metavar="NAME:CLASS,.../...", default=SYSTEMS,
                        help="groups; ratios are to the first of a group (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-len", type=int, default=128)
    parser.add_argument("--new", type=int, default=32, help="new tokens of a row")
    parser.add_argument("--draft-len", type=int, default=5)
    parser.add_argument("--accept", type=float, default=0.8, help="how often a proposal is right")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--scratch", default="build/bench/peers", help="holds converted models")
    parser.add_argument("--out", default="build/paper")
    parser.add_argument("--quick", action="store_true", help="one round and few tokens: tries it")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.new = 1, 8
    args.groups = [[tuple(system.split(":", 1)) for system in group.split(",")]
                   for group in args.systems.split("/")]
    args.systems = [system for group in args.groups for system in group]
    args.models = [tuple(model.split("=", 1)) for model in args.models.split(",")]
    for system in args.systems:
        if len(system) != 2 or system[0] not in PROGRAMS:
            parser.error("--systems takes NAME:CLASS, NAME of " + ", ".join(PROGRAMS))
    return args


def config_of(model):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        return file.read()


def form_of(model):
    """What the model's converted forms are called: another model gets another name."""
    text = os.path.abspath(model) + config_of(model)
    return "%s-%08x" % (os.path.basename(os.path.abspath(model)), zlib.crc32(text.encode()))


def make_job(args, model, rows_file):
    vocab = json.loads(config_of(model))["vocab_size"]
    prompts = [[(7919 * (i + 1) + 104729 * (row + 1)) % vocab for i in range(args.prompt_len)]
               for row in range(speed_job.BATCH)]
    return {"model": model, "form": form_of(model), "draft": args.draft,
            "draft_form": form_of(args.draft), "vocab": vocab, "prompts": prompts,
            "prompt_len": args.prompt_len, "new": args.new, "draft_len": args.draft_len,
            "accept": args.accept, "threads": args.threads, "rows_file": rows_file,
            "library": os.path.join(args.build, "libspecbatch.so"),
            "scratch": args.scratch}


def measure(args, work, scratch):
    """Runs all systems in turn, as often as asked. Returns each system's rounds, which are tables
    of rows by figure, and for those that ended early the reason."""
    rounds, missing = {system: [] for system in args.systems}, {}
    for number in range(args.rounds):
        for system in (system for system in args.systems if system not in missing):
            work.update(compute=system[1], is_reference=number == 0)
            rows, code, last = peers.run_peer(PROGRAMS[system[0]], work, scratch)
            rounds[system].append({row["figure"]: row for row in rows})
            print("  round %d, %s (%s): %s" % (number + 1, *system, "  ".join(
                "%s %.4g" % (row["figure"], row["value"]) for row in rows)), flush=True)
            if code:
                missing[system] = "%s: %s" % ("skipped" if code == job.SKIPPED else "failed",
                                              last or "exit code %d" % code)
                print("  %s (%s) %s" % (*system, missing[system]), flush=True)
    return rounds, missing


def equal_share(outputs, reference):
    pairs = [(a, b, min(len(a), len(b))) for a, b in zip(outputs, reference)]
    return 100.0 * sum(a[:n] == b[:n] for a, b, n in pairs) / len(pairs)


def summary(figure, rounds, first):
    """What the rounds of a system say about a figure: the median, its ratio to the first system's,
    the least E, and a note. None if it was not measured. Plain outputs at batch 1 are what E is
    relative to; their note compares them with the first system's."""
    rows = [table[figure] for table in rounds if figure in table]
    if not rows:
        return None
    ratios = [table[figure]["value"] / other[figure]["value"]
              for table, other in zip(rounds, first) if figure in table and figure in other]
    plain = rounds[0]["plain 1"]["outputs"] if "plain 1" in rounds[0] else None
    shares, note = [], rows[-1]["note"]
    if figure != "plain 1":
        shares = [equal_share(row["outputs"], plain) for row in rows if row["outputs"]]
    elif first is not rounds and first and figure in first[0]:
        note = "%.0f %% of the rows as the first system's" % equal_share(
            plain, first[0][figure]["outputs"])
    return {"value": statistics.median(row["value"] for row in rows),
            "ratio": statistics.median(ratios) if ratios else None,
            "E": min(shares) if shares else None, "note": note, "version": rows[-1]["version"],
            "rounds": len(rows)}


# ------------------------------------------------------------------------------------- the table

def cell(figure, found):
    if found is None:
        return "-"
    if figure == "verify 8":
        text = "%.2f" % found["value"]
    else:
        text = "%.1f" % found["value"]
        text += " (%.2f)" % found["ratio"] if found["ratio"] else ""
    return text if found["E"] is None else "%s; E %.0f" % (text, found["E"])


def write_csv(path, results):
    with open(path, "w", encoding="utf-8") as file:
        print("model,system,class,figure,value,ratio,E,rounds,note,version", file=file)
        for model, found, _ in results:
            for (system, figure), row in found.items():
                fields = (model, *system, figure, row["value"], row["ratio"], row["E"],
                          row["rounds"], row["note"], row["version"])
                print(",".join("" if field is None else str(field).replace(",", ";")
                               for field in fields), file=file)


def write_table(file, args, model, found, missing):
    titles = [title % {"prompt_len": args.prompt_len, "width": args.draft_len + 1}
              for _, title in FIGURES]
    print("\n### %s" % model, file=file)
    for group in args.groups:
        print("\n| tokens/s | %s |" % " | ".join(titles), file=file)
        print("|---|%s" % ("---|" * len(FIGURES)), file=file)
        for system in group:
            cells = [cell(figure, found.get((system, figure))) for figure, _ in FIGURES]
            print("| %s (%s) | %s |" % (*system, " | ".join(cells)), file=file)
    print(file=file)
    for system in args.systems:
        rows = [(title, found[system, figure]) for (figure, _), title in zip(FIGURES, titles)
                if (system, figure) in found]
        facts = ["%s: %s" % (title, row["note"]) for title, row in rows if row["note"]]
        facts = [row["version"] for _, row in rows[:1]] + facts
        facts += [missing[system]] if system in missing else []
        print("- %s (%s): %s" % (*system, "; ".join(facts)), file=file)


def write_report(args, results, facts):
    with open(os.path.join(args.out, "peers_speed.md"), "w", encoding="utf-8") as file:
        print(INTRODUCTION % vars(args), file=file)
        if float(facts["others"]) > QUIET or args.quick:
            print("\n**A trial only: other programs had %s %% of the processors meanwhile.**" %
                  facts["others"], file=file)
        for model, found, missing in results:
            write_table(file, args, model, found, missing)
        print("\n*%(machine)s; %(date)s; %(minutes)s minutes; `%(command)s`.*" % facts, file=file)


def main():
    args = arguments()
    before = peers.start()
    os.makedirs(args.out, exist_ok=True)
    results, problems = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name, model in args.models:
            work = make_job(args, model, os.path.join(scratch, "rows"))
            print(name, flush=True)
            rounds, missing = measure(args, work, scratch)
            found = {(system, figure): summary(figure, rounds[system], rounds[group[0]])
                     for group in args.groups for system in group for figure, _ in FIGURES}
            results.append((name, {key: row for key, row in found.items() if row}, missing))
            problems += ["%s, %s (%s): %s" % (name, *system, why)
                         for system, why in missing.items()]
    systems = "/".join(",".join(map(":".join, group)) for group in args.groups)
    command = "speed.py --models %s%s --rounds %d --new %d" % (
        ",".join(name for name, _ in args.models),
        "" if systems == SYSTEMS else " --systems " + systems, args.rounds, args.new)
    facts = dict(peers.machine_facts(before), command=command, quick=int(args.quick),
                 threads=args.threads)
    write_csv(os.path.join(args.out, "peers_speed.csv"), results)
    write_report(args, results, facts)
    peers.write_facts(os.path.join(args.out, "peers_speed.txt"), facts, problems)
    with open(os.path.join(args.out, "peers_speed.md"), encoding="utf-8") as file:
        print(file.read())
    sys.exit(1 if any(" failed: " in problem for problem in problems) else 0)


if __name__ == "__main__":
    main()

"""What the programs of speed.py share: their job, the proposals that they verify, and the figures
that they give back.

A program measures one system on one model, once. It runs in a process of its own, so that only one
system holds a model in memory, and writes one line of JSON for each figure:

    {"figure", "version", "value", "outputs", "note"}

    prompt           tokens/s of a prompt at batch 1, until its first new token
    plain 1, plain 8 tokens/s when each row has its prompt and its first token
    verify 8         the time of a pass of 8 rows with K + 1 tokens each, over one of a token each
    spec 1, spec 8   tokens/s of speculation

The outputs are the new ids of each prompt. Where rows end at different times, the clock stops with
the first of them, so that all rows are under way while it runs.
"""
import json
import os
import subprocess
import sys
import time

import job

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH = 8


def luck(row, at):
    """A number in 0..1 that depends on its arguments alone, by splitmix64's last step."""
    mask = (1 << 64) - 1
    z = (row << 32 | at) * 0x9e3779b97f4a7c15 & mask
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & mask
    z = (z ^ z >> 27) * 0x94d049bb133111eb & mask
    return ((z ^ z >> 31) >> 11) / (1 << 53)


class Job:
    """The fields of the job's file (make_job in speed.py)."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.__dict__.update(json.load(file))

    def propose(self, known, row, at, count, accept):
        """`count` proposals for a row that has `at` new tokens. Each is what plain decoding gave
        with the probability `accept`, and wrong otherwise."""
        ids = (known[row][at:at + count] + [0] * count)[:count]
        return [token if luck(row, at + i) < accept else (token + 1) % self.vocab
                for i, token in enumerate(ids)]

    def give(self, figure, version, value, outputs=None, note=""):
        row = {"figure": figure, "version": version, "value": value, "outputs": outputs,
               "note": note}
        with open(self.rows_file, "a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)

    @staticmethod
    def write_gguf(model, path, *kind):
        """Writes a checkpoint as a GGUF file, unless it is there."""
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            subprocess.run([sys.executable, os.path.join(HERE, "to_gguf.py"), model, path + ".part",
                            *kind], check=True)
            os.rename(path + ".part", path)

    def gguf(self, kind):
        """The path of the checkpoint as a GGUF file of this type, or with the types it has."""
        path = os.path.join(self.scratch, "%s-%s.gguf" % (self.form, kind))
        self.write_gguf(self.model, path, *([] if kind == "stored" else [kind]))
        return path

    def plain_prompts(self):
        """How many prompts run plainly at batch 1: all in the first round, whose outputs are the
        reference of the others, and then one."""
        return BATCH if self.is_reference else 1


def seconds_of(run):
    """Runs run() and returns the seconds and its result."""
    began = time.perf_counter()
    result = run()
    return time.perf_counter() - began, result


def main(program):
    """Runs program(job). The system is skipped if a package is not installed."""
    try:
        program(Job(sys.argv[1]))
    except ImportError as error:
        job.skip("not installed (%s)" % error)

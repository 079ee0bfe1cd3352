"""What the Python tests share: where things are, and small checkpoints.

SPECBATCH_LIBRARY and PYTHONPATH, which check_python.sh sets, say which library and package are
tested. Without them these are the tree's own.
"""

import os
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODELS = os.path.join(ROOT, "test", "data", "models")
EMOJI = os.path.join(MODELS, "emoji")
TARGET = os.path.join(MODELS, "qwen3_untied_f32_sharded")
SMALL = TARGET + ".draft"
DEMO = os.path.join(ROOT, "examples", "demo")

if "PYTHONPATH" not in os.environ:
    sys.path.insert(0, os.path.join(ROOT, "pkgconfig", "python"))
    os.environ["PYTHONPATH"] = sys.path[0]
    os.environ.setdefault("SPECBATCH_LIBRARY",
                          os.path.join(ROOT, "build", "cpu", "libspecbatch.so.1"))

import specbatch  # noqa: E402  (the path comes first)


def known_answers():
    """The emoji checkpoint's prompts and answers."""
    with open(os.path.join(EMOJI, "known.tsv"), encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")) for line in file]


def prompts(n):
    """Prompts of ids for the checkpoints without a tokenizer, of different lengths."""
    return [[(7 * i + 3 * k) % 50 for k in range(3 + 2 * i)] for i in range(n)]


def plain(target, request):
    """A request's result by plain decoding, alone."""
    with specbatch.Pool(target, policy="plain", batch=1, n_threads=1) as pool:
        return pool.generate(request)


def run_python(program, *arguments):
    """A program in an interpreter of its own, which must end well and say nothing on stderr."""
    done = subprocess.run([sys.executable, "-c", program, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                          encoding="utf-8", cwd=os.path.dirname(os.path.abspath(__file__)),
                          check=False)
    return done.returncode, done.stdout, done.stderr

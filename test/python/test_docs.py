"""Every block of docs/python.md runs: Python's one after the other, in one program."""

import os
import re
import subprocess
import sys
import unittest

from support import ROOT, run_python


class TestDocs(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
            self.blocks = re.findall(r"^```(\w+)\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertEqual({kind for kind, _ in self.blocks}, {"python", "sh"})

    def test_blocks_of_python_run(self):
        program = "\n".join(text for kind, text in self.blocks if kind == "python")
        code, out, err = run_python(f"import os, support\nos.chdir({ROOT!r})\n" + program)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("SPECBATCH_E_TOO_LONG", out)

    def test_commands_run(self):
        for kind, text in self.blocks:
            if kind == "sh":
                done = subprocess.run(
                    ["/bin/sh", "-ec", text.replace("python3", sys.executable)], cwd=ROOT,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)


if __name__ == "__main__":
    unittest.main()

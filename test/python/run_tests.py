"""Runs the unittests of this folder, and prints for each the line that test/run.sh counts."""

import os
import sys
import traceback
import unittest


class Result(unittest.TestResult):
    def name(self, test):
        return f"python_{test.id().replace('.', '_')}"

    def show(self, test, error):
        print("".join("     " + line for line in
                      "".join(traceback.format_exception(*error)).splitlines(keepends=True)))
        print(f"FAIL {self.name(test)}", flush=True)

    def addSuccess(self, test):
        print(f"ok   {self.name(test)}", flush=True)

    def addSkip(self, test, reason):
        print(f"SKIP {self.name(test)}: {reason}", flush=True)

    def addError(self, test, err):
        super().addError(test, err)
        self.show(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.show(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.show(subtest, err)


def main():
    suite = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)))
    result = Result()
    suite.run(result)
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())

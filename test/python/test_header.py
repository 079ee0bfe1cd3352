"""pkgconfig/header.py: it knows what the C compiler knows of the header, and refuses the rest."""

import os
import re
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "pkgconfig"))
import header  # noqa: E402  (the path comes first)

HEADER = os.path.join(ROOT, "include", "specbatch.h")


def read_text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class TestHeader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.header = header.read(HEADER)

    def test_layouts_are_those_that_the_c_compiler_checks(self):
        abi = read_text("test", "api", "test_abi.c")
        sizes = {name: int(size) for name, size in re.findall(r"^SIZE\((\w+), (\d+)\);", abi, re.M)}
        offsets = {(struct, field): int(offset) for struct, field, offset
                   in re.findall(r"^AT\((\w+), (\w+), (\d+)\);", abi, re.M)}
        self.assertEqual(sizes, {s["name"]: s["size"] for s in self.header["structs"]})
        self.assertEqual(offsets, {(s["name"], f["name"]): f["offset"]
                                   for s in self.header["structs"] for f in s["fields"]})

    def test_sizes_are_those_of_the_introduction(self):
        table = re.findall(r"(specbatch_\w+) +(\d+)\b", self.header["doc"])
        self.assertEqual({name: int(size) for name, size in table},
                         {s["name"]: s["size"] for s in self.header["structs"]})

    def test_constants_are_those_that_the_c_compiler_checks(self):
        abi = read_text("test", "api", "test_abi.c")
        checked = {name: int(value) for name, value
                   in re.findall(r"^IS\((\w+), (-?\d+)\);", abi, re.M)}
        found = {c["name"]: c["value"] for c in self.header["constants"]}
        versions = {name for name in found if "VERSION" in name}
        self.assertEqual(checked, {n: v for n, v in found.items() if n not in versions})
        self.assertEqual(len(versions), 5)

    def test_flags_are_what_fields_and_arguments_of_flags_take(self):
        flags = {c["name"]: c for c in self.header["constants"] if c["type"] == "uint32_t"}
        for constant in flags.values():
            self.assertEqual(constant["value"] & (constant["value"] - 1), 0)
        said = {f["doc"].split()[0].rstrip(",") for s in self.header["structs"]
                for f in s["fields"] if f["name"].endswith("flags")}
        self.assertEqual(said, {"SPECBATCH_CHAT_NO_THINK", "SPECBATCH_POOL_*", "SPECBATCH_TEXT_*",
                                "SPECBATCH_SAMPLING_*", "SPECBATCH_REQUEST_*"})
        begin = tuple(word.rstrip("*") for word in said if word.endswith("*"))
        chat = {"SPECBATCH_CHAT_NO_THINK", "SPECBATCH_CHAT_NO_ANSWER_PROMPT",
                "SPECBATCH_CHAT_PARSE_SPECIAL"}
        self.assertEqual(set(flags), chat | {c["name"] for c in self.header["constants"]
                                             if c["name"].startswith(begin)})

    def test_functions_are_those_of_the_map_in_its_order(self):
        exported = re.findall(r"^ +(specbatch_\w+);", read_text("src", "specbatch.map"), re.M)
        self.assertEqual(exported, [f["name"] for f in self.header["functions"]])

    def test_nothing_that_begins_a_declaration_is_left_out(self):
        text = read_text("include", "specbatch.h")
        self.assertEqual(len(re.findall(r"^SPECBATCH_API ", text, re.M)),
                         len(self.header["functions"]))
        self.assertEqual(len(re.findall(r"^typedef ", text, re.M)),
                         sum(len(self.header[kind])
                             for kind in ("handles", "callbacks", "structs")))

    def test_comments_belong_to_what_they_stand_at(self):
        of = {item["name"]: item for kind in ("constants", "structs", "functions", "handles")
              for item in self.header[kind]}
        self.assertTrue(of["specbatch_pool_step"]["doc"].startswith("Runs one round:"))
        self.assertEqual(of["specbatch_pool_step"]["section"], "requests")
        self.assertEqual(of["specbatch_pool_interrupt"]["since"], "0.2")
        self.assertEqual(of["specbatch_result_id"]["doc"],
                         "The number that specbatch_pool_submit gave.")
        self.assertTrue(of["specbatch_result_id"]["group"].startswith("What a result holds."))
        self.assertEqual(of["SPECBATCH_E_INVALID"]["group"],
                         "The call was wrong. Nothing has changed.")
        self.assertEqual(of["SPECBATCH_KV_F16"]["doc"],
                         "what is too large for it becomes its largest finite value")
        fields = {f["name"]: f["doc"] for f in of["specbatch_pool_options"]["fields"]}
        self.assertEqual(fields["policy"], "SPECBATCH_POLICY_*")
        self.assertTrue(fields["free"] == "" and fields["alloc"].startswith("Set both"))

    def test_what_is_not_understood_is_refused_with_its_line(self):
        text = read_text("include", "specbatch.h")
        end = "\n#ifdef __cplusplus\n}"
        line = text[:text.rindex(end)].count("\n") + 2
        for more, why in (
                ("static int specbatch_new;", "unknown declaration 'static'"),
                ("SPECBATCH_API long specbatch_new(void);", "unknown type 'long'"),
                ("SPECBATCH_API int32_t specbatch_new(int32_t);", "word was expected"),
                ("SPECBATCH_API int32_t specbatch_step(int32_t n, ...);", "unknown text"),
                ("SPECBATCH_API int32_t specbatch_version(void);", "is there twice"),
                ("#define SPECBATCH_NEW 0x10", "is no number"),
                ("#define SPECBATCH_NEW(x) x", "is no number"),
                ("#pragma pack(1)", "unknown directive"),
                ("#define SPECBATCH_NEW_INIT {0}", "is of no struct"),
                ("enum { SPECBATCH_NEW };", "= was expected"),
                ("enum { SPECBATCH_NEW = 2 << 1 };", "a flag is 1 << n"),
                ("enum { SPECBATCH_NEW = 1 << 0, SPECBATCH_ONE = 2 };", "in one enum"),
                ("typedef union specbatch_new specbatch_new;", "unknown type 'union'"),
                ("typedef struct specbatch_new { int32_t a; size_t b; } specbatch_new;",
                 "padding"),
                ("typedef struct specbatch_new { int32_t a; } specbatch_new;",
                 "no multiple of 8"),
                ("typedef struct specbatch_new { int32_t a[2]; } specbatch_new;",
                 "; was expected")):
            with self.subTest(more), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "specbatch.h")
                changed = text.replace(end, "\n" + more + "\n" + end)
                self.assertNotEqual(changed, text)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(changed)
                with self.assertRaises(header.HeaderError) as error:
                    header.read(path)
                self.assertIn(why, str(error.exception))
                self.assertIn(f":{line}: ", str(error.exception))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tokenizes random strings with the library and with the reference implementations, and compares
the ids.

    compare_tokenizers.py PROGRAM [--strings N] [--patterns N] [--seed N] [FOLDER ...]
    compare_tokenizers.py PROGRAM --golden test/data/tokenizers/pattern.jsonl
    compare_tokenizers.py PROGRAM --golden-steps test/data/tokenizers/steps.jsonl

PROGRAM is the program built of test/text/tokenize.c. Every folder below a FOLDER that has a
tokenizer.json is compared with the PyPI package tokenizers 0.23, one that has only a
tokenizer.model with sentencepiece. Then come pre-tokenizers, the patterns of known models, a
pattern for every construct of Oniguruma's syntax, random patterns, and properties by name on all
code points. The exit status is 1 when anything differs. A text that shows a difference is made as
short as possible before it is printed. With --golden, what the reference makes of these patterns is
written to a file for test/text/test_pattern.c: a line for each pattern and a line for each text;
with --golden-steps, what it makes of the pre-tokenizers, for test/text/test_split.c.
"""
import argparse, json, os, random, re, shutil, subprocess, sys, tempfile

import sentencepiece
import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# The two that the library has by hand come a second time, in a group, which sends them the other
# way.
MODELS = {
    "qwen": QWEN, "qwen, not by hand": "(?:" + QWEN + ")", "llama3, glm4": QWEN.replace(
        r"|\p{N}|", r"|\p{N}{1,3}|"),
    "llama3, not by hand": "(?:" + QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|") + ")", "gpt2": GPT2,
    "gpt2, not by hand": "(?:" + GPT2 + ")", "gpt4o": O200K, "deepseek": DEEPSEEK, "kimi": KIMI,
    "deepseek digits": r"\p{N}{1,3}", "deepseek cjk": "[一-龥぀-ゟ゠-ヿ]+",
    "deepseek old letters": r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ"
    r"Ⴀ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ]+",
    "deepseek old punctuation": r"\s?[!-/:-~！-／：-～‘-‟　-。]+", "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "cl100k, newer": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s", "olmo": r"(?=(\d{3})+(?!\d))",
    "digits from the right": r"\d{1,3}(?=(?:\d{3})*\b)", "falcon": "[0-9][0-9][0-9]",
    "starcoder": r"\p{Nd}"}
CONSTRUCTS = [
    "[a-z&&[^b]]+", "[^a-z&&[^b]]+", r"[\w&&[^\d]&&[^aeiou]]+", "[a[b[c-e]]f]+", "[^a[b-d]]+",
    r"[\p{L}--]", "[a-c-e]+", "[-a]+", "[a-]+", r"[\]\[]+", "[&a]+", "[a&&]", r"\p{Han}+",
    r"\p{Script_Extensions}", r"\p{^L}+", r"\P{^L}+", r"\P{L}+", r"\p{Lu}\p{Ll}*",
    r"\p{Greek}|\p{Cyrillic}+", r"\p{katakana}+|\p{hiragana}+", r"\p{Common}+", r"\p{Emoji}+",
    r"\p{White Space}+", r"[\p{P}\p{S}]+", "^a", "a$", "^", "$", r"\A.", r".\z", r".\Z", r"\Z",
    r"\w+", r"\W+", r"[\w]+", r"[\W]+", r"\b", r"\B", r"\bt\w+", r"\h+", r"\H+", r"\s+", r"\S+",
    r"[^\S]+", r"\d+", r"\D+", ".+", "(?m:.+)", "(?m)a.+", "(?m-m:.)+", r"\N+", r"\O+", r"\R",
    r"a\R+", "[[:punct:]]+", "[[:^punct:]]+", "[[:alpha:][:digit:]]+", "[[:space:]]", "[[:word:]]+",
    "[[:graph:]]+", "[[:print:]]+", "[[:upper:]][[:lower:]]*", "[[:cntrl:]]", "[[:xdigit:]]+",
    "[[:blank:]]+", "[[:ascii:]]+", "[[:alnum:]]+", r"\p{Punct}+", r"\p{Graph}+", "a{2,3}", "a{2}",
    "a{2}?", "a{2,}", "a{,2}b", "a{2,3}?", "a{2,3}+", "a{1,2}{2}", "(?:ab){2,3}", "(?:ab){1,2}?b",
    "a{0}b", "a*+a", "a++b", "a?+a", "a*?b", "a+?", "a??b", "(?>a|ab)c", "(?>a+)b", "(?=a)\\w",
    "(?!a)\\w", "(?<=a)b", "(?<!a)b", "(?<=a|bc)d", r"(?<=\s)\w+", "(?<!a|st)t", "(?<=a{1,3})b",
    "(?i)abc|k", "a(?i)b|c", "(?i:k)+", "(?i:[a-k])+", "(?i:[^a-k])+", "(?i:t(?-i:e)s)", "(?i:ss)",
    "(?i:ß)", "(?i:s)(?i:s)", "(?#c)a", r"\x{41}|\x61|\u0062", r"\t|\n|\r|\f|\v|\a|\e", r"[\b]",
    r"\.\*\+\?\|\(\)\[\]\{\}\^\$\\", "(a)(b)", "(?:a|b|)c", "a|b|", "", "(a|ab)(c|bcd)",
    r"\s+(?!\S)", r"\s*[\r\n]+", r"(?:\r\n|\n)+", "[^\\s]+", "(?:a+b?)+", r"(?:\p{L}\p{M}*)+",
    "\\K", r"\G", r"\X", r"\y", "(a)\\1", "(?<n>a)", r"\g<1>", "(?~ab)", "(?(1)a|b)", "(*FAIL)",
    r"\Qa\E", "(?x) a", "(?W:\\w)", "a**", "(?:a*)*", "(?=a)*", "[]a]", "[a", "(a", "a)", "a{",
    "a{,}", "{", "*", r"\C", r"\cA", r"\1", r"\p{Nothing}", r"\pL", r"[[:nothing:]]", r"[\w-a]",
    "[b-a]", "[a-\\d]", "(?i:é)", "\\x{110000}", r"\xC3\xA9", "(?i)[é]"]

BEHAVIORS = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
# Pre-tokenizers: Punctuation, and Splits by every behavior. The last two of the patterns also match
# nothing. Then those of Gemma and Falcon.
STEPS = [{"type": "Punctuation", "behavior": behavior} for behavior in BEHAVIORS] + [
    {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    for pattern in ({"String": " "}, {"String": "st"}, {"Regex": r"\s|\p{P}"}, {"Regex": "a*"},
                    {"Regex": r"(?=\p{Lu})|,|$"}) for behavior in BEHAVIORS
    for invert in (False, True)] + [
    {"type": "Punctuation"}, {"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Digits",
                                                            "individual_digits": False},
        {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated",
         "invert": False}]}]

PIECES = [
    "a", "b", "c", "ab", "abc", "aab", "s", "st", "ss", "the", "The", "THE", "don't", "I'll",
    "we've", "'S", "'ſ", "K", "'RE", "Å", "0", "1", "12", "123", "1234", "٣", "½", "Ⅷ", "²", "x1",
    " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "\r", "\v", "\f", "\u00a0", "\u3000", "\u2003",
    "\u2028", "\u0085", "\u180e", "\u200b", "\ufeff", ".", ",", "!", "?", "...", "-", "_", "/",
    "//", "\\", "#", "$", "&&", "[", "]", "{", "}", "(", ")", "^", "|", "~", "`", "\"", "'", "’",
    "“", "。", "、", "！", "～", "々", "你", "好", "世界", "龥", "\u31350", "こんに", "カタカナ", "ー", "한국",
    "\u1112\u1161\u11ab", "가ᆧ", "é", "e\u0301", "\u0301", "\u0327\u0323", "\u20e3", "ñ", "ß", "ÿ",
    "İ", "ı", "ǅ", "ʰ", "ª", "ﬁ", "ﬀ", "Ω", "ω", "ж", "Я", "א", "عربي", "हिन्दी", "ไทย", "ა", "Ა",
    "ʼn", "😀", "🫷", "🫨", "👩‍👩‍👧", "🇩🇪", "👍🏽", "☃", "♥️", "∑", "€", "\U0001f130", "Ⓐ", "\x00",
    "\x07", "\x1b", "\x7f", "\ue000", "\ufffd", "\U0010ffff", "\U0002ebf0", "\U00014186",
    "\U00031350", "\U0001fae9", "▁", "▁▁", "Ġ", "<0x41>"]
SPECIAL = [
    "<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "<", "|>",
    "[gMASK]", "<|user|>"]


def put(out, **members):
    """Writes a line of a golden file."""
    out.write(json.dumps(members, separators=(",", ":")) + "\n")


class Library:
    """The program with the library in it; a request and an answer are a line each."""

    def __init__(self, program):
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, what, text):
        self.child.stdin.write(json.dumps({what: text}).encode() + b"\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline().decode("utf-8", "replace")
        if not line:
            sys.exit("compare_tokenizers.py: %s ended on %s %r" % (self.child.args[0], what, text))
        line = line.rstrip("\n")
        if "too many steps" in line:
            return None
        return line if "error" in line or line == "ok" else [int(x) for x in line.split()]


def any_text(rng, more=()):
    kind = rng.random()
    if kind < 0.1:
        return "".join(
            chr(
                rng.choice((rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0xD800),
                            rng.randrange(0xE000, 0x20000)))) for _ in range(rng.randint(1, 12)))
    pool = PIECES if kind < 0.7 or not more else list(more) + SPECIAL + PIECES[:60]
    pool = rng.sample(pool, min(len(pool), rng.choice((2, 4, 8, 40))))
    return "".join(rng.choice(pool) for _ in range(rng.randint(1, rng.choice((3, 8, 24)))))


def shortest(text, differs):
    """The text with all characters taken out that the difference does not need."""
    step = max(1, len(text) // 2)
    while step:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + step:]
            if shorter and differs(shorter):
                text = shorter
            else:
                at += step
        step //= 2
    return text


class Check:
    def __init__(self, options):
        self.ours = Library(options.program)
        self.options = options
        self.failed = self.given_up = 0
        self.folder_of_steps = tempfile.mkdtemp()
        self.made = [self.folder_of_steps]

    def compare(self, name, what, reference, texts, show=3):
        """The number of texts; differences are printed."""
        n = bad = 0
        for text in texts:
            n += 1
            expected, got = reference(text), self.ours.ask(what, text)
            if expected is None or got is None:
                self.given_up += 1
                continue
            if expected == got:
                continue
            bad += 1
            if bad <= show:
                short = shortest(text, lambda t: self.ours.ask(what, t) != reference(t))
                print("     %s: %r: expected %s, got %s" %
                      (name, short, reference(short), self.ours.ask(what, short)))
        self.failed += bad
        return n, bad

    def texts(self, n, seed, more=()):
        rng = random.Random("%s %s" % (self.options.seed, seed))
        return (any_text(rng, more) for _ in range(n))

    def folder(self, folder):
        n, what = self.options.strings, "text"
        if os.path.exists(os.path.join(folder, "merges.txt")):
            folder = self.with_json(folder)
        if os.path.exists(os.path.join(folder, "tokenizer.json")):
            try:
                reference = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
            except Exception as error:
                return print("     %s: the reference refuses it: %s" % (folder, str(error)[:100]))
            encode = lambda text: reference.encode(text, add_special_tokens=False).ids
            more = [t.content for t in reference.get_added_tokens_decoder().values()][:200]
        else:
            reference = sentencepiece.SentencePieceProcessor(
                model_file=os.path.join(folder, "tokenizer.model"))
            encode, more, what = reference.encode, [], "plain"
        loaded = self.ours.ask("load", folder)
        if loaded != "ok":
            return print("     %s: %s" % (folder, loaded))
        print(
            "ok   %s: %d strings, %d differ" %
            ((folder,) + self.compare(folder, what, encode, self.texts(n, folder, more))),
            flush=True)

    def with_json(self, folder):
        """A folder with the tokenizer.json of GPT-2's two files."""
        made = tempfile.mkdtemp()
        self.made.append(made)
        tokenizer = Tokenizer(
            models.BPE.from_file(*(os.path.join(folder, f) for f in ("vocab.json", "merges.txt"))))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.save(os.path.join(made, "tokenizer.json"))
        return made

    def step_of(self, step):
        """The pre-tokenizer of a tokenizer.json that the library has loaded too."""
        path = os.path.join(self.folder_of_steps, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
                       "pre_tokenizer": step}, out)
        if self.ours.ask("load", self.folder_of_steps) != "ok":
            sys.exit("compare_tokenizers.py: the library refuses %s" % json.dumps(step))
        return Tokenizer.from_file(path).pre_tokenizer

    def steps(self):
        n = bad = 0
        every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
        for i, step in enumerate(STEPS):
            reference = self.step_of(step)
            words = lambda text: [len(w.encode()) for w, _ in reference.pre_tokenize_str(text)]
            texts = list(self.texts(self.options.strings // 10, "step %d" % i))
            if step["type"] == "Punctuation":
                texts += ["".join(every[at:at + 4096]) for at in range(0, len(every), 4096)]
            some = self.compare(json.dumps(step), "words", words, texts)
            n, bad = n + some[0], bad + some[1]
        print("ok   pre-tokenizers: %d, %d strings, %d differ" % (len(STEPS), n, bad), flush=True)

    def golden_steps(self, path):
        ever_any = Regex(r"[\p{P}!-/:-@\[-`{-~\x{166D}\x{111C9}]")
        punctuation = "".join(
            w for w, _ in pre_tokenizers.Split(ever_any, "removed", invert=True).pre_tokenize_str(
                "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)))
        with open(path, "w", encoding="ascii") as out:
            for i, step in enumerate(STEPS):
                reference = self.step_of(step)
                put(out, step=json.dumps(step))
                texts = ["the-final--countdown", "--a b  c--", " St, stAa  A,,a "]
                texts += list(self.texts(3, "step %d" % i)) + [punctuation] * (i == 0)
                for text in texts:
                    words = [w for w, _ in reference.pre_tokenize_str(text)]
                    put(out, text=text, words=words)

    def pattern(self, pattern, texts):
        """(strings, differences), or the words of a refusal."""
        answer = self.ours.ask("pattern", pattern)
        if answer != "ok":
            return answer
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception:  # no file has it, then
            return "the reference refuses it, the library does not"

        def words(text):
            try:
                return [len(w.encode()) for w, _ in split.pre_tokenize_str(text) if w]
            except BaseException as error:  # Oniguruma's own limit of backtracking is a panic
                if "Onig" not in str(error):
                    raise

        return self.compare(repr(pattern), "split", words, texts)

    def golden(self, path):
        with open(path, "w", encoding="ascii") as out:
            for pattern in list(MODELS.values()) + CONSTRUCTS:
                n = 30 if pattern in MODELS.values() else 8
                if self.ours.ask("pattern", pattern) != "ok":
                    put(out, refused=pattern)
                    continue
                put(out, pattern=pattern)
                split = pre_tokenizers.Split(Regex(pattern), "isolated")
                for text in self.texts(n, pattern):
                    words = [w for w, _ in split.pre_tokenize_str(text) if w]
                    put(out, text=text, words=words)

    def patterns(self):
        for name, pattern in MODELS.items():
            answer = self.pattern(pattern, self.texts(self.options.strings, name))
            self.failed += isinstance(answer, str)
            print(
                "ok   pattern of %s: %s" %
                (name, answer if isinstance(answer, str) else "%d strings, %d differ" % answer),
                flush=True)
        refused = []
        n = bad = 0
        for pattern in CONSTRUCTS:
            answer = self.pattern(pattern, self.texts(max(300, self.options.strings // 20),
                                                      pattern))
            if isinstance(answer, str):
                refused.append("%-22s %s" % (pattern, answer))
            else:
                n, bad = n + answer[0], bad + answer[1]
        print("ok   constructs: %d, %d strings, %d differ; refused:" %
              (len(CONSTRUCTS) - len(refused), n, bad))
        print("".join("       %s\n" % line for line in refused), end="", flush=True)

    def properties(self):
        """Properties on all code points: one name of each set in our tables that the reference
        knows, too."""
        tables = open(os.path.join(os.path.dirname(__file__),
                                   "../../src/text/unicode_tables.c")).read()
        sets = {}
        for name, number in re.findall(r'\{\s*"(\w+)",\s*(\d+)\s*\}', tables):
            sets.setdefault(number, []).append(name)
        every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
        rng = random.Random(self.options.seed)
        chosen = list(sets.values()) if self.options.patterns >= 20000 else rng.sample(
            list(sets.values()), 10)
        n = bad = 0
        for names in chosen:
            for name in names:
                try:
                    split = pre_tokenizers.Split(Regex(r"\p{%s}+" % name), "isolated")
                except Exception:
                    continue
                expected = [len(w.encode()) for w, _ in split.pre_tokenize_str(every)]
                same = (self.ours.ask("pattern", r"\p{%s}+" % name) == "ok" and
                        self.ours.ask("split", every) == expected)
                n, bad = n + 1, bad + (not same)
                if not same:
                    print("     \\p{%s} is another set" % name)
                break
        self.failed += bad
        print("ok   properties on all code points: %d of %d, %d differ" % (n, len(sets), bad),
              flush=True)

    def random_patterns(self):
        rng = random.Random(self.options.seed)
        accepted = n = bad = 0
        for i in range(self.options.patterns):
            answer = self.pattern(any_pattern(rng, 3), self.texts(60, i))
            if not isinstance(answer, str):
                accepted, n, bad = accepted + 1, n + answer[0], bad + answer[1]
        print("ok   random patterns: %d of %d accepted, %d strings, %d differ" %
              (accepted, self.options.patterns, n, bad))


def any_class(rng, depth):
    items = [
        "a", "b-d", "s", "'", r"\p{L}", r"\p{N}", r"\s", r"\w", r"\d", "[:alpha:]", "[:punct:]",
        r"\r\n", r"\p{Han}", r"\P{Ll}", "é", "0-9", r"\S", "A-Z", " ", "_", r"\-"]
    parts = []
    for _ in range(rng.randint(1, 3)):
        parts.append(
            any_class(rng, depth - 1) if depth > 0 and rng.random() < 0.15 else rng.choice(items))
        if rng.random() < 0.1:
            parts.append("&&")
    return "[%s%s]" % (rng.choice(("", "", "^")), "".join(parts))


def any_atom(rng, depth):
    kind = rng.random()
    if depth > 0 and kind < 0.25:
        begin = rng.choice(
            ("(?:", "(", "(?>", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?m:", "(?:", "("))
        return begin + any_pattern(rng, depth - 1) + ")"
    if kind < 0.45:
        return any_class(rng, 2)
    if kind < 0.7:
        return rng.choice((r"\p{L}", r"\p{N}", r"\s", r"\S", r"\w", r"\d", ".", r"\p{Lu}", r"\p{M}",
                           r"\W", r"\h", r"\R", "[a-z]"))
    if kind < 0.78:
        return rng.choice(("^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"))
    return rng.choice(("a", "b", "c", "s", "t", " ", "'", "1", "\n", "A", "é", "k"))


def any_pattern(rng, depth):
    branches = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        atoms = []
        for _ in range(rng.randint(0 if depth < 3 else 1, 3)):
            many = rng.choice(("", "", "", "?", "*", "+", "+", "*?", "+?", "??", "++", "*+", "?+",
                               "{2}", "{1,3}", "{2,}", "{,2}", "{1,2}?", "{2}?", "{1,2}+"))
            atoms.append(any_atom(rng, depth) + many)
        branches.append("".join(atoms))
    return "|".join(branches)


def folders(roots):
    for root in roots:
        for path, _, files in sorted(os.walk(root)):
            if {"tokenizer.json", "tokenizer.model", "merges.txt"} & set(files):
                yield path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--strings", type=int, default=30000)
    parser.add_argument("--patterns", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden")
    parser.add_argument("--golden-steps")
    options = parser.parse_intermixed_args()
    if not tokenizers.__version__.startswith("0.23."):
        sys.exit("compare_tokenizers.py: tokenizers %s, not 0.23" % tokenizers.__version__)
    check = Check(options)
    if options.golden:
        return check.golden(options.golden)
    if options.golden_steps:
        return check.golden_steps(options.golden_steps)
    for folder in folders(options.folders):
        check.folder(folder)
    check.steps()
    for made in check.made:
        shutil.rmtree(made)
    check.patterns()
    check.properties()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the panics' traces
    check.random_patterns()
    print(
        "%s compare_tokenizers: %d differences (%d strings left out, where one or the other gave "
        "up backtracking)"
        % ("FAIL" if check.failed else "ok  ", check.failed, check.given_up))
    sys.exit(check.failed > 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the small tokenizers of this folder and what the reference implementations say about them.

    pip install tokenizers==0.21.4 sentencepiece && python3 make.py CORPUS.txt

Every folder gets a tokenizer.json (or tokenizer.model) and golden.jsonl: a line {"text", "ids",
"plain", "bare", "decoded", "kept"} for each text (plain: special tokens as text; bare: without the
template), and a line {"ids", "decoded", "kept"} for each random sequence of ids. "plain" and "bare"
are 0 where they equal "ids", and so is "kept" where it equals "decoded". `make check` needs no
Python.

(From 0.22 on, tokenizers spells an added token that is `normalized` in its normalised form when it
decodes, and then no longer knows it as special: <s> stays in the text. Here it is the file's
spelling, as it was up to 0.21.)
"""
import json, os, random, re, sys, unicodedata
import sentencepiece
from tokenizers import (Tokenizer, AddedToken, models, normalizers, pre_tokenizers, decoders,
                        trainers, Regex)

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
DEEPSEEK = (r"[!-/:-~]?[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")
here = os.path.dirname(os.path.abspath(__file__))
corpus = open(sys.argv[1], encoding="utf-8").read().splitlines()[:300]
corpus += ["naïve café über straße ½ 你好 世界 こんにちは 😀 don't we'll I'VE 1234567 {x: [1]}; //\t\n"] * 5
rng = random.Random(7)

TEXTS = [
    "", " ", "  ", "a", "Hello world", " Hello  world   again ",
    "don't I'll we've THEY'RE it's' 'S 'ſ", "\n", "\r\n\r\n x", "\t\t x \n y", "a \n b\n\n\nc", "1",
    "12 123 1234 12345678", "x=1;y[2]=3.14!!\n\n", "naïve café",
    "nai\u0308ve cafe\u0301 \u1e9b\u0323", "e\u0327\u0301\u0323", "\u0344\u0387\u212b",
    "한국어 \u1112\u1161\u11ab", "你好,世界!", "😀 👩‍👩‍👧 🇩🇪", "\u00a0x\u2003y\u3000z\u180ew",
    "a\u0085b\u2028c", "½ ² Ⅷ ٣٤", "\u0301start", "▁a ▁ b", "<0x41> <0xE4>", "<s>hi</s>",
    " <s> hi </s> ", "<s><s>", "a<x>b <x> c", "<x>", " <x>", "<x><y>", "<x><y>z", "a<x><y>zz",
    "a</s>b </s>c", "it'ſx IT'SX", "don't  \n  stop  ", "a   ", "word wordy sword word.",
    "[L]  [L]x [R]  x [R][L] [R] [L]", "<|im_start|>user\nhi<|im_end|>\n", "<think>\nno\n</think>",
    "[gMASK]<sop><|user|>\nhello", "Ünknøwn ☃ ჰ", "x☃☃y", "\x00a\x01", "a" * 300, "ab " * 100,
    " " * 50, "\n" * 20, "The quick brown fox jumps over the lazy dog. " * 3,
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "\U0001f1e6\ufe0f\u200d\u200c", "\uffff \ufffd \U0010ffff", "'", "''s", "'rex 'Re 'vE",
    "x's x'll x'd", "_a-b_c", "²³", "a\u0300" * 5]

def random_texts(n):
    pool = "aeiost '\n\r\t12.,ſé\u0301\u0327▁ " + "你😀½\u00a0\u3000☃<>sx"
    return ["".join(rng.choice(pool) for _ in range(rng.randint(1, 24))) for _ in range(n)]

ALL = TEXTS + random_texts(60)
FORMS = []

def added(content, special=True, **flags):
    return AddedToken(content, special=special, normalized=flags.pop("normalized", False), **flags)

def train(tok, size, specials=(), bytes_alphabet=False, byte_tokens=False):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if bytes_alphabet else []
    names = list(specials) + ([f"<0x{b:02X}>" for b in range(256)] if byte_tokens else [])
    tok.train_from_iterator(
        corpus,
        trainers.BpeTrainer(vocab_size=size, special_tokens=names, initial_alphabet=alphabet,
                            show_progress=False))

def put(out, **members):
    """Writes a line, without blanks, of which there would be many."""
    for name, other in (("plain", "ids"), ("bare", "ids"), ("kept", "decoded")):
        if name in members and members[name] == members[other]:
            members[name] = 0
    out.write(json.dumps(members, separators=(",", ":")) + "\n")

def golden(name, tok, edit=None):
    folder = os.path.join(here, name); os.makedirs(folder, exist_ok=True)
    doc = json.loads(tok.to_str())
    if edit: edit(doc)
    path = os.path.join(folder, "tokenizer.json")
    json.dump(doc, open(path, "w", encoding="utf-8"), ensure_ascii=False, separators=(",", ":"))
    tok = Tokenizer.from_file(path)
    n = max(tok.get_vocab().values()) + 1
    with open(os.path.join(folder, "golden.jsonl"), "w", encoding="utf-8") as out:
        for text in FORMS + ALL:
            tok.encode_special_tokens = True
            plain = tok.encode(text).ids
            tok.encode_special_tokens = False
            ids = tok.encode(text).ids
            put(out, text=text, ids=ids, plain=plain,
                bare=tok.encode(text, add_special_tokens=False).ids, decoded=tok.decode(ids),
                kept=tok.decode(ids, skip_special_tokens=False))
        for i in range(60):
            low = range(min(n, 330)) if i % 2 else range(n)
            ids = [rng.choice(low)
                   for _ in range(rng.randint(1, 12))] + ([n + 7] if i % 5 == 0 else [])
            put(out, ids=ids, decoded=tok.decode(ids),
                kept=tok.decode(ids, skip_special_tokens=False))

def byte_level(pattern, digits_template=None, norm=None):
    tok = Tokenizer(models.BPE())
    if norm: tok.normalizer = norm
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    train(tok, 400, bytes_alphabet=True)
    return tok

def qwen():
    tok = byte_level(QWEN, norm=normalizers.NFC())
    tok.add_tokens([
        added("<|endoftext|>"),
        added("<|im_start|>"),
        added("<|im_end|>"),
        added("<think>", special=False),
        added("</think>", special=False)])
    golden("qwen", tok)

def normal_forms():
    """Texts whose forms differ; the last ones have characters that came after Unicode 9, which the
    reference leaves as they are."""
    FORMS[:] = [
        "\ufb01ne \u2460\u2461 \u33a2 \uff28\uff45\uff4c\uff4c\uff4f\u3000\uff76\uff9e "
        "\u00bd \u2122 \ufdfa",
        "q\u0307\u0323 \u1e0b\u0323 \u00e5 \u212b \ufb2c",
        "\uac00\u11a7 \uac00\u11a8 \u1100\u1161\u11a8 \u3131\u314f",
        "\u0958\u09c7\u09be \u0344 \u1fb7", "\U0001d400\U0002f800 \u2126 \u01c4\u017f\u0323\u0307",
        "\u08f7\u1ac4 \u0ec8\u0eba \u32ff",
        "\U00011935\U00011930 \U00011938 \U000105c9 e\u0301\u1aca\u0323"]
    for name, norm in (("nfd", normalizers.NFD()), ("nfkc", normalizers.NFKC()),
                       ("nfkd", normalizers.Sequence([normalizers.NFC(),
                                                      normalizers.NFKD()]))):
        golden(name, byte_level(QWEN, norm=norm))
    FORMS.clear()

def glm():
    tok = byte_level(CL100K)
    tok.add_tokens([
        added("<|endoftext|>"),
        added("[gMASK]"),
        added("<sop>"),
        added("<|user|>"),
        added("<|assistant|>")])
    ids = {t: tok.token_to_id(t) for t in ("[gMASK]", "<sop>")}
    def edit(doc):
        doc["model"]["ignore_merges"] = True
        doc["model"]["merges"] = doc["model"]["merges"][: len(doc["model"]["merges"]) * 3 // 4]
        doc["post_processor"] = dict(
            type="Sequence", processors=[
                dict(type="ByteLevel", add_prefix_space=True, trim_offsets=False, use_regex=True),
                dict(
                    type="TemplateProcessing", single=[
                        dict(SpecialToken=dict(id="[gMASK]", type_id=0)),
                        dict(SpecialToken=dict(id="<sop>", type_id=0)),
                        dict(Sequence=dict(id="A", type_id=0))], pair=[
                            dict(Sequence=dict(id="A", type_id=0)),
                            dict(Sequence=dict(id="B", type_id=1))],
                    special_tokens={t: dict(id=t, ids=[i], tokens=[t]) for t, i in ids.items()})])
    golden("glm", tok, edit)

def llama(name, normalized, with_bytes=True, fuse=True, cross=False):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=with_bytes))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if not cross: tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    train(tok, 600 if with_bytes else 300, ["<unk>", "<s>", "</s>"], byte_tokens=with_bytes)
    tok.pre_tokenizer = None
    tok.decoder = decoders.Sequence([
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    def edit(doc):
        doc["added_tokens"] = [t for t in doc["added_tokens"] if t["id"] < 3]
        for t in doc["added_tokens"]: t["normalized"] = normalized
        doc["added_tokens"].append(
            dict(id=len(doc["model"]["vocab"]), content="☃", single_word=False, lstrip=False,
                 rstrip=False, normalized=False, special=True))
        doc["post_processor"] = dict(
            type="TemplateProcessing", single=[
                dict(SpecialToken=dict(id="<s>", type_id=0)),
                dict(Sequence=dict(id="A", type_id=0)),
                dict(SpecialToken=dict(id="</s>", type_id=0))],
            pair=[dict(Sequence=dict(id="A", type_id=0)),
                  dict(Sequence=dict(id="B", type_id=1))], special_tokens={
                      "<s>": dict(id="<s>", ids=[1], tokens=["<s>"]),
                      "</s>": dict(id="</s>", ids=[2], tokens=["</s>"])})
        if not with_bytes: doc["decoder"] = None
        doc["truncation"] = dict(direction="Right", max_length=100000, strategy="LongestFirst",
                                 stride=0)
    golden(name, tok, edit)

def metaspace(name, scheme, split):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    train(tok, 560, ["<unk>", "<s>", "</s>"], byte_tokens=True)
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    tok.decoder = decoders.Sequence([
        decoders.ByteFallback(),
        decoders.Metaspace(prepend_scheme=scheme, split=split)]) if split else decoders.Metaspace(
            prepend_scheme=scheme, split=split)
    def edit(doc):
        doc["added_tokens"] = [t for t in doc["added_tokens"] if t["id"] < 3]
        doc["added_tokens"][2]["normalized"] = True
    golden(name, tok, edit)

def gpt2():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    train(tok, 400, bytes_alphabet=True)
    tok.add_tokens([added("<|endoftext|>")])
    def edit(doc):
        doc["model"].update(unk_token="", continuing_subword_prefix="", end_of_word_suffix="",
                            merges=[" ".join(m) for m in doc["model"]["merges"]])
    golden("gpt2", tok, edit)

def regex():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥ぁ-ゖァ-ヺ]+"), "isolated"),
        pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"),
        pre_tokenizers.Split("//", "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    train(tok, 380, bytes_alphabet=True)
    golden("regex", tok)

def added_tokens():
    tok = byte_level(QWEN, norm=normalizers.NFC())
    tok.add_tokens([
        added("<x>"),
        added("<y>", special=False),
        added("<x><y>z"),
        added("word", single_word=True, special=False),
        added("[L]", lstrip=True),
        added("[R]", rstrip=True, special=False),
        added("<s>", lstrip=True, rstrip=True),
        added("caf\u00e9", special=False, normalized=True),
        added("nai\u0308ve", special=False, normalized=True),
        added("\u4f60", special=False)])
    golden("added", tok)

def splits():
    """split.jsonl: {"pattern"}, then {"text", "words"} for each text, because few merges of a small
    vocabulary show where words end."""
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    with open(os.path.join(here, "split.jsonl"), "w", encoding="utf-8") as out:
        for pattern in (QWEN, CL100K, gpt2, DEEPSEEK):
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
            put(out, pattern=pattern)
            for text in ALL + random_texts(120):
                if text:
                    put(out, text=text, words=[w for w, _ in split.pre_tokenize_str(text)])

def spm(name="spm", texts=(), **options):
    folder = os.path.join(here, name); os.makedirs(folder, exist_ok=True)
    base = os.path.join(folder, "tokenizer")
    settings = dict(vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
                    remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=0.999,
                    split_digits=True)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_prefix=base,
                                             model_type="bpe", minloglevel=2,
                                             **dict(settings, **options))
    os.remove(base + ".vocab")
    sp = sentencepiece.SentencePieceProcessor(model_file=base + ".model")
    n = sp.get_piece_size()
    special = re.compile("(" + "|".join(
        re.escape(sp.id_to_piece(i))
        for i in range(n) if sp.is_control(i) or sp.is_unknown(i)) + ")")
    def encode(text):
        """Special pieces in the text are themselves, and what is between them is encoded alone, as
        Hugging Face's conversion does."""
        parts = [[sp.piece_to_id(part)] if i % 2 else sp.encode(part)
                 for i, part in enumerate(special.split(text))]
        return sum(parts, [])
    with open(os.path.join(folder, "golden.jsonl"), "w", encoding="utf-8") as out:
        for text in [*texts, *ALL]:
            bare = encode(text); ids = [sp.bos_id()] + bare
            put(out, text=text, ids=ids, plain=[sp.bos_id()] + sp.encode(text), bare=bare,
                decoded=sp.decode(ids))
        for i in range(120):
            ids = [rng.choice(range(270 if i % 2 else n)) for _ in range(rng.randint(1, 12))]
            put(out, ids=ids, decoded=sp.decode(ids))

def spm_more():
    """User-defined pieces as in Mistral's and Gemma's files, and normalisers that do more than
    escape spaces."""
    user = [
        "\u2581\u2581", "\u2581\u2581\u2581\u2581", "\n", "\n\n", "ab", "abc", "bcd", "the",
        "\u2581the\u2581", "<|x|>", "<|x|>y", "12", "\u00e9", "\u2460", "e\u0301", "\u3000x"]
    texts = [
        "abcd xabcdx aabab", "the  the the   the\n\n\nthe", "<|x|>y<|x|>z<<|x|>", "1 12 121 2122",
        "caf\u00e9 cafe\u0301 e\u0301\u0301", "\u2460\u2461 a\u2460", "[INST] the [/INST]ab</s>ab",
        "     the     ", "\u2581\u2581\u2581the\u2581the ", " \n ab \n",
        "\u3000x\u3000\u3000y\u3000", "\u00a0 \u00a0x \u00a0\u00a0 ",
        "\ufb01ne \u2126 \uff21\uff22\uff23 \u33a2", "  ", "\u3000", " \u2581 "]
    control = ["[INST]", "[/INST]"]
    spm("spm_user", texts, user_defined_symbols=user, control_symbols=control)
    spm("spm_squeeze", texts, user_defined_symbols=user, remove_extra_whitespaces=True,
        add_dummy_prefix=False)
    rules = os.path.join(here, "rules.tsv")
    with open(rules, "w", encoding="utf-8") as out:
        for a, b in (("\u3000", " "), ("\u00a0", " "), ("\t", " "), ("\u200b", ""),
                     ("\ufb01", "fi"), ("\u33a2", "\u00e9m2"), ("e\u0301", "\u00e9"), ("E", "e"),
                     ("\u2126", "\u03a9"), ("\u2460", "1"), ("\u2461", " 2 "), ("\uff21", "A"),
                     ("\uff21\uff22\uff23", "abc"), ("abc", "ABC")):
            out.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c)
                                                                           for c in b) + "\n")
    spm("spm_rules", texts, user_defined_symbols=user, remove_extra_whitespaces=True,
        normalization_rule_name="user_defined", normalization_rule_tsv=rules)
    os.remove(rules)

def edges():
    """edges.jsonl: {"tokenizer"}, a whole file as a string, then golden lines for it: where two
    rules of the reference meet."""
    def tiny(vocab, merges=(), tokens=(), **parts):
        doc = dict(version="1.0", truncation=None, padding=None, added_tokens=list(tokens),
                   normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None)
        doc["model"] = dict(type="BPE", dropout=None, unk_token=None,
                            continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                            byte_fallback=False, ignore_merges=False, vocab={
                                piece: i for i, piece in enumerate(vocab)}, merges=list(merges))
        doc.update(parts)
        return doc
    def token(i, content, **flags):
        return dict(
            dict(id=i, content=content, single_word=False, lstrip=False, rstrip=False,
                 normalized=False, special=True), **flags)
    byte_names = ["<0x%02X>" % b for b in range(256)]
    replace = lambda a, b: dict(type="Replace", pattern=dict(String=a), content=b)
    sequence = lambda *steps: dict(type="Sequence", decoders=list(steps))
    with open(os.path.join(here, "edges.jsonl"), "w", encoding="utf-8") as out:
        def emit(doc, texts=(), ids=()):
            text = json.dumps(doc, separators=(",", ":")); tok = Tokenizer.from_str(text)
            put(out, tokenizer=text)
            for t in texts: put(out, text=t, ids=tok.encode(t).ids)
            for i in ids: put(out, ids=i, decoded=tok.decode(i))
        # Steps behind a run of bytes, while the token that ends it is on its way.
        strip = dict(type="Strip", content=" ", start=1, stop=0)
        emit(
            tiny(
                byte_names + ["d", "▁hello"], decoder=sequence(replace("▁", " "),
                                                               dict(type="ByteFallback"), strip,
                                                               dict(type="Fuse"))),
            ids=[[46, 256], [65, 257], [228, 189, 160, 257], [65] * 300 + [257], [65, 257, 257, 66],
                 [228, 257, 228, 189, 160], [32, 257], [32, 32]])
        emit(
            tiny(
                byte_names + ["SECRET"], decoder=sequence(replace("Q", "q"),
                                                          dict(type="ByteFallback"),
                                                          replace("A", "A" * 60))),
            ids=[[65, 256], [65] * 50 + [256, 65]])
        # Added tokens that take space from each other.
        abc = ["a", "b", " ", "\n"]
        emit(tiny(abc, tokens=[token(3, "\n", lstrip=True, rstrip=True)]),
             ["\n\n", "a \n \n b", "\n", " \n"])
        emit(tiny(abc, tokens=[token(3, "\n", lstrip=True),
                               token(4, "<m>", rstrip=True)]), ["<m>\n", "<m> \na", "a \n<m>\n"])
        emit(tiny(abc, tokens=[token(3, "\n"), token(4, "<m>", rstrip=True)]),
             ["<m>\n\na", "<m>\n a", "<m> \n \n a"])
        emit(tiny(abc, tokens=[token(3, "\n", rstrip=True),
                               token(4, "<m>", rstrip=True)]),
             ["<m>\n \na", "\n\n\na", "<m> \n \n a \n"])
        # Tokens that begin alike, and tokens that are alike once they are normalised.
        names = ["<", "<s", "<s>", "<s>x", "<sa>", "<t>", "a<", "é", "éa"]
        emit(tiny(abc, tokens=[token(4 + i, name) for i, name in enumerate(names)]),
             ["<", "<<s", "<s>", "<s>xa", "<s<sa>", "<sa", "a<a<s>", "éaéb", "b<t><", "<t"])
        for first, second in ((True, False), (False, True), (False, False)):
            emit(
                tiny(
                    abc, tokens=[
                        token(4, "a_", normalized=True, special=first),
                        token(5, "ab", normalized=True, special=second)],
                    normalizer=replace("_", "b")), ["ab", "a_", "a_aba"])
        # A character without a piece vanishes, and the marks around it merge.
        emit(tiny(["▁", "a", "▁▁"], [["▁", "▁"]]), ["▁X▁", "a▁X▁a", "▁a▁▁"])
        emit(
            tiny(["▁", "a", "▁▁", "<0x58>"], [["▁", "▁"]], model=dict(
                tiny(["▁", "a", "▁▁", "<0x58>"], [["▁", "▁"]])["model"], byte_fallback=True)),
            ["▁X▁", "▁Y▁"])

qwen(); glm(); gpt2(); regex(); added_tokens(); spm(); spm_more(); splits(); edges()
llama("llama", True)
llama("llama_unk", False, with_bytes=False, fuse=False)
llama("llama_cross", False, cross=True)
metaspace("metaspace_first", "first", False); metaspace("metaspace_always", "always", True)
normal_forms()

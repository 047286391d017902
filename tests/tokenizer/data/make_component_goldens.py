#!/usr/bin/env python3
"""Goldens for single components of tokenizer.json. Oracle: the `tokenizers` library; normal forms also from unicodedata.

usage: make_component_goldens.py > component_goldens.json
"""
import json
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXTS = [
    "", " ", "a", "Hello, world!", "  two  blanks ", "the-final--countdown", "--a--", "don't I'LL it'\u017f 'S", "a1b22c333 4444", "x\t\ny\r\n\r\n z",
    "na\u00efve caf\u00e9 e\u0301 A\u030a", "\u4f60\u597d\uff0c\u4e16\u754c \u3042\u30a2", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0662\u0663", "\U0001f600 \U0001fa77\U0001f1e9\U0001f1ea", "\u2581a\u2581\u2581b \u2581",
    "a\u180eb\u00a0c\u3000d\u200be\u2028f", "(x){y}[z]<t> $5 50% a_b ~", "\u0130stanbul \u00df STRASSE \u01c5", "\ufb01 \u2460 \u00bd \uff21 \uac00\u1112\u1161\u11ab", "\u2163 \u00b2 \u0967 \U0001d7d8 \u10d40",
    "ABCdef GHi jKL", "\u24b6 \u203f \u0301x", "0x1F 0b10", "foo.bar(baz) // qux", "\u00c0 la carte\n", "12345678 1234567 123456",
]
REGEXES = [
    LLAMA3, r"\s", r"\S+", r"\w+", r"\W", r"\d+", r"\D+", r"\h+", r"[\s\d]+", r"[^\S\n]+", r"[\W_]+", r"\b", r"\B", r"^", r"$", r"^\w", r"[a-z&&[^aeiou]]+", r"[\p{L}&&[^\p{Han}]]+",
    r"[[a-c][x-z]]+", r"[^[a-c]\s]+", r"[a[^b]]", r"\p{Han}+", r"\p{Alpha}+", r"\p{^L}+", r"\P{L}+", r"\p{Letter}+", r"\p{Space}+", r"\p{Punct}", r"\p{Lowercase_Letter}", r"[[:alpha:]]+", r"[[:punct:]]+",
    r"(?m:a.b)", r"(?i)CAF\u00c9", r"a++b", r"[^\r\n\p{L}\p{N}]?+\p{L}+", r"\p{N}{,2}", r"x{2}|l{2}", r"(?=(\d{3})+(?!\d))", r"\d{1,3}(?=(?:\d{3})*\b)", r"(?<=a)b|(?<!a)c", r"(?>\s+)x", r"(\w)\1", r"\u4f60", r"\x41",
    r"[\x{4E00}-\x{9FA5}]+", r"[]a]", r"[a\]]", r"{", r"a|", r"\p{Lu}\p{Ll}*", r"[\p{So}\p{Sc}]", r".", r"\.", r"[.\-]", "\U0001fa77", r"(?x: a b )", r"\n|\r\n",
]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def pre_tokenizer_jsons():
    for regex in REGEXES:
        yield {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    for behavior in BEHAVIORS:
        for pattern in ({"String": "-"}, {"Regex": r"\s+|-"}):
            for invert in (False, True):
                yield {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
        yield {"type": "Punctuation", "behavior": behavior}
    for prefix in (False, True):
        for use_regex in (False, True):
            yield {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}
    for individual in (False, True):
        yield {"type": "Digits", "individual_digits": individual}
    for scheme in ("always", "first", "never"):
        for split in (False, True):
            metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}
            yield metaspace
            yield {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    yield {"type": "Whitespace"}
    yield {"type": "WhitespaceSplit"}
    yield {"type": "BertPreTokenizer"}
    yield {"type": "CharDelimiterSplit", "delimiter": "-"}
    yield {"type": "Sequence", "pretokenizers": []}
    yield {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]}


def normalizer_jsons():
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel"):
        yield {"type": form}
    for left in (False, True):
        for right in (False, True):
            yield {"type": "Strip", "strip_left": left, "strip_right": right}
    yield {"type": "Prepend", "prepend": "\u2581"}
    yield {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    yield {"type": "Replace", "pattern": {"String": "--"}, "content": ""}
    yield {"type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": "$0 "}
    yield {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]}


def decoder_jsons():
    yield None
    yield {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    yield {"type": "ByteFallback"}
    yield {"type": "Fuse"}
    yield {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    for start, stop in ((1, 0), (0, 1), (2, 2)):
        strip = {"type": "Strip", "content": " ", "start": start, "stop": stop}
        yield strip
        yield {"type": "Sequence", "decoders": [{"type": "Fuse"}, strip]}
    for scheme in ("always", "first", "never"):
        yield {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}
    yield {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


TOKENS = [
    [], ["a"], ["\u2581a", "b", "\u2581\u2581c"], ["\u0120Hello", "\u0120w", "\u00f0\u0141\u013a", "\u0122"], ["<0xE4>", "<0xBD>", "<0xA0>", "x"], ["<0xE4>", "<0xBD>", "x", "<0xFF>", "<0x41>"],
    ["<0x41>", "<0xC3>"], ["a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0xC3>", "<0xA9>", "b"], ["<0xZZ>", "<0x4>", "<0x041>", "<0x+A>"], ["  a  ", " b ", "c  "], ["<|im_end|>", "\u0120", "plain text", "\u00e9"], ["\u2581", "\u2581", "a"],
    [" a", " "], ["<s>", "\u2581Hi", "</s>", "\u4f60", "<0xE5>", "<0xA5>", "<0xBD>"],
]


def component(kind, spec, name):
    """The library has no loader for one component: a tokenizer with only this one."""
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": {"type": "BPE", "vocab": {}, "merges": []}}
    whole[kind] = spec
    return getattr(Tokenizer.from_str(json.dumps(whole)), name)


def decode(spec, tokens):
    try:
        return component("decoder", spec, "decoder").decode(tokens) if spec else " ".join(tokens)
    except BaseException:
        return None  # the library panics: stripping the end of an empty token


def added_token_cases():
    """Flags of added tokens, by a model that knows single letters only."""
    vocab = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz <>/\n")}
    rng = random.Random(3)
    specs = [("<a>", {}), ("<ab>", {"lstrip": True}), ("<b>", {"rstrip": True}), ("<c>", {"lstrip": True, "rstrip": True}), ("cat", {"single_word": True}), ("<S>", {"special": True, "normalized": False}),
             ("<s", {"special": True, "normalized": False}), ("\n\n", {"normalized": False}), ("DOG", {"normalized": True}), ("ca", {"normalized": False, "single_word": True})]
    for normalizer in (None, {"type": "Lowercase"}):
        tokenizer = Tokenizer(models.BPE(vocab, []))
        if normalizer:
            tokenizer.normalizer = normalizers.Lowercase()
        for content, flags in specs:
            tokenizer.add_tokens([AddedToken(content, **{"normalized": True, **flags})]) if not flags.get("special") else tokenizer.add_special_tokens([AddedToken(content, **flags)])
        pool = [content for content, _ in specs] + [" ", "  ", "\n", "x", "_", "Dog", "dog", "<A>", "\u3000", "cats", "1", "\u0301"]
        texts = ["".join(rng.choice(pool) for _ in range(rng.randint(1, 9))) for _ in range(150)]
        cases = []
        for text in texts:
            parse = rng.random() < 0.7
            tokenizer.encode_special_tokens = not parse
            encoding = tokenizer.encode(text)
            cases.append({"text": text, "parse_special": parse, "ids": encoding.ids, "pieces": encoding.tokens})
        yield {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}


def bpe_cases():
    """Options of the BPE model on random merges."""
    rng = random.Random(5)
    for options in ({}, {"unk_token": "<unk>"}, {"unk_token": "<unk>", "fuse_unk": True}, {"byte_fallback": True, "unk_token": "<unk>"}, {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True, "partial": True},
                    {"continuing_subword_prefix": "##"}, {"end_of_word_suffix": "</w>"}, {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "unk_token": "<unk>"}, {"ignore_merges": True}):
        options = dict(options)
        partial = options.pop("partial", False)
        prefix, suffix = options.get("continuing_subword_prefix", ""), options.get("end_of_word_suffix", "")
        tokens = ["<unk>"] + [p + c + s for c in "abcde" for p in ({"", prefix}) for s in ({"", suffix})]
        tokens = list(dict.fromkeys(sorted(tokens, key=lambda t: (len(t), t))))
        if options.get("byte_fallback"):
            tokens += [f"<0x{b:02X}>" for b in range(256) if not partial or b % 3]
        merges = []
        for _ in range(60):
            left, right = rng.choice([t for t in tokens if t[0] != "<"]), rng.choice([t for t in tokens if t[0] != "<"])
            if suffix and left.endswith(suffix) or prefix and not right.startswith(prefix):
                continue
            merged = left + right[len(prefix):]
            if len(merged) > 14 + len(prefix + suffix) or (left, right) in merges:
                continue
            merges.append((left, right))
            if merged not in tokens:
                tokens.append(merged)
        if options.get("ignore_merges"):
            tokens += ["edcba", "aaaaaaaaa"]
        model = models.BPE({t: i for i, t in enumerate(tokens)}, merges, **options)
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        words = ["".join(rng.choice("abcde" if rng.random() < 0.8 else "abcdexyz\u00e9\u4f60") for _ in range(rng.choice([1, 2, 3, 5, 9, 20, 40, 90]))) for _ in range(60)]
        cases = [{"text": text, "ids": tokenizer.encode(text).ids, "pieces": tokenizer.encode(text).tokens} for text in words + [" ".join(rng.choice(words) for _ in range(120)), "edcba aaaaaaaaa"]]
        yield {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}


def main():
    out = {"pre_tokenizers": [], "normalizers": [], "decoders": [], "added_tokens": list(added_token_cases()), "bpe": list(bpe_cases())}
    for spec in pre_tokenizer_jsons():
        try:
            made = component("pre_tokenizer", spec, "pre_tokenizer")
        except Exception:
            continue  # a regex that Oniguruma refuses
        out["pre_tokenizers"].append({"json": spec, "pieces": [[piece for piece, _ in made.pre_tokenize_str(text)] for text in TEXTS]})
    for spec in normalizer_jsons():
        out["normalizers"].append({"json": spec, "texts": [component("normalizer", spec, "normalizer").normalize_str(text) for text in TEXTS]})
    for spec in decoder_jsons():
        expected = [decode(spec, tokens) for tokens in TOKENS]
        out["decoders"].append({"json": spec, "texts": expected})
    rng = random.Random(11)
    marks = [0x300, 0x301, 0x323, 0x345, 0x5B0, 0x1161, 0x11A8, 0x3099, 0x20DD]
    bases = list(range(0x20, 0x250)) + list(range(0x370, 0x530)) + list(range(0x1100, 0x1112)) + list(range(0x1E00, 0x2030)) + list(range(0x3040, 0x3100)) + [0x4E00, 0xAC00, 0xAC01, 0xF900, 0x2126, 0x1F600, 0x1D15E]
    texts = ["".join(chr(rng.choice(marks if rng.random() < 0.4 else bases)) for _ in range(rng.randint(1, 20))) for _ in range(200)]
    out["normal_forms"] = [{"text": t, **{f: component("normalizer", {"type": f}, "normalizer").normalize_str(t) for f in ("NFC", "NFD", "NFKC", "NFKD")}} for t in texts]
    print(json.dumps({"oracle": "tokenizers " + __import__("tokenizers").__version__, "texts": TEXTS, "tokens": TOKENS, **out}, indent=None, separators=(",", ":")).replace('},{', '},\n{'))


main()

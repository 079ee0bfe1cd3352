/*
 * Inside a tokenizer: its tables, and the stages that a text goes through.
 *
 *   text    added.c      is cut at added tokens that are looked for in the text as it came;
 *           normalize.c  each stretch between them is normalised,
 *           added.c      cut at the added tokens that are looked for in normalised text,
 *           split.c      and cut into words;
 *           bpe.c        each word becomes ids;
 *   ids     tokenizer.c  puts the template's ids around them
 *
 * A loader (hf.c, spm.c, gguf_vocab.c) fills the tables once, and they are only read from then on.
 * What a call writes lies in its own `struct sb_work`, so calls on several threads never meet.
 *
 * The vocabulary and the added tokens share one table of pieces by id, as a piece may be both
 * (Llama's <s>). Token ids are int32_t; -1 means none.
 */
#ifndef SB_PIPELINE_H
#define SB_PIPELINE_H

#include "hash.h"
#include "pattern.h"
#include "tokenizer.h"
#include "unicode.h"

/* U+2581, which stands for a space in the pieces of SentencePiece: three bytes. */
#define SB_SPACE_MARK "\xE2\x96\x81"
/* U+FFFD, which stands for bytes that are no text: three bytes. */
#define SB_REPLACEMENT "\xEF\xBF\xBD"

enum {
    SB_ID_LIMIT = 1 << 22, /* ids are below it */
    SB_STEPS_MAX = 16      /* steps in a list */
};

/* --------------------------------------------------------------------- vocabulary (vocab.c) */

enum {
    SB_PIECE_BASE = 1,     /* in the model's vocabulary */
    SB_PIECE_ADDED = 2,    /* an added token */
    SB_PIECE_SPECIAL = 4,  /* left out of decoded text */
    SB_PIECE_BYTE = 8,     /* SentencePiece: stands for one byte */
    SB_PIECE_UNKNOWN = 16, /* SentencePiece: stands for unknown text */
    SB_PIECE_USER = 32     /* SentencePiece: user-defined, found before anything is merged */
};

/* How a piece is spelled: `length` bytes of the vocabulary's text from `at` on. */
struct sb_piece {
    uint32_t at, length;
    uint32_t flags; /* SB_PIECE_*; 0: no piece has this id */
};

/* A place in the hash table from spellings to ids. */
struct sb_vocab_slot {
    uint32_t id1;  /* id + 1; 0: the slot is free */
    uint32_t hash; /* the upper half of the spelling's hash */
};

struct sb_vocab {
    struct sb_bytes text;    /* all spellings, NUL-terminated, one after the other */
    struct sb_piece *pieces; /* [capacity], by id */
    size_t n, capacity;      /* n: largest id + 1 */
    size_t longest;          /* bytes of the longest spelling */
    struct sb_vocab_slot *slots;
    size_t n_slots, n_used;
    struct sb_hash_key key;
};

/* Makes room for n pieces in all, so that adding them rebuilds nothing. */
int32_t sb_vocab_reserve(struct sb_vocab *vocab, size_t n);
/* Gives the id a spelling; `where` begins messages. E_FORMAT: the id or the spelling is taken, or
 * the id is out of range. */
int32_t sb_vocab_add(struct sb_vocab *vocab, const char *where, const char *text, size_t n,
                     int64_t id, uint32_t flags);
/* The id of a spelling, -1 when there is none. sb_vocab_find_base sees the model's own pieces
 * only. */
int32_t sb_vocab_find(const struct sb_vocab *vocab, const char *text, size_t n);
int32_t sb_vocab_find_base(const struct sb_vocab *vocab, const char *text, size_t n);
/* NULL: no such id */
const struct sb_piece *sb_vocab_piece(const struct sb_vocab *vocab, int32_t id);
const char *sb_vocab_text(const struct sb_vocab *vocab, const struct sb_piece *piece);
void sb_vocab_clear(struct sb_vocab *vocab);

/* ------------------------------------------------------------------ byte pair encoding (bpe.c) */

/* Two neighbouring symbols that become one. */
struct sb_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: the slot is free */
    uint32_t rank; /* of two merges that are possible, the one of lower rank comes first */
    int32_t id;    /* what the two become */
};

struct sb_bpe {
    struct sb_merge *slots; /* a hash table by pair, with open addressing */
    size_t n_slots, n_used;
    struct sb_hash_pairs hash;
    int32_t byte_ids[256]; /* ids of the pieces <0x00> .. <0xFF>, -1 for those that are missing */
    int32_t (*pages)[256]; /* ids of single characters by code point % 256, -1: no piece */
    uint16_t page_of[0x1100]; /* code point / 256 -> page; page 0 has no ids */
    int32_t unk;              /* id of unknown text; -1: none; -2: the file names a piece for it
                                 that the vocabulary lacks */
    int fuse_unk;             /* a run of unknown characters is one token */
    int byte_fallback;        /* the bytes of an unknown character are tokens */
    int ignore_merges;        /* a word that is a piece is not put together by merges */
    int cut_at_marks;         /* nothing merges across the place before a U+2581 */
};

/* A piece of the word being encoded, in a doubly linked list. */
struct sb_symbol {
    int32_t id; /* -1: it has been merged into its left neighbour */
    int32_t prev, next;
};

/* A merge that was possible when it was found. */
struct sb_candidate {
    uint64_t order;          /* rank << 32 | position of the left symbol */
    int32_t left, right, id; /* the pair as it was, and what it becomes */
};

/* What one call writes (work.c). */
struct sb_work {
    const struct sb_mem *mem;
    struct sb_symbol *symbols;
    size_t n_symbols, symbol_capacity;
    struct sb_candidate *heap;
    size_t n_heap, heap_capacity;
    struct sb_bytes normal[2];           /* the normalisers write into one and the other by turns */
    struct sb_bytes stage[SB_STEPS_MAX]; /* what a splitting step writes: the text in another
                                            spelling, or its kinds of characters */
    struct sb_points points;             /* characters on their way into a normal form */
    struct sb_match match;
};
void sb_work_init(struct sb_work *work, const struct sb_mem *mem);
void sb_work_clear(struct sb_work *work);

/* Makes room for n merges in all, so that adding them rebuilds nothing. */
int32_t sb_bpe_reserve(struct sb_bpe *bpe, const struct sb_mem *mem, size_t n);
/* Adds a merge. A later one of the same pair replaces the earlier, as in the reference
 * implementation. */
int32_t sb_bpe_add(struct sb_bpe *bpe, const struct sb_mem *mem, int32_t left, int32_t right,
                   uint32_t rank, int32_t id);
/* Fills the tables of characters and bytes. Called once the vocabulary is complete and `unk` and
 * `byte_fallback` are set. */
int32_t sb_bpe_index(struct sb_bpe *bpe, const struct sb_mem *mem, const struct sb_vocab *vocab);
/* The id of a single character, -1 when it is no piece of the model's. Valid after sb_bpe_index. */
static inline int32_t sb_bpe_char(const struct sb_bpe *bpe, uint32_t cp)
{
    return bpe->pages[bpe->page_of[cp >> 8]][cp & 255];
}
/* Appends the ids of one word, which is not empty. */
int32_t sb_bpe_word(const struct sb_bpe *bpe, const struct sb_vocab *vocab, struct sb_work *work,
                    const char *word, size_t n, struct sb_ids *ids);
void sb_bpe_clear(struct sb_bpe *bpe, const struct sb_mem *mem);

/* ------------------------------------------------------------------ added tokens (added.c) */

struct sb_added_token {
    struct sb_bytes content; /* the string to look for, normalised when `normalized` is set */
    int32_t id;
    uint32_t order;     /* in the file */
    int single_word;    /* found only where no word goes on before or behind it */
    int lstrip, rstrip; /* takes the white space before it, behind it */
    int normalized;     /* looked for in normalised text, not in the text as it came */
    int special;        /* not looked for where a guard forbids it */
};

struct sb_added_range {
    uint32_t begin, end;
};

struct sb_added {
    struct sb_added_token *tokens;
    size_t n, capacity;
    struct sb_added_range first[2][256]; /* [normalized][first byte]: the tokens that begin so */
};

/* How many of the n bytes at `text` lie in one range of its guard, or outside all ranges; *inside
 * tells which. */
size_t sb_guard_stretch(const struct sb_guard *guard, const char *text, size_t n, int *inside);

/* Called with a stretch of text, whose id is -1, or with an added token. */
typedef int32_t (*sb_segment_fn)(void *context, const char *text, size_t n, int32_t id);
/* Cuts a text at the added tokens of one kind and calls `segment` with the parts in order. `guard`
 * is NULL, or the guard of this text or of one that this text is a part of. */
int32_t sb_added_split(const struct sb_added *added, int normalized, const struct sb_guard *guard,
                       const char *text, size_t n, sb_segment_fn segment, void *context);
/* Length of the longest token at the beginning of a text, of those that are looked for in
 * normalised text; 0: none. */
size_t sb_added_prefix(const struct sb_added *added, const char *text, size_t n);
/* Appends a token, taking over its content on success. */
int32_t sb_added_add(struct sb_added *added, const struct sb_mem *mem,
                     const struct sb_added_token *token);
/* Makes the tokens searchable. Called when tokens have been added or changed. */
void sb_added_sort(struct sb_added *added);
void sb_added_clear(struct sb_added *added, const struct sb_mem *mem);

/* -------------------------------------------------------------------------- steps (steps.c) */

/* Normalisers, splitters and decoders are lists of these. */
enum sb_step_kind {
    /* normalize.c */
    SB_STEP_NORMAL,   /* a normal form of Unicode */
    SB_STEP_PREPEND,  /* `to` is put before the text */
    SB_STEP_REPLACE,  /* every `from` becomes `to` */
    SB_STEP_CHARSMAP, /* SentencePiece's normaliser */
    /* split.c */
    SB_STEP_SPLIT_CL100K,  /* the words of a known pattern, by hand */
    SB_STEP_SPLIT_GPT2,    /* the words of another */
    SB_STEP_SPLIT_PATTERN, /* the matches of a pattern and what lies between them */
    SB_STEP_SPLIT_TEXT,    /* every `from`, and what lies between them */
    SB_STEP_PREFIX_SPACE,  /* a space is put before a text that begins with none */
    SB_STEP_BYTES,         /* bytes become byte-level characters */
    SB_STEP_METASPACE,     /* spaces become `to`, and one is put before the text */
    /* decode.c, which also has REPLACE and METASPACE */
    SB_STEP_STRIP /* `from` is taken off both ends */
};

/* What SPLIT_PATTERN and SPLIT_TEXT make of matches. What lies between two of them is a word. */
enum sb_split_behavior {
    SB_SPLIT_ISOLATED,      /* each is a word */
    SB_SPLIT_REMOVED,       /* they are left out */
    SB_SPLIT_CONTIGUOUS,    /* those that touch are one word */
    SB_SPLIT_WITH_PREVIOUS, /* each ends the word before it, unless that is a match */
    SB_SPLIT_WITH_NEXT      /* each begins the word behind it, unless that is a match */
};

enum { SB_PREPEND_NEVER, SB_PREPEND_FIRST, SB_PREPEND_ALWAYS };

struct sb_step {
    enum sb_step_kind kind;
    unsigned form;               /* NORMAL: SB_NFC and so on (unicode.h) */
    struct sb_bytes from, to;    /* CHARSMAP: its trie and its replacements */
    int prepend;                 /* METASPACE, CHARSMAP: SB_PREPEND_* */
    int squeeze;                 /* CHARSMAP: blanks at the ends vanish, runs of them become one */
    const struct sb_added *kept; /* CHARSMAP: the tokens that it leaves alone */
    size_t start, stop;          /* STRIP: how many of `from` at most, at either end */
    size_t digits;               /* SPLIT_CL100K: how many digits make a word at most */
    struct sb_pattern *pattern;  /* SPLIT_PATTERN */
    enum sb_split_behavior behavior; /* SPLIT_PATTERN, SPLIT_TEXT */
    int inverted; /* SPLIT_PATTERN, SPLIT_TEXT: what lies between matches counts as one, and they
                     as what lies between */
};

struct sb_steps {
    struct sb_step at[SB_STEPS_MAX];
    size_t n;
};
/* A new step at the end of a list; E_UNSUPPORTED when the list is full. */
int32_t sb_step_add(struct sb_step **out, struct sb_steps *steps, enum sb_step_kind kind,
                    const char *where);
/* E_UNSUPPORTED when a list, and behind it a second one (may be NULL), could make a text more than
 * 64 times as long. */
int32_t sb_steps_check_growth(const struct sb_steps *first, const struct sb_steps *second,
                              const char *path, const char *what);
/* How many times as long a list of steps makes a text at most: 65, by the check above. */
size_t sb_steps_growth(const struct sb_steps *steps);
void sb_steps_clear(struct sb_steps *steps);

/* ----------------------------------------------------- normalising (normalize.c, charsmap.c) */

/* Normalised text in *out, borrowed from work (or from the caller where nothing changes). */
int32_t sb_normalize(const struct sb_steps *steps, struct sb_work *work, const char *text, size_t n,
                     const char **out, size_t *n_out);
/* Appends `text` with every occurrence of step->from replaced by step->to. */
int32_t sb_replace(const struct sb_step *step, const char *text, size_t n, struct sb_bytes *out);

/* Reads SentencePiece's precompiled_charsmap into a step: its trie into `from`, its replacements
 * into `to` (a step without a map has both empty). E_FORMAT, E_UNSUPPORTED, E_NOMEM. */
int32_t sb_charsmap_set(struct sb_step *step, const char *data, size_t n, const char *where);
/* Runs that step on a text and appends the result. */
int32_t sb_charsmap_run(const struct sb_step *step, const char *text, size_t n,
                        struct sb_bytes *out);

/* --------------------------------------- splitting (split.c, split_words.c, byte_spelling.c) */

typedef int32_t (*sb_word_fn)(void *context, const char *word, size_t n);
/* Runs the splitting steps from `index` on and calls `word` with each word. `first`: the text
 * begins the whole input. */
int32_t sb_split(const struct sb_steps *steps, size_t index, struct sb_work *work, const char *text,
                 size_t n, int first, sb_word_fn word, void *context);
/* Makes a step the one of a pattern: a known one, or one that pattern.h compiles. */
int32_t sb_split_compile(struct sb_step *step, struct sb_properties *properties,
                         const char *pattern, size_t n, const char *where);

/* split_words.c. Whether a pattern is written out by hand; the step is then that of the pattern. */
int sb_known_pattern(struct sb_step *step, const char *pattern, size_t n);
/* The length of the word at the beginning of a text that is not empty. */
size_t sb_known_word(const struct sb_step *step, const char *text, size_t n);

/* byte_spelling.c. The byte-level character of a byte; the byte of such a character, -1 of any
 * other; and n bytes in such characters, appended. */
uint32_t sb_char_of_byte(unsigned byte);
int sb_byte_of_char(uint32_t cp);
int32_t sb_add_byte_chars(const char *text, size_t n, struct sb_bytes *out);
/* The byte that a piece <0xXX> stands for, -1 for any other piece. */
int sb_byte_of_spelling(const char *text, size_t n);

/* --------------------------------------------------------------------- decoding (decode.c) */

enum {
    SB_BYTES_NONE, /* <0xXX> is text as any other */
    SB_BYTES_RUN,  /* it is a byte, and a whole run of them becomes text or none (Hugging Face) */
    SB_BYTES_EACH  /* it is a byte, and each character is decided by itself (SentencePiece) */
};

struct sb_decoder {
    struct sb_steps before, after; /* on single tokens, before and after bytes are put together */
    int bytes;                     /* SB_BYTES_* */
    int byte_level;                /* tokens are spelled in byte-level characters */
    int fused;                     /* for the loader: steps that follow are on the whole text */
    int spaced;                    /* the file has no decoder: tokens with a space between them */
    int dummy_prefix;              /* SentencePiece: the first piece loses its leading U+2581, */
    int squeeze;                   /* and so does every piece until there is text */
    struct sb_bytes strip;         /* a string that is removed from the beginning of the text, */
    size_t strip_count;            /* at most so many times */
    struct sb_bytes unknown;       /* SentencePiece: the text of the unknown token */
};

/* ----------------------------------------------------------------- the whole (tokenizer.c) */

struct sb_tokenizer {
    struct sb_mem mem;
    struct sb_vocab vocab;
    struct sb_bpe bpe;
    struct sb_added added;
    struct sb_steps normalizers, splitters;
    struct sb_decoder decoder;
    struct sb_ids prefix, suffix; /* the template around every text */
};

/* merges.c. A merge as files write it: the spellings of two pieces. */
struct sb_half {
    const char *at;
    size_t n;
};
/* Cuts "a b" at its space; 0 when there is not exactly one. */
int sb_merge_cut(struct sb_half half[2], const char *text, size_t n);
/* Adds the merge of this rank. The two pieces and their concatenation must be in the vocabulary;
 * `joined` is a buffer, and `path: where` begins messages. E_FORMAT, E_NOMEM. */
int32_t sb_merge_add(struct sb_tokenizer *tokenizer, const struct sb_half half[2], size_t rank,
                     struct sb_bytes *joined, const char *path, const char *where);

/* An empty tokenizer, to be filled by one of the readers; NULL without memory. */
struct sb_tokenizer *sb_tokenizer_create(const struct sb_mem *mem);
/* Fill an empty tokenizer from a file's content; `path` begins messages. */
int32_t sb_tokenizer_read_hf(struct sb_tokenizer *tokenizer, const char *text, size_t length,
                             const char *path);
int32_t sb_tokenizer_read_spm(struct sb_tokenizer *tokenizer, const char *text, size_t length,
                              const char *path);
/* hf_beside.c. Reads what the other files in the folder of a tokenizer.json (`json`), or of a
 * tokenizer.model, say of it. dir NULL: they are in a GGUF file, as the tokenizer.json is. */
int32_t sb_tokenizer_read_beside(struct sb_tokenizer *tokenizer, const char *dir,
                                 const struct sb_gguf *gguf, int json);

#endif

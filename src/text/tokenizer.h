/*
 * Tokenizers: text to token ids and back, as a Hugging Face tokenizer.json or a SentencePiece
 * tokenizer.model says. A tokenizer never changes once it is loaded, so any thread may use it.
 *
 *   tokenizer.c          loading, encoding, and the look-ups of this header
 *   pipeline.h           the tables of a tokenizer and the stages that a text goes through
 *     hf.c               reads tokenizer.json into these tables, with hf_model.c and hf_fields.c
 *     hf_beside.c        reads what tokenizer_config.json and added_tokens.json add to them
 *     spm.c              reads tokenizer.model into them, by spm_pieces.c
 *     gguf_vocab.c       reads the vocabulary of a GGUF file into them
 *     gguf_describe.c    makes such a vocabulary of them; gguf_pre.c has what both know
 *     vocab.c            pieces by id and by spelling; merges.c is merges by spelling
 *     steps.c            lists of steps, and how much longer they can make a text
 *     added.c            finds added tokens in a text
 *     normalize.c        normalisers; charsmap.c is SentencePiece's
 *     split.c            cuts text into words; split_words.c has known patterns written by hand,
 *                        byte_spelling.c how vocabularies spell bytes
 *     bpe.c              merges the characters of a word into pieces
 *     work.c             the buffers of one call
 *   decode.c             ids to text, at once or as a stream
 *   chat.h               conversations to text and to ids, which have a map of their own (chat*.c)
 *
 *   pattern.h            regular expressions, which have a map of their own (pattern_*.c)
 *   charset.c            sets of code points
 *   unicode.c            Unicode's properties and normal forms, from unicode_tables.c, which
 *                        unicode_tables.py writes
 *   bytes.c              growing arrays of bytes and ids
 */
#ifndef SB_TOKENIZER_H
#define SB_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "digest.h"

struct sb_gguf;
struct sb_gguf_out;
struct sb_tokenizer;

/* Loads dir/tokenizer.json, else dir/tokenizer.model; *out = NULL and OK when neither is there.
 * E_IO, E_FORMAT, E_UNSUPPORTED (names the component and what to do), E_NOMEM. */
int32_t sb_tokenizer_load(struct sb_tokenizer **out, const struct sb_mem *mem, const char *dir);
/* Loads the tokenizer of the GGUF file at `path`, which is open: the tokenizer.json beside it, with
 * what the files beside that say of it, else the tokenizer.json in it, likewise, else the one that
 * its metadata describe. *out = NULL and OK when there is none. The same codes. */
int32_t sb_tokenizer_load_gguf(struct sb_tokenizer **out, const struct sb_mem *mem,
                               const char *path, const struct sb_gguf *gguf);
void sb_tokenizer_free(struct sb_tokenizer *tokenizer);

/* In a GGUF file a tokenizer.json is the string SB_GGUF_HUGGING_FACE "json", which other programs
 * know too, and a file beside it has its name behind SB_GGUF_HUGGING_FACE. sb_tokenizer_beside has
 * these names by number; NULL behind the last. */
#define SB_GGUF_HUGGING_FACE "tokenizer.huggingface."
const char *sb_tokenizer_beside(size_t index);

/* What a description in a GGUF file is for, and what has become of it. */
struct sb_gguf_text {
    int32_t vocab;    /* given: the pieces that the file has to have, one for each embedding */
    int32_t bos, eos; /* given: the model's ids, or -1; bos becomes the one that begins texts */
    int described;    /* whether anything was put into the file */
    const char *lost; /* what the description lacks first; NULL: nothing */
};
/* Puts the keys that describe a tokenizer into a GGUF file that is being written, but for the ids
 * that begin and end texts. E_NOMEM. */
int32_t sb_tokenizer_describe(struct sb_gguf_out *out, const struct sb_tokenizer *tokenizer,
                              struct sb_gguf_text *text);

/* Appends the ids of a text. flags: SPECBATCH_TEXT_NO_BOS, SPECBATCH_TEXT_PLAIN_SPECIAL. E_INVALID
 * (the text is not UTF-8, or a character of it has no token), E_UNSUPPORTED (its regular expression
 * takes too many steps), E_NOMEM; the ids are then as before. */
int32_t sb_tokenizer_encode(const struct sb_tokenizer *tokenizer, const char *text, size_t length,
                            uint32_t flags, struct sb_ids *ids);

/* The bytes from `begin` to before `end` of a text. */
struct sb_range {
    size_t begin, end;
};

/* Where in a text special tokens may not be found: they are taken for the ordinary text that they
 * are spelled with. A token that would be partly inside a range is not found either, and what is
 * inside a range hides no token outside. */
struct sb_guard {
    const char *text;
    const struct sb_range *ranges; /* in order, apart from each other, and none of them empty */
    size_t n_ranges;
    const char *const *markers; /* NULL, or a list that ends in NULL: tokens that are treated as
                                   special ones, whatever the tokenizer's file calls them */
};

/* The same for a text that has a guard. flags: SPECBATCH_TEXT_NO_BOS. */
int32_t sb_tokenizer_encode_guarded(const struct sb_tokenizer *tokenizer, const char *text,
                                    size_t length, uint32_t flags, const struct sb_guard *guard,
                                    struct sb_ids *ids);
/* Appends the text of ids. flags: SPECBATCH_TEXT_KEEP_SPECIAL. */
int32_t sb_tokenizer_decode(const struct sb_tokenizer *tokenizer, const int32_t *ids, size_t n,
                            uint32_t flags, struct sb_bytes *text);
/* The vocabulary's own spelling, or NULL; borrowed from the tokenizer. */
const char *sb_tokenizer_piece(const struct sb_tokenizer *tokenizer, int32_t id, size_t *length);

/* Whether a draft may propose for a target: a base piece that both vocabularies have under an id is
 * spelled the same in both (added tokens may differ). E_VOCAB names the first id that differs, and
 * both spellings. */
int32_t sb_tokenizer_same_base(const struct sb_tokenizer *target, const struct sb_tokenizer *draft);

/* A digest of how base pieces with ids below n_ids are spelled, but for special and added ones: the
 * same for a tokenizer.json and a GGUF file of it. */
void sb_tokenizer_digest(const struct sb_tokenizer *tokenizer, int32_t n_ids,
                         char text[SB_DIGEST_TEXT]);

/* Decoding ids as they come. Every push gives the text that is certain by then. No part ends inside
 * a character, and all parts together are what sb_tokenizer_decode makes of all the ids. */
struct sb_stream;
int32_t sb_stream_create(struct sb_stream **out, const struct sb_mem *mem,
                         const struct sb_tokenizer *tokenizer, uint32_t flags);
/* The text that these ids complete. n = 0 ends the text: what was held back comes out, and the next
 * push begins another text. *text is NUL-terminated and borrowed until the next call. After E_NOMEM
 * the stream is as it was before. */
int32_t sb_stream_push(struct sb_stream *stream, const int32_t *ids, size_t n, const char **text,
                       size_t *length);
/* The same for the last ids of a text, which may be none: *text is all that is left of it. */
int32_t sb_stream_end(struct sb_stream *stream, const int32_t *ids, size_t n, const char **text,
                      size_t *length);
void sb_stream_free(struct sb_stream *stream);

/* Makes room, so that pushing one id at a time, and ending the text, take no memory, for texts of
 * at most n_ids ids. E_NOMEM. */
int32_t sb_stream_reserve(struct sb_stream *stream, size_t n_ids);
/* Bytes that the stream has taken. */
size_t sb_stream_bytes(const struct sb_stream *stream);
/* Where in the text an id ends. The first tells how many bytes are held back now. Once a later push
 * has made text of them, the second tells where in the text of that push the n-th of them ends. */
size_t sb_stream_held(const struct sb_stream *stream);
size_t sb_stream_place(const struct sb_stream *stream, size_t n);
/* Cuts the text of the last push to its first n bytes. */
const char *sb_stream_cut(struct sb_stream *stream, size_t n);

#endif

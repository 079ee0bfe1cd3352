/*
 * Stop strings: where in its text an answer ends.
 *
 *   text      . . . . . . . . . . . . . . . . . . . | bytes held back
 *                 decided ^           ^ found       ^ length
 *   tokens    |    |  |        |   |         |   |     |
 *             ends[0]  ends[1] ...                     ends of the last tokens: not known yet
 *
 * Each token that is committed goes through a text stream, and what the stream makes of it goes,
 * byte by byte, through an automaton for each string (Knuth, Morris and Pratt's), whose state is
 * how much of the string the text ends with. So only committed tokens are ever searched, in their
 * order, and it cannot matter how many of them a round has accepted at once. Of several strings the
 * one that begins first in the text counts. Those that begin together end the answer at the same
 * byte, so they need no rule.
 *
 * A string that is complete has to wait while a longer one that began before it may still become
 * complete. Text up to where the first of those begins is decided, whatever tokens come, and what
 * polls and events show are the tokens that lie in it.
 *
 * The answer is cut at a byte. It has the tokens whose text ends there or before, and the tokens
 * behind those stay in the sequence's array, where they are no part of it any more: the text of the
 * last of its bytes is made of them.
 *
 * All memory is taken at submission: 9 bytes for each token that may come, two for each byte of the
 * strings, and the stream's buffers. Rejected: to search the whole text anew at every token, which
 * needs all of the text, and time that grows with its square.
 */
#ifndef SB_STOPS_H
#define SB_STOPS_H

#include "engine/seq.h"

enum { SB_STOPS_MAX = 16, SB_STOP_BYTES_MAX = 255 };

struct sb_tokenizer;

struct sb_stop {
    const char *text;      /* [n] */
    const uint8_t *border; /* [n] of its first i + 1 bytes: the longest proper prefix of them that
                              also ends them */
    int32_t n;
    int32_t matched; /* with so many bytes of the string the text ends */
};

struct sb_stops {
    struct sb_mem mem;
    struct sb_stream *stream;
    struct sb_stop at[SB_STOPS_MAX];
    int32_t n;
    int32_t max_new;
    char *bytes;        /* the strings, then their borders */
    int64_t *ends;      /* [max_new] the text's length at the end of each token */
    uint8_t *accepted;  /* [max_new] whether the token was a proposal */
    int64_t length;     /* of the text so far, in bytes */
    int64_t found;      /* where a string begins that is complete; INT64_MAX: none is */
    int64_t end;        /* where the answer's text was cut; INT64_MAX: it ends with its tokens */
    int64_t told;       /* bytes of text that events have told */
    int32_t n_held;     /* the last so many tokens end in bytes that are held back */
    int32_t n_shown;    /* tokens that lie in the decided text */
    int32_t n_tail;     /* tokens behind the answer's, in which its text may go on */
    uint8_t is_decided; /* `found` is where the answer ends */
};

/* Takes the strings over, which have been checked; min_new is the sequence's. E_NOMEM. */
int32_t sb_stops_create(struct sb_stops **out, const struct sb_mem *mem,
                        const struct sb_tokenizer *tokenizer, const char *const *strings,
                        const size_t *lengths, size_t n_strings, int32_t max_new);
void sb_stops_free(struct sb_stops *stops);
size_t sb_stops_bytes(const struct sb_stops *stops); /* NULL: 0 */
/* Whether both have the same strings in the same order. Either may be NULL. */
int sb_stops_equal(const struct sb_stops *a, const struct sb_stops *b);

/* For verify.c: searches the text of the sequence's last token, behind which it ends if it has a
 * `finish`. Where a string ends it, cuts it there and makes it finished. */
void sb_stops_take(struct sb_seq *seq, int was_accepted);
/* Cuts a sequence that something else ends to its decided text. It leaves the caches' lengths to
 * the caller. */
void sb_stops_cut(struct sb_seq *seq);

/* How many bytes of a text of so many are the answer's, which is the text of its tokens and of
 * sb_seq_n_tail more. */
size_t sb_stops_text(const struct sb_seq *seq, size_t length);

static inline int32_t sb_seq_n_tail(const struct sb_seq *seq)
{
    return seq->stops ? seq->stops->n_tail : 0;
}

/* Generated tokens that may be shown: that they belong to the answer is decided. */
static inline int32_t sb_seq_n_shown(const struct sb_seq *seq)
{
    return seq->stops && !seq->finish ? seq->stops->n_shown : sb_seq_n_generated(seq);
}

#endif

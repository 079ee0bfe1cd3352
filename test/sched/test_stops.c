/*
 * Stop strings, one token at a time: where they end an answer, and how much of it is shown before.
 * Answers are random ids of vocabularies that put bytes together in each of the three ways, so
 * characters are split over tokens, broken, and runs of byte tokens become text only at their end.
 */
#include "engine/stops.h"

#include "sbtest.h"
#include "support/failalloc.h"
#include "support/model_files.h"
#include "support/stop_oracle.h"
#include "support/trace.h"

static struct failalloc memory;
static const struct sb_mem counted = {failalloc_alloc, failalloc_free, &memory};

static struct sb_tokenizer *load(const char *name)
{
    struct sb_tokenizer *t = NULL;
    char dir[200];

    snprintf(dir, sizeof dir, "test/data/tokenizers/%s", name);
    if (sb_tokenizer_load(&t, &test_mem, dir) != SPECBATCH_OK)
        printf("     %s: %s\n", dir, specbatch_last_error());
    return t;
}

/* A sequence that has a prompt of one token, and takes an answer. */
struct answer {
    struct sb_seq seq;
    int32_t tokens[1 + STOP_ORACLE_TOKENS];
};

static int32_t begin(struct answer *a, const struct sb_tokenizer *t,
                     const struct stop_strings *stops, int32_t max_new, int32_t min_new)
{
    a->seq = (struct sb_seq){.tokens = a->tokens, .n_tokens = 1, .n_prompt = 1};
    a->seq.max_tokens = 1 + max_new;
    a->seq.min_new = min_new;
    return sb_stops_create(&a->seq.stops, &counted, t, stops->at, stops->lengths, stops->n,
                           max_new);
}

/* Appends a token as verify.c does. */
static void append(struct answer *a, int32_t id)
{
    struct sb_seq *seq = &a->seq;

    seq->tokens[seq->n_tokens++] = id;
    seq->accepted += id % 2 == 0;
    seq->finish = seq->n_tokens == seq->max_tokens ? SPECBATCH_FINISH_LENGTH : 0;
    sb_stops_take(seq, id % 2 == 0);
}

static uint64_t n_even(const int32_t *ids, int32_t n)
{
    uint64_t even = 0;

    for (int32_t i = 0; i < n; i++)
        even += ids[i] % 2 == 0;
    return even;
}

/* Feeds an answer until it ends, and compares its end with the oracle's. What was shown before may
 * not be more than the answer, and what a cut at that time would have left not other text. */
static void check_answer(const struct whole_answer *whole, const struct stop_strings *stops,
                         int32_t min_new)
{
    const struct cut_answer cut = stop_oracle_cut(whole, stops, min_new);
    struct answer a;
    long calls;
    int32_t i, shown = 0;

    CHECK_OK(begin(&a, whole->tokenizer, stops, whole->n, min_new));
    calls = atomic_load(&memory.calls);
    for (i = 0; i < whole->n && !a.seq.finish; i++) {
        append(&a, whole->ids[i]);
        CHECK(sb_seq_n_shown(&a.seq) >= shown);
        shown = sb_seq_n_shown(&a.seq);
        CHECK(shown <= cut.n);
    }
    CHECK_INT(atomic_load(&memory.calls), calls);
    CHECK_INT(a.seq.finish, cut.is_stopped ? SPECBATCH_FINISH_STOP : SPECBATCH_FINISH_LENGTH);
    CHECK_INT(sb_seq_n_generated(&a.seq), cut.n);
    CHECK_INT(sb_stops_text(&a.seq, whole->length), cut.length);
    CHECK_INT(sb_seq_n_generated(&a.seq) + sb_seq_n_tail(&a.seq), i);
    CHECK_INT(a.seq.accepted, n_even(whole->ids, cut.n));
    sb_stops_free(a.seq.stops);
}

/* The same answer is cut after each number of tokens, as a request is that is cancelled then: what
 * is left is the beginning of the answer that it would have had. */
static void check_cancelling(const struct whole_answer *whole, const struct stop_strings *stops)
{
    const struct cut_answer cut = stop_oracle_cut(whole, stops, 0);
    struct answer a;

    for (int32_t n = 0; n < cut.n; n++) {
        int32_t shown;
        CHECK_OK(begin(&a, whole->tokenizer, stops, whole->n, 0));
        for (int32_t i = 0; i < n; i++)
            append(&a, whole->ids[i]);
        if (a.seq.finish) {
            sb_stops_free(a.seq.stops);
            break;
        }
        shown = sb_seq_n_shown(&a.seq);
        sb_stops_cut(&a.seq);
        CHECK_INT(sb_seq_n_generated(&a.seq), shown);
        CHECK((size_t)a.seq.stops->end <= cut.length);
        sb_stops_free(a.seq.stops);
    }
}

static const char *const folders[] = {"qwen", "gpt2",        "llama", "llama_cross",
                                      "spm",  "spm_squeeze", "added"};

/* Random answers. `draws`: how many there are of each tokenizer. */
static void check_random(const char *folder, int draws)
{
    static struct whole_answer whole;
    struct sb_tokenizer *t = load(folder);
    uint64_t state = 7;
    int n_stopped = 0;

    CHECK(t != NULL);
    for (int draw = 0; draw < draws && !sbtest_failed_now; draw++) {
        const size_t limit = trace_random(&state) % 2 ? 330 : t->vocab.n + 10;
        struct stop_strings stops;
        int32_t min_new;
        whole.n = 1 + (int32_t)(trace_random(&state) % 40);
        for (int32_t i = 0; i < whole.n; i++)
            whole.ids[i] = (int32_t)(trace_random(&state) % limit);
        CHECK_OK(stop_oracle_read(&whole, t));
        stop_oracle_draw(&stops, &whole, &state);
        min_new = trace_random(&state) % 2 ? 0
                                           : (int32_t)(trace_random(&state) % (uint64_t)whole.n);
        n_stopped += stop_oracle_cut(&whole, &stops, min_new).is_stopped;
        check_answer(&whole, &stops, min_new);
        if (draw % 8 == 0 && !sbtest_failed_now)
            check_cancelling(&whole, &stops);
        if (sbtest_failed_now)
            printf("     %s: answer %d, min_new %d\n", folder, draw, min_new);
    }
    CHECK(n_stopped > draws / 3 && n_stopped < draws);
    sb_tokenizer_free(t);
}

static void test_random_answers(void)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !sbtest_failed_now; i++)
        check_random(folders[i], 2000);
}

/* ------------------------------------------------------------------ by hand */

/* Makes an answer of pieces of the qwen vocabulary, each of which is one token. */
static int spell(struct whole_answer *whole, const struct sb_tokenizer *t,
                 const char *const *pieces)
{
    whole->n = 0;
    for (; *pieces; pieces++) {
        const int32_t id = sb_vocab_find(&t->vocab, *pieces, strlen(*pieces));
        if (id < 0)
            return 0;
        whole->ids[whole->n++] = id;
    }
    return stop_oracle_read(whole, t) == SPECBATCH_OK;
}

/* An answer in pieces, the strings that end it, and what is left of it. */
static const struct by_hand {
    const char *pieces[9], *strings[4];
    int32_t min_new, n;
    const char *text; /* NULL: nothing ends it */
} by_hand[] = {
    /* In one token, over several, and with the last of all. */
    {{"a", "b", "c", "d"}, {"b"}, 0, 1, "a"},
    {{"a", "b", "c", "d"}, {"bcd"}, 0, 1, "a"},
    {{"a", "b", "c", "d"}, {"d"}, 0, 3, "abc"},
    /* All of the text: an empty answer. */
    {{"a", "b"}, {"a"}, 0, 0, ""},
    {{"a", "b"}, {"ab"}, 0, 0, ""},
    /* A prefix that comes again within itself. */
    {{"a", "a", "a", "b", "c"}, {"aab"}, 0, 1, "a"},
    {{"a", "b", "a", "b", "a", "c"}, {"abac"}, 0, 2, "ab"},
    /* What has only begun when the answer ends is text. */
    {{"a", "b"}, {"bc"}, 0, 2, NULL},
    /* The one that begins first, also if it is complete later; if it never is, the other. */
    {{"a", "b", "c", "d"}, {"c", "bcd"}, 0, 1, "a"},
    {{"a", "b", "c", "a"}, {"c", "bcd"}, 0, 2, "ab"},
    {{"a", "b", "c"}, {"c", "bcd"}, 0, 2, "ab"},
    {{"a", "b", "c"}, {"bc", "b"}, 0, 1, "a"},
    /* Bytes of a character over tokens: e with an acute accent is C3 A9. */
    {{"a", "\u00C3", "\u00A9", "b"}, {"\u00E9"}, 0, 1, "a"},
    {{"a", "\u00C3", "\u00A9", "b"}, {"b"}, 0, 3, "a\u00E9"},
    /* Before min_new nothing is looked for, and what begins there does not count. */
    {{"a", "b", "a", "b"}, {"b"}, 2, 3, "aba"},
    {{"a", "b", "c", "b", "c"}, {"bc"}, 2, 3, "abc"},
    {{"a", "b"}, {"b"}, 2, 2, NULL},
    {{"\u00C3", "\u00A9", "b"}, {"\u00E9"}, 1, 3, NULL},
    {{"\u00C3", "\u00A9", "b"}, {"b"}, 1, 2, "\u00E9"},
};

static void test_answers_by_hand(void)
{
    static struct whole_answer whole;
    struct sb_tokenizer *t = load("qwen");

    CHECK(t != NULL);
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand && !sbtest_failed_now; i++) {
        const struct by_hand *c = &by_hand[i];
        struct stop_strings stops = {.n = 0};
        struct cut_answer cut;
        CHECK(spell(&whole, t, c->pieces));
        for (size_t s = 0; c->strings[s]; s++)
            stop_strings_add(&stops, c->strings[s], strlen(c->strings[s]));
        cut = stop_oracle_cut(&whole, &stops, c->min_new);
        CHECK_INT(cut.is_stopped, c->text != NULL);
        CHECK_INT(cut.n, c->n);
        CHECK_INT(cut.length, c->text ? strlen(c->text) : whole.length);
        CHECK(!c->text || memcmp(c->text, whole.text, cut.length) == 0);
        check_answer(&whole, &stops, c->min_new);
        if (sbtest_failed_now)
            printf("     case %zu\n", i);
    }
    sb_tokenizer_free(t);
}

/* A token that may begin a string waits for the next ones, and no other does. */
static void test_what_is_held_back(void)
{
    static const char *const pieces[] = {"a", "b", "c", "b", "d", NULL};
    static const int32_t shown[] = {1, 1, 3, 3, 3};
    static struct whole_answer whole;
    struct sb_tokenizer *t = load("qwen");
    struct stop_strings stops = {.n = 0};
    struct answer a;

    CHECK(t != NULL && spell(&whole, t, pieces));
    stop_strings_add(&stops, "bde", 3);
    stop_strings_add(&stops, "de", 2);
    CHECK_OK(begin(&a, t, &stops, 8, 0));
    for (int32_t i = 0; i < whole.n; i++) {
        append(&a, whole.ids[i]);
        CHECK_INT(sb_seq_n_shown(&a.seq), shown[i]);
    }
    sb_stops_free(a.seq.stops);
    sb_tokenizer_free(t);
}

/* Each allocation that fails is reported, and leaves nothing behind. */
static void test_without_memory(void)
{
    struct sb_tokenizer *t = load("llama");
    struct stop_strings stops = {.n = 0};
    struct answer a;
    int32_t rc = SPECBATCH_E_NOMEM;
    long at;

    CHECK(t != NULL);
    stop_strings_add(&stops, "xyz", 3);
    for (at = 1; rc == SPECBATCH_E_NOMEM; at++) {
        failalloc_arm(&memory, at, 0);
        rc = begin(&a, t, &stops, 100, 0);
    }
    failalloc_arm(&memory, 0, 0);
    CHECK_OK(rc);
    CHECK(at > 6);
    sb_stops_free(a.seq.stops);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
    sb_tokenizer_free(t);
}

TEST_BEGIN
RUN(test_answers_by_hand);
RUN(test_random_answers);
RUN(test_what_is_held_back);
RUN(test_without_memory);
TEST_END

/* Answers that are JSON, whatever the model: a grammar as the mask of requests.
 *     json_mask TARGET_DIR DRAFT_DIR "a prompt" ["another" ...]
 *
 * The grammar is that of JSON objects, eight levels deep at most, with one space or newline at a
 * place, and with ASCII in strings. When few tokens are left, only what leads to the end is
 * allowed, so every answer is complete. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "specbatch.h"

enum { MAX_NEW = 100, DEPTH = 8, HURRY = 20 }; /* HURRY: tokens in which any object can be ended */

/* What comes next, or where in a string or a number the reader is. */
enum { VALUE, FIRST_VALUE, KEY, FIRST_KEY, COLON, AFTER, STRING, ESCAPE, HEX, WORD, END };
enum { MINUS = END + 1, ZERO, INTEGER, POINT, FRACTION, EXPONENT, SIGN, POWER };

struct json { /* what has been read of an object; all zero: nothing */
    int at, depth, is_key, n_spaces, n_hex;
    char open[DEPTH];
    const char *rest; /* of a word */
};

static int take(struct json *j, char c, int hurry);

static int go(struct json *j, int at)
{
    j->at = at;
    return 1;
}

static int close_level(struct json *j, char c)
{
    return c == (j->open[j->depth - 1] == '{' ? '}' : ']') && go(j, --j->depth > 0 ? AFTER : END);
}

static int take_in_number(struct json *j, char c, int hurry)
{
    const int at = j->at, digit = c >= '0' && c <= '9';
    const int may_end = at == ZERO || at == INTEGER || at == FRACTION || at == POWER;
    int to = END;

    if (digit && at != ZERO)
        to = at == MINUS && c == '0' ? ZERO
             : at < POINT            ? INTEGER
             : at < EXPONENT         ? FRACTION
                                     : POWER;
    else if (c == '.' && may_end && at < POINT)
        to = POINT;
    else if ((c == 'e' || c == 'E') && may_end && at < EXPONENT)
        to = EXPONENT;
    else if ((c == '+' || c == '-') && at == EXPONENT)
        to = SIGN;
    if (to != END)
        return !(hurry && may_end) && go(j, to);
    return may_end && go(j, AFTER) && take(j, c, hurry);
}

static int begin_value(struct json *j, char c, int hurry)
{
    j->is_key = 0;
    j->rest = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    if (c == '{' || (c == '[' && j->depth > 0)) {
        if (hurry || j->depth == DEPTH)
            return 0;
        j->open[j->depth++] = c;
        return go(j, c == '{' ? FIRST_KEY : FIRST_VALUE);
    }
    if (j->depth == 0 || (hurry && c != '0'))
        return 0;
    if (c >= '0' && c <= '9')
        return go(j, c == '0' ? ZERO : INTEGER);
    return c == '"' ? go(j, STRING) : c == '-' ? go(j, MINUS) : strchr("tfn", c) && go(j, WORD);
}

/* Whether character c may follow, which is then taken in. hurry: only what leads to the end may. */
static int take(struct json *j, char c, int hurry)
{
    if ((c == ' ' || c == '\n') && j->at <= AFTER)
        return !hurry && j->n_spaces++ == 0;
    j->n_spaces = 0;
    switch (j->at) {
    case VALUE:
        return begin_value(j, c, hurry);
    case FIRST_KEY:
    case FIRST_VALUE:
        return close_level(j, c) ||
               (!hurry && go(j, j->at == FIRST_KEY ? KEY : VALUE) && take(j, c, 0));
    case KEY:
        j->is_key = 1;
        return c == '"' && go(j, STRING);
    case COLON:
        return c == ':' && go(j, VALUE);
    case AFTER:
        if (c == ',' && !hurry)
            return go(j, j->open[j->depth - 1] == '{' ? KEY : VALUE);
        return close_level(j, c);
    case STRING:
        if (c == '"')
            return go(j, j->is_key ? COLON : AFTER);
        return !hurry && c >= ' ' && c <= '~' && go(j, c == '\\' ? ESCAPE : STRING);
    case ESCAPE:
        j->n_hex = 4;
        return strchr("\"\\/bfnrtu", c) && go(j, c == 'u' ? HEX : STRING);
    case HEX:
        return strchr("0123456789abcdefABCDEF", c) && go(j, --j->n_hex > 0 ? HEX : STRING);
    case WORD:
        return c == *j->rest && go(j, *++j->rest ? WORD : AFTER);
    case END:
        return 0;
    default:
        return take_in_number(j, c, hurry);
    }
}

static int take_text(struct json *j, const char *text, int hurry)
{
    const char *c = text;

    while (*c && take(j, *c, hurry))
        c++;
    return c > text && *c == '\0';
}

struct grammar {
    const specbatch_model *model;
    char (*text)[32]; /* of each id; empty: it is not allowed */
};

static int32_t allow(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    const struct grammar *g = user;
    size_t n_eos;
    const int32_t *eos = specbatch_model_eos(g->model, &n_eos);

    for (size_t b = 0; b < n_rows; b++) {
        const specbatch_mask_row *row = rows[b];
        struct json now = {0}, then;
        int valid = 1;
        for (size_t i = row->n_prompt; i < row->n_tokens && valid; i++)
            valid = take_text(&now, g->text[row->tokens[i]], 0);
        for (int32_t id = 0; id < specbatch_model_vocab_size(g->model); id++) {
            then = now;
            if (!valid ||
                !take_text(&then, g->text[id], row->n_tokens - row->n_prompt + HURRY >= MAX_NEW))
                row->allowed[id / 32] &= ~(UINT32_C(1) << id % 32);
        }
        for (size_t i = 0; i < n_eos && valid && now.at == END; i++)
            row->allowed[eos[i] / 32] |= UINT32_C(1) << eos[i] % 32;
    }
    return 0;
}

/* The texts of all ids. That of a pair less that of one is the id's own: some tokenizers drop a
 * space where a text begins. What is longer than a place, or is no text, stays empty. */
static int make_texts(struct grammar *g, const specbatch_model *model)
{
    const int32_t n = specbatch_model_vocab_size(model);
    char pair[64];
    size_t one, two;

    g->model = model;
    g->text = calloc((size_t)n, sizeof *g->text);
    for (int32_t id = 0; id < n && g->text; id++) {
        const int32_t ids[] = {id, id};
        if (specbatch_detokenize(model, ids, 1, 0, pair, sizeof pair, &one) == SPECBATCH_OK &&
            specbatch_detokenize(model, ids, 2, 0, pair, sizeof pair, &two) == SPECBATCH_OK &&
            two - one < sizeof *g->text)
            memcpy(g->text[id], pair + one, two - one);
    }
    return g->text != NULL;
}

static int run(specbatch_pool *pool, struct grammar *g, char **prompts)
{
    const specbatch_mask mask = {sizeof mask, allow, g};
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_result *result;
    int failed = 0;

    request.max_new = MAX_NEW;
    request.mask = &mask;
    for (; *prompts && !failed; prompts++) {
        request.text = *prompts;
        failed = specbatch_pool_submit(pool, &request, NULL);
    }
    failed = failed || specbatch_pool_run(pool);
    while (!failed && specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        printf("%s\n", specbatch_result_text(result, NULL));
        specbatch_result_free(result);
    }
    return failed;
}

int main(int argc, char **argv)
{
    specbatch_model *small = NULL, *target = NULL;
    specbatch_draft *draft = NULL;
    specbatch_pool *pool = NULL;
    struct grammar g = {NULL, NULL};
    int failed = 1;

    if (argc < 4) {
        fprintf(stderr, "usage: json_mask TARGET_DIR DRAFT_DIR PROMPT...\n");
        return 2;
    }
    if (!specbatch_model_open(&target, argv[1], NULL) &&
        !specbatch_model_open(&small, argv[2], NULL) &&
        !specbatch_draft_from_model(&draft, small) &&
        !specbatch_pool_create(&pool, target, draft, NULL) && make_texts(&g, target))
        failed = run(pool, &g, argv + 3);
    if (failed)
        fprintf(stderr, "json_mask: %s\n", specbatch_last_error());
    specbatch_pool_free(pool);
    specbatch_draft_release(draft);
    specbatch_model_close(small);
    specbatch_model_close(target);
    free(g.text);
    return failed;
}

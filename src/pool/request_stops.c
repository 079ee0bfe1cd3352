/* Checks and copies stop strings, and cuts answers that end early. Every message names the field.
 */
#include "pool/request_stops.h"

#include <string.h>

#include "options.h"
#include "status.h"
#include "utf8.h"

static const char what[] = "request: stops";

/* The length of one string, which need not be terminated within the bytes that are allowed. */
static int32_t check_string(const specbatch_stops *full, size_t i, size_t *length)
{
    const char *text = full->strings[i], *end;

    if (!text)
        return sb_fail(SPECBATCH_E_INVALID, "%s: strings[%zu] is NULL", what, i);
    if (full->lengths) {
        *length = full->lengths[i];
    } else {
        end = memchr(text, '\0', SB_STOP_BYTES_MAX + 1);
        *length = end ? (size_t)(end - text) : SB_STOP_BYTES_MAX + 1;
    }
    if (*length == 0)
        return sb_fail(SPECBATCH_E_INVALID, "%s: strings[%zu] is empty", what, i);
    if (*length > SB_STOP_BYTES_MAX)
        return sb_fail(SPECBATCH_E_INVALID, "%s: strings[%zu] has more than %d bytes", what, i,
                       SB_STOP_BYTES_MAX);
    if (sb_utf8_valid(text, *length) < *length)
        return sb_fail(SPECBATCH_E_INVALID, "%s: strings[%zu] is not UTF-8 from byte %zu on", what,
                       i, sb_utf8_valid(text, *length));
    return SPECBATCH_OK;
}

int32_t sb_pool_make_stops(struct sb_stops **out, const struct specbatch_pool *pool,
                           const specbatch_request *request)
{
    const struct sb_tokenizer *tokenizer = pool->target->tokenizer;
    size_t lengths[SB_STOPS_MAX];
    specbatch_stops full;
    int32_t rc = SPECBATCH_OK;

    *out = NULL;
    if (!request->stops)
        return rc;
    SB_TRY(sb_options_copy(&full, sizeof full, request->stops, what));
    if (full.n_strings < 1 || full.n_strings > SB_STOPS_MAX)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: n_strings is %zu, outside 1..%d", what, full.n_strings,
                SB_STOPS_MAX);
    if (!full.strings)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: strings is NULL", what);
    for (size_t i = 0; i < full.n_strings; i++)
        SB_TRY(check_string(&full, i, &lengths[i]));
    if (!tokenizer)
        SB_FAIL(SPECBATCH_E_NO_TOKENIZER, "%s: the model has no tokenizer", what);
    SB_TRY(sb_stops_create(out, &pool->mem, tokenizer, full.strings, lengths, full.n_strings,
                           request->max_new));
done:
    return rc;
}

void sb_pool_settle(struct specbatch_pool *pool, struct sb_seq *seq)
{
    const uint64_t accepted = seq->accepted;
    const int32_t n = seq->n_tokens;

    if (!seq->stops)
        return;
    sb_stops_cut(seq);
    if (seq->kv_len > sb_seq_content(seq))
        seq->kv_len = sb_seq_content(seq);
    if (seq->draft_kv_len > sb_seq_content(seq))
        seq->draft_kv_len = sb_seq_content(seq);
    pool->stats[SB_STAT_tokens_committed] -= (uint64_t)(n - seq->n_tokens);
    pool->stats[SB_STAT_tokens_accepted] -= accepted - seq->accepted;
}

/* The exported functions on drafts. They compute nothing, so they need no floating-point
 * environment. */
#include "api.h"
#include "file.h"
#include "options.h"
#include "engine/draft.h"

int32_t specbatch_draft_from_model(specbatch_draft **out, specbatch_model *model)
{
    if (!out || !model)
        return sb_null_argument(out ? "model" : "out");
    return sb_source_from_model(out, model);
}

int32_t specbatch_ngram_options_init(specbatch_ngram_options *options, size_t size)
{
    return sb_options_init(options, size);
}

int32_t specbatch_draft_from_ngrams(specbatch_draft **out, const specbatch_ngram_options *options)
{
    return out ? sb_source_from_ngrams(out, options) : sb_null_argument("out");
}

int32_t specbatch_draft_from_table(specbatch_draft **out, const char *path)
{
    if (!out || !path)
        return sb_null_argument(out ? "path" : "out");
    return sb_file_fail(sb_source_from_table(out, path), path);
}

int32_t specbatch_table_options_init(specbatch_table_options *options, size_t size)
{
    return sb_options_init(options, size);
}

int32_t specbatch_table_make(const char *to, const specbatch_model *model, const int32_t *ids,
                             size_t n_ids, const specbatch_table_options *options)
{
    int32_t rc;

    if (!to || !model || !ids)
        return sb_null_argument(!to ? "to" : !model ? "model" : "ids");
    rc = sb_table_make(to, model, ids, n_ids, options);
    return rc == SPECBATCH_E_IO ? sb_file_fail(rc, to) : rc;
}

int32_t specbatch_draft_from_ops(specbatch_draft **out, const specbatch_draft_ops *ops)
{
    if (!out || !ops)
        return sb_null_argument(out ? "ops" : "out");
    return sb_source_from_ops(out, ops);
}

int32_t specbatch_draft_from_list(specbatch_draft **out, specbatch_draft *const *drafts,
                                  size_t n_drafts)
{
    if (!out || !drafts)
        return sb_null_argument(out ? "drafts" : "out");
    return sb_source_from_list(out, drafts, n_drafts);
}

void specbatch_draft_retain(specbatch_draft *draft)
{
    sb_source_retain(draft);
}

void specbatch_draft_release(specbatch_draft *draft)
{
    sb_source_release(draft);
}

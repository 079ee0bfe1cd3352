/* Passes over one prompt, for logits.h. */
#include "cuda/logits.h"

#include "engine/runner.h"
#include "port.h"
#include "status.h"

static const struct sb_mem mem = {NULL, NULL, NULL};

static int32_t one_pass(float *out, struct sb_runner *r, const struct logits_run *run,
                        const int32_t *dev_ids, int32_t at, int32_t n)
{
    const size_t row = (size_t)r->model->config.vocab;
    const float *last = r->logits + (size_t)(run->copies - 1) * (size_t)n * row;
    int32_t rc = SPECBATCH_OK;

    sb_pass_begin(r, 0);
    for (int32_t c = 0; c < run->copies; c++) {
        const int32_t seq = sb_pass_add_seq(r, (int64_t)c * r->limits.cap, r->limits.cap,
                                            run->start + (run->copies - 1 - c));
        for (int32_t i = 0; i < n; i++)
            sb_pass_add_token(r, seq, at + i, at + i, i);
    }
    SB_TRY(sb_pass_issue(r, 0, dev_ids));
    SB_TRY(r->backend->exec_sync(r->exec));
    SB_TRY(r->backend->download(NULL, out + (size_t)at * row, last, (size_t)n * row * sizeof *out));
done:
    return rc;
}

int32_t logits_of(float *out, struct specbatch_model *model, const struct logits_run *run)
{
    const int32_t widest = run->first > run->step ? run->first : run->step,
                  most = widest * run->copies, cap = run->n + run->start + run->copies;
    const struct sb_runner_limits limits = {.max_tokens = most,
                                            .max_seqs = run->copies,
                                            .max_out = most,
                                            .n_passes = 1,
                                            .n_slots = run->copies,
                                            .cap = cap,
                                            .n_columns = (int64_t)run->copies * cap,
                                            .n_threads = 1};
    struct sb_runner runner = {.model = NULL};
    struct sb_fp_env env;
    void *dev_ids = NULL;
    int32_t rc = SPECBATCH_OK;

    sb_port_fp_enter(&env);
    SB_TRY(sb_runner_create(&runner, model, &mem, &limits, NULL));
    SB_TRY(model->backend->alloc(&dev_ids, model->device, &mem, (size_t)run->n * sizeof *run->ids));
    SB_TRY(model->backend->upload(NULL, dev_ids, run->ids, (size_t)run->n * sizeof *run->ids));
    for (int32_t at = 0, n; at < run->n; at += n) {
        n = at == 0 ? run->first : run->step;
        n = n < run->n - at ? n : run->n - at;
        SB_TRY(one_pass(out, &runner, run, dev_ids, at, n));
    }
done:
    if (dev_ids)
        model->backend->free(model->device, &mem, dev_ids);
    sb_runner_free(&runner);
    sb_port_fp_leave(&env);
    return rc;
}

/* Telling progress; see progress.h. */
#include "model/progress.h"

#include "port.h"
#include "status.h"

/* One call of the progress function, and what it returned. */
struct progress_call {
    const struct sb_progress *progress;
    int32_t rc;
};

static void call_progress(void *arg)
{
    struct progress_call *call = arg;
    const struct sb_progress *p = call->progress;

    call->rc = p->options->progress(p->options->progress_user, p->done, p->total);
}

int32_t sb_progress_add(struct sb_progress *progress, uint64_t bytes)
{
    struct progress_call call = {progress, 0};

    progress->done += bytes;
    if (progress->options->progress)
        sb_port_call_host(call_progress, &call);
    return call.rc == 0
               ? SPECBATCH_OK
               : sb_fail(SPECBATCH_E_CANCELLED, "%s was cancelled after %llu of %llu bytes",
                         progress->what, (unsigned long long)progress->done,
                         (unsigned long long)progress->total);
}

int32_t sb_progress_end(struct sb_progress *progress)
{
    if (progress->done == progress->total)
        return SPECBATCH_OK;
    return sb_progress_add(progress, progress->total - progress->done);
}

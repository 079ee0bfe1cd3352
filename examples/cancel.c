/* Ends a request by hand: prints its text as it comes, and cancels it at so many tokens.
 *     cancel TARGET_DIR DRAFT_DIR TOKENS PROMPT                                           */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "specbatch.h"

/* Prints the news of a request, and cancels it when it has enough tokens. A round may bring
 * several, so it may then have some more. *n: those that it has so far */
static int32_t print_news(specbatch_pool *pool, size_t enough, size_t *n)
{
    specbatch_event event = SPECBATCH_EVENT_INIT;
    int32_t rc;

    while ((rc = specbatch_pool_next_event(pool, &event)) == SPECBATCH_OK) {
        *n += event.n_ids;
        printf("%s", event.text ? event.text : "");
        if (event.finish)
            printf("\n    %zu tokens, %s\n", *n, specbatch_finish_name(event.finish));
        else if (*n >= enough && (rc = specbatch_pool_cancel(pool, event.id)) != SPECBATCH_OK)
            break;
    }
    return rc == SPECBATCH_E_EMPTY ? SPECBATCH_OK : rc;
}

int main(int argc, char **argv)
{
    specbatch_model *target = NULL, *small = NULL;
    specbatch_draft *draft = NULL;
    specbatch_pool *pool = NULL;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    const size_t enough = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
    size_t active = 1, n = 0;
    int failed = 1;

    if (enough == 0) {
        fprintf(stderr, "usage: cancel TARGET_DIR DRAFT_DIR TOKENS PROMPT\n");
        return 2;
    }
    request.text = argv[4];
    request.max_new = 1000;
    if (specbatch_model_open(&target, argv[1], NULL) ||
        specbatch_model_open(&small, argv[2], NULL) || specbatch_draft_from_model(&draft, small) ||
        specbatch_pool_create(&pool, target, draft, NULL) ||
        specbatch_pool_submit(pool, &request, NULL))
        goto done;
    while (active)
        if (specbatch_pool_step(pool, &active) || print_news(pool, enough, &n))
            goto done;
    failed = print_news(pool, enough, &n) != SPECBATCH_OK; /* the last, if it was cancelled */
done:
    if (failed)
        fprintf(stderr, "cancel: %s\n", specbatch_last_error());
    else if ((failed = fflush(stdout) || ferror(stdout)) != 0)
        perror("cancel: stdout");
    specbatch_pool_free(pool);
    specbatch_draft_release(draft);
    specbatch_model_close(small);
    specbatch_model_close(target);
    return failed;
}

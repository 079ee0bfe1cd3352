/* Results are read line by line. Of those that can be made again the last is kept. */
#include "resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_tree.h>

#include "id.h"
#include "output.h"
#include "signals.h"
#include "support.h"

static yajl_val field(yajl_val object, const char *name)
{
    const char *path[] = {name, NULL};

    return YAJL_IS_OBJECT(object) ? yajl_tree_get(object, path, yajl_t_any) : NULL;
}

/* The id of a result, to be freed; NULL if the line has none. *whole: whether it has all that its
 * prompt gets, so that it can be made again. */
static char *read_result(const char *json, int *whole)
{
    char why[128];
    yajl_val root = yajl_tree_parse(json, why, sizeof why);
    yajl_val value = field(root, "id"), finish = field(root, "finish");
    const char *word = YAJL_IS_STRING(finish) ? YAJL_GET_STRING(finish) : "";
    char *id = value ? ex_id_read(value) : NULL;

    *whole = strcmp(word, "eos") == 0 || strcmp(word, "stop") == 0 || strcmp(word, "length") == 0;
    yajl_tree_free(root);
    return id;
}

static int compare_with_id(const void *id, const void *prompt)
{
    const struct ex_prompt *const *with = prompt;
    return strcmp(id, (*with)->id);
}

/* The prompt of the result in this line, or NULL after a line on stderr. */
static struct ex_prompt *mark_done(struct ex_prompt **sorted, size_t n, const char *id,
                                   const char *file, size_t number)
{
    struct ex_prompt **found = bsearch(id, sorted, n, sizeof(*sorted), compare_with_id);

    if (!found || (*found)->done) {
        ex_complain(found ? "%s:%zu: a second result of %.60s"
                          : "%s:%zu: no prompt has the id %.60s",
                    file, number, id);
        return NULL;
    }
    (*found)->done = 1;
    return *found;
}

static void keep_line(struct ex_resumed *out, const char *text, size_t length)
{
    free(out->line);
    out->line = ex_alloc(length + 1, 1);
    memcpy(out->line, text, length);
    out->number = out->n;
}

/* *last: the prompt of the line that is kept; NULL if there is none. */
static int read_results(struct ex_resumed *out, struct ex_prompt **last, struct ex_prompt **sorted,
                        size_t n, FILE *in, const char *file)
{
    char *text = NULL, *id;
    size_t capacity = 0;
    ssize_t length;
    int ok = 1, whole;

    while (ok && (length = getline(&text, &capacity, in)) != -1 && text[length - 1] == '\n') {
        struct ex_prompt *prompt = NULL;
        out->n++;
        id = read_result(text, &whole);
        if (id)
            prompt = mark_done(sorted, n, id, file, out->n);
        else
            ex_complain("%s:%zu: not a result with an id", file, out->n);
        ok = prompt != NULL;
        if (ok && whole) {
            keep_line(out, text, (size_t)length);
            *last = prompt;
        }
        free(id);
        out->bytes += length;
    }
    free(text);
    return ok && ferror(in) ? ex_complain("%s: cannot read: %s", file, strerror(errno)) : ok;
}

/* Keeps the prompts that are not done in `prompts`. The last one moves, and loses its deadline, as
 * it has been done in time. */
static void drop_done(struct ex_resumed *out, struct ex_prompts *prompts,
                      const struct ex_prompt *last)
{
    size_t n = 0, i;

    for (i = 0; i < prompts->n; i++) {
        struct ex_prompt *prompt = &prompts->at[i];
        if (prompt == last) {
            out->last.at = ex_alloc(1, sizeof *prompt);
            out->last.at[out->last.n++] = *prompt;
            out->last.at[0].own.wish.deadline_ms = 0;
        } else if (prompt->done) {
            ex_prompt_free(prompt);
        } else {
            prompts->at[n++] = *prompt;
        }
    }
    prompts->n = n;
}

int ex_resume(struct ex_resumed *out, struct ex_prompts *prompts, const char *file)
{
    struct ex_prompt **sorted, *last = NULL;
    FILE *in = fopen(file, "r");
    int ok;

    memset(out, 0, sizeof *out);
    if (!in)
        return ex_complain("%s: cannot read: %s", file, strerror(errno));
    sorted = ex_prompts_by_id(prompts);
    ok = read_results(out, &last, sorted, prompts->n, in, file);
    free(sorted);
    fclose(in);
    if (ok)
        drop_done(out, prompts, last);
    return ok;
}

/* Whether the result, written as it would be, is the line that is kept. */
static int is_last_line(const struct ex_resumed *resumed, const specbatch_result *result)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    int same = 0;

    if (out) {
        ex_write_result(out, resumed->last.at[0].id, 0, result);
        same = fclose(out) == 0 && strcmp(text, resumed->line) == 0;
    }
    free(text);
    return same;
}

int ex_resumed_check(const struct ex_resumed *resumed, const char *file, specbatch_model *target,
                     specbatch_draft *draft, const struct ex_settings *settings)
{
    struct ex_settings whole = *settings;
    struct ex_run run;
    int code = EX_OK;

    if (resumed->last.n == 0)
        return EX_OK;
    whole.wish.deadline_ms = 0;
    if (!ex_run(&run, target, draft, &resumed->last, &whole, NULL, NULL)) {
        code = EX_FAILED;
    } else if (!ex_signal() && !is_last_line(resumed, run.results[0])) {
        ex_complain("%s:%zu: these models, options and prompts make another result of it", file,
                    resumed->number);
        code = EX_USAGE;
    }
    ex_run_free(&run);
    return code;
}

void ex_resumed_free(struct ex_resumed *resumed)
{
    ex_prompts_free(&resumed->last);
    free(resumed->line);
    memset(resumed, 0, sizeof *resumed);
}

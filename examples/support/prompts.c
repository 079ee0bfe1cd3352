/* Reads a prompt file line by line, and keeps what its lines say. */
#include "prompts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prompt_line.h"
#include "support.h"

/* The prompt that the next line fills. */
static struct ex_prompt *add_prompt(struct ex_prompts *prompts, size_t line)
{
    struct ex_prompt *prompt;

    if (prompts->n == prompts->capacity) {
        prompts->capacity = prompts->capacity ? 2 * prompts->capacity : 64;
        prompts->at = ex_realloc(prompts->at, prompts->capacity, sizeof *prompts->at);
    }
    prompt = &prompts->at[prompts->n++];
    memset(prompt, 0, sizeof *prompt);
    prompt->line = line;
    return prompt;
}

/* Without an id of its own a prompt is known by the number of its line. */
static void complete_id(struct ex_prompt *prompt)
{
    enum { DIGITS = 24 };

    if (prompt->id)
        return;
    prompt->id = ex_alloc(DIGITS, 1);
    snprintf(prompt->id, DIGITS, "%zu", prompt->line);
}

static int compare_ids(const void *a, const void *b)
{
    const struct ex_prompt *const *x = a, *const *y = b;
    const int order = strcmp((*x)->id, (*y)->id);

    return order ? order : ((*x)->line > (*y)->line) - ((*x)->line < (*y)->line);
}

struct ex_prompt **ex_prompts_by_id(const struct ex_prompts *prompts)
{
    struct ex_prompt **sorted = ex_alloc(prompts->n, sizeof(*sorted));
    size_t i;

    for (i = 0; i < prompts->n; i++)
        sorted[i] = &prompts->at[i];
    qsort(sorted, prompts->n, sizeof(*sorted), compare_ids);
    return sorted;
}

/* An id that two lines have would name neither result. */
static int check_unique(const struct ex_prompts *prompts, const char *file)
{
    struct ex_prompt **sorted = ex_prompts_by_id(prompts);
    size_t i;
    int ok = 1;

    for (i = 1; ok && i < prompts->n; i++)
        if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0)
            ok = ex_complain("%s:%zu: id %.60s is that of line %zu too", file, sorted[i]->line,
                             sorted[i]->id, sorted[i - 1]->line);
    free(sorted);
    return ok;
}

static int read_lines(struct ex_prompts *out, FILE *in, const char *file, int32_t limit)
{
    static const char mark[] = "\xef\xbb\xbf"; /* the byte order mark that some editors write */
    const size_t mark_length = sizeof mark - 1;
    char *text = NULL, *json;
    size_t capacity = 0, number = 0;
    ssize_t length;
    int ok = 1;

    while (ok && (limit == 0 || out->n < (size_t)limit) &&
           (length = getline(&text, &capacity, in)) != -1) {
        json = text;
        if (++number == 1 && strncmp(json, mark, mark_length) == 0) {
            json += mark_length;
            length -= (ssize_t)mark_length;
        }
        while (length > 0 && strchr(" \t\r\n", json[length - 1]) && json[length - 1] != '\0')
            json[--length] = '\0';
        if (length == 0)
            continue;
        ok = ex_prompt_parse(add_prompt(out, number), file, json, (size_t)length);
        if (ok)
            complete_id(&out->at[out->n - 1]);
    }
    free(text);
    return ok && ferror(in) ? ex_complain("%s: cannot read: %s", file, strerror(errno)) : ok;
}

const char *ex_prompts_name(const char *file)
{
    return strcmp(file, "-") == 0 ? "stdin" : file;
}

int ex_prompts_read(struct ex_prompts *out, const char *file, int32_t limit)
{
    const int from_stdin = strcmp(file, "-") == 0;
    FILE *in = from_stdin ? stdin : fopen(file, "r");
    int ok;

    memset(out, 0, sizeof *out);
    if (!in)
        return ex_complain("%s: cannot open: %s", file, strerror(errno));
    file = ex_prompts_name(file);
    ok = read_lines(out, in, file, limit);
    if (!from_stdin)
        fclose(in);
    if (ok && out->n == 0)
        ok = ex_complain("%s: no prompts", file);
    return ok && check_unique(out, file);
}

int32_t ex_prompts_positions(const struct ex_prompts *prompts, int32_t max_new)
{
    size_t most = 0, i;

    for (i = 0; i < prompts->n; i++) {
        const struct ex_prompt *prompt = &prompts->at[i];
        const int32_t new = prompt->own.wish.max_new ? prompt->own.wish.max_new : max_new;
        if (prompt->n_ids + (size_t) new > most)
            most = prompt->n_ids + (size_t) new;
    }
    return (int32_t)most;
}

void ex_prompt_free(struct ex_prompt *prompt)
{
    free(prompt->ids);
    free(prompt->text);
    free(prompt->id);
    ex_wish_free(&prompt->own);
}

void ex_prompts_free(struct ex_prompts *prompts)
{
    size_t i;
    for (i = 0; i < prompts->n; i++)
        ex_prompt_free(&prompts->at[i]);
    free(prompts->at);
    memset(prompts, 0, sizeof *prompts);
}

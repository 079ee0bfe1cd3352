/*
 * Makes a table of n-grams of texts, from which `generate --draft table:FILE` proposes.
 *     ngram_table --model DIR --output FILE [options] TEXT
 *
 * TEXT is a file of UTF-8: documents like those that will be generated, one behind the other. They
 * are tokenized by the model, which should be the target.
 *
 * Exit codes: 0 done, 2 bad usage or input, 3 it failed. Unless it is 0, nothing has been written,
 * and a file that was there is as it was.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "specbatch.h"
#include "support/args.h"
#include "support/outfile.h"
#include "support/support.h"

struct job {
    const char *model_dir, *text_file, *output_file;
    int32_t max_match, min_match, min_count;

    specbatch_model *model;
    char *text;
    size_t length;
    int32_t *ids;
    size_t n_ids;
};

static int read_text(struct job *job)
{
    FILE *file = fopen(job->text_file, "rb");
    size_t room = 1 << 16, n = 1;

    if (!file)
        return ex_complain("%s: %s", job->text_file, strerror(errno));
    while (n > 0) {
        job->text = ex_realloc(job->text, room, 1);
        n = fread(job->text + job->length, 1, room - job->length, file);
        job->length += n;
        if (job->length == room)
            room *= 2;
    }
    if (ferror(file)) {
        fclose(file);
        return ex_complain("%s: cannot be read", job->text_file);
    }
    fclose(file);
    return job->length > 0 || ex_complain("%s: is empty", job->text_file);
}

static int tokenize(struct job *job)
{
    const uint32_t flags = SPECBATCH_TEXT_NO_BOS | SPECBATCH_TEXT_PLAIN_SPECIAL;

    if (specbatch_model_open(&job->model, job->model_dir, NULL) != SPECBATCH_OK)
        return ex_complain("--model: %s", specbatch_last_error());
    /* No text has more tokens than bytes, but for what a tokenizer puts around it. */
    job->ids = ex_alloc(job->length + 16, sizeof *job->ids);
    if (specbatch_tokenize(job->model, job->text, job->length, flags, job->ids, job->length + 16,
                           &job->n_ids) != SPECBATCH_OK)
        return ex_complain("%s: %s", job->text_file, specbatch_last_error());
    return 1;
}

static int make(struct job *job)
{
    specbatch_table_options options = SPECBATCH_TABLE_OPTIONS_INIT;

    options.max_match = job->max_match;
    options.min_match = job->min_match;
    options.min_count = job->min_count;
    if (specbatch_table_make(job->output_file, job->model, job->ids, job->n_ids, &options) !=
        SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    printf("%s: of %zu tokens\n", job->output_file, job->n_ids);
    return 1;
}

static int run(struct job *job)
{
    int code = EX_USAGE;

    if (read_text(job) && tokenize(job))
        code = make(job) ? EX_OK : EX_FAILED;
    specbatch_model_close(job->model);
    free(job->ids);
    free(job->text);
    return code;
}

int main(int argc, char **argv)
{
    struct job job = {.model_dir = NULL};
    const struct ex_option options[] = {
        {"--model", "DIR", EX_STRING, &job.model_dir, 0, 0, "the target's checkpoint; required"},
        {"--output", "FILE", EX_STRING, &job.output_file, 0, 0, "the table; required"},
        {"--max-match", "N", EX_INT, &job.max_match, 1, 8, "tokens of a context at most (4)"},
        {"--min-match", "N", EX_INT, &job.min_match, 1, 8, "and at least (1)"},
        {"--min-count", "N", EX_INT, &job.min_count, 1, INT32_MAX,
         "leave out contexts that occur less often (2)"},
        {"TEXT", NULL, EX_OPERAND, &job.text_file, 0, 0, "the texts, in one file; required"}};
    int parsed, code;

    parsed = ex_args_parse(options, sizeof options / sizeof *options, argc, argv,
                           "--model DIR --output FILE [options] TEXT: makes a table of "
                           "what follows what in texts");
    if (parsed > 0 && (!job.model_dir || !job.output_file || !job.text_file))
        parsed = ex_complain("--model, --output and TEXT are needed; --help explains them");
    if (parsed <= 0)
        code = parsed < 0 ? EX_OK : EX_USAGE;
    else
        code = run(&job);
    return ex_stdout_flush() ? code : EX_FAILED;
}

/*
 * Converts a checkpoint, a folder or a GGUF file, to a GGUF file, which this library and llama.cpp
 * open.
 *     quantize [--weights auto|q8|q4] DIR OUT.gguf
 * If the file's name ends in .safetensors, it gets the tensors in that format, as they are stored:
 * of shards, or of a pytorch_model.bin, one file that every reader of safetensors opens.
 *     quantize DIR DIR/model.safetensors
 *
 * What the library has to say of the checkpoint, such as that its tokenizer cannot be described in
 * full, is printed on stderr, and so is the progress if that is a terminal.
 *
 * Exit codes: 0 done, 2 bad usage, 3 it failed, 130 and 143 ended by SIGINT or SIGTERM. Unless it
 * is 0, nothing has been written, and a file that was there is as it was.
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "specbatch.h"
#include "support/args.h"
#include "support/outfile.h"
#include "support/signals.h"
#include "support/support.h"

struct quantize {
    const char *dir, *out;
    int32_t weights; /* SPECBATCH_WEIGHTS_*, as --weights lists them */
    int percent;     /* shown last; -1: progress is not shown */
};

static void print_log(void *user, int32_t level, const char *line)
{
    (void)user;
    if (level <= SPECBATCH_LOG_WARN)
        ex_complain("%s", line);
}

/* Ends the conversion when a signal has come. */
static int32_t progress(void *user, uint64_t done, uint64_t total)
{
    struct quantize *q = user;
    const int percent = (int)(100.0 * (double)done / (double)total);

    if (q->percent >= 0 && percent > q->percent) {
        ex_progress("%s: %d %% ", q->out, percent);
        q->percent = percent;
    }
    return ex_signal();
}

static int convert(struct quantize *q)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    int32_t rc;

    ex_signals_catch();
    q->percent = isatty(STDERR_FILENO) ? 0 : -1;
    options.weights = q->weights;
    options.log = print_log;
    options.progress = progress;
    options.progress_user = q;
    rc = specbatch_convert(q->out, q->dir, &options);
    ex_progress_end();
    if (rc == SPECBATCH_OK)
        return EX_OK;
    if (rc == SPECBATCH_E_CANCELLED) {
        ex_complain("%s: nothing was written", ex_signal_name());
        return ex_signal_exit_code();
    }
    ex_complain("%s", specbatch_last_error());
    return EX_FAILED;
}

int main(int argc, char **argv)
{
    struct quantize q = {NULL, NULL, SPECBATCH_WEIGHTS_AUTO, -1};
    const struct ex_option options[] = {
        {"--weights", "auto|q8|q4", EX_CHOICE, &q.weights, 0, 0,
         "type of the matrices: as they are, 8 or 4 bits (auto)"},
        {"DIR", NULL, EX_OPERAND, &q.dir, 0, 0,
         "the checkpoint: a folder as on Hugging Face, or a GGUF file"},
        {"OUT.gguf", NULL, EX_OPERAND, &q.out, 0, 0,
         "the file to be written; a name in .safetensors: one of safetensors"}};
    int code, parsed;

    parsed = ex_args_parse(options, 3, argc, argv,
                           "[options] DIR OUT.gguf: converts a checkpoint to a GGUF file");
    if (parsed > 0 && !q.out)
        parsed = ex_complain("DIR and OUT.gguf are needed; --help explains them");
    if (parsed <= 0)
        code = parsed < 0 ? EX_OK : EX_USAGE;
    else
        code = convert(&q);
    return ex_stdout_flush() ? code : EX_FAILED;
}

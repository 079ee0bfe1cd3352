/* A checkpoint in ten lines; check.h says what for. */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "support.h"

static int is_there(const char *directory, const char *name)
{
    char path[2048];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return stat(path, &st) == 0;
}

/* In which files the weights are: the library looks for them in this order. */
static const char *container(const char *path)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_there(path, names[i]))
            return names[i];
    return "a GGUF file";
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

int ex_check(const specbatch_model *target, const char *path, const specbatch_draft *draft,
             const specbatch_pool_options *options)
{
    const int32_t chat = specbatch_model_chat_format(target);
    const int32_t context = specbatch_model_context(target);
    const int32_t max_len = options->max_len ? options->max_len : context;
    uint64_t pool = 0;

    if (specbatch_pool_bytes(&pool, target, draft, options) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    printf("checkpoint    %s\n", path);
    printf("container     %s\n", container(path));
    printf("architecture  %s, %" PRId32 " layers\n", specbatch_model_arch(target),
           specbatch_model_layers(target));
    printf("vocabulary    %" PRId32 " ids, %s\n", specbatch_model_vocab_size(target),
           specbatch_model_has_tokenizer(target) ? "with a tokenizer"
                                                 : "no tokenizer: prompts have to be ids");
    printf("chat format   %s\n", chat >= 0 ? specbatch_chat_name(chat) : "none that is known");
    printf("context       %" PRId32 " tokens\n", context);
    printf("weights       %s, %.1f MiB\n", specbatch_model_dtype(target),
           mib(specbatch_model_bytes(target)));
    printf("class         %s\n", specbatch_model_fingerprint(target));
    printf("pool          %.1f MiB for %" PRId32 " rows of %" PRId32 " tokens%s\n", mib(pool),
           options->batch, max_len, draft ? ", the draft's caches included" : "");
    printf("digest        %s\n", specbatch_model_digest(target));
    return 1;
}

/*
 * Safetensors files and their index. A part that is written `=BYTES` is a whole file; one that is
 * written `COUNT{...}` is the JSON of a file's header, whose length is put before it and COUNT zero
 * bytes of data behind it, so that a fuzzer need not find out how the two depend on each other.
 *
 * One part is model.safetensors. Of several, the first is model.safetensors.index.json as it is,
 * and the others are the shards "1", "2", ...
 *
 * What there is is read twice: as it is, and as the tensors of a small gpt-oss, whose experts are
 * in one tensor.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/support/fuzz.h"
#include "model/arch.h"
#include "model/shards.h"
#include "model/stacked.h"

enum { SHARDS = 8, DATA_MAX = 1 << 12, MEMORY = 64 << 20 };

static void write_shard(const char *name, struct fuzz_input part)
{
    size_t data = 0;
    uint8_t *file;

    if (part.n > 0 && *part.at == '=') {
        fuzz_write(name, part.at + 1, part.n - 1);
        return;
    }
    while (part.n > 0 && *part.at >= '0' && *part.at <= '9' && data < DATA_MAX)
        data = data * 10 + (size_t)(fuzz_byte(&part) - '0');
    file = calloc(8 + part.n + data, 1);
    FUZZ_CHECK(file != NULL);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)part.n >> 8 * i);
    memcpy(file + 8, part.at, part.n);
    fuzz_write(name, file, 8 + part.n + data);
    free(file);
}

/* Every tensor can be found and read, and nothing beyond it can. */
static void read_all(const struct sb_tensors *set)
{
    const int32_t n = sb_tensors_count(set);

    for (int32_t i = 0; i < n; i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        char *bytes = malloc(t->bytes ? t->bytes : 1);
        uint64_t elements = 1;

        FUZZ_CHECK(bytes != NULL);
        FUZZ_CHECK(sb_tensors_find(set, t->name) == t);
        FUZZ_CHECK(i == 0 || strcmp(sb_tensors_at(set, i - 1)->name, t->name) < 0);
        FUZZ_CHECK(t->rank >= 0 && t->rank <= SB_TENSOR_RANK_MAX && sb_tensors_file(set, t)[0]);
        for (int32_t d = 0; d < t->rank; d++)
            elements *= (uint64_t)t->shape[d];
        FUZZ_CHECK(elements <= 8 * t->bytes && t->bytes <= 8 * elements);
        FUZZ_CHECK(sb_tensors_read(set, t, 0, bytes, t->bytes) == SPECBATCH_OK);
        FUZZ_CHECK(sb_tensors_read(set, t, t->bytes, bytes, 0) == SPECBATCH_OK);
        FUZZ_CHECK(sb_tensors_read(set, t, t->bytes, bytes, 1) == SPECBATCH_E_INVALID);
        FUZZ_CHECK(sb_tensors_read(set, t, UINT64_MAX, bytes, 1) == SPECBATCH_E_INVALID);
        free(bytes);
    }
    FUZZ_CHECK(sb_tensors_find(set, "") == NULL);
}

/* The same once the experts of a layer are taken apart, if they are there. */
static void read_experts(struct sb_tensors *set)
{
    const struct sb_arch *arch = sb_arch_by_type("gpt_oss");
    const struct sb_config config = {
        .arch = arch, .layers = 1, .hidden = 32, .inter = 32, .experts = 2};

    sb_tensors_set_arch(set, arch);
    if (fuzz_status(sb_tensors_unstack(set, &config)) == SPECBATCH_OK)
        read_all(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct fuzz_input first = fuzz_part(&input);
    struct sb_tensors *set = NULL;

    fuzz_remove_files();
    if (input.n == 0)
        write_shard("model.safetensors", first);
    else
        fuzz_write("model.safetensors.index.json", first.at, first.n);
    for (int i = 0; i < SHARDS && input.n > 0; i++) {
        const char name[2] = {(char)('1' + i), '\0'};
        write_shard(name, fuzz_part(&input));
    }
    if (fuzz_status(sb_tensors_open(&set, &fuzz_mem, fuzz_dir())) == SPECBATCH_OK) {
        read_all(set);
        read_experts(set);
    } else {
        FUZZ_CHECK(set == NULL);
    }
    sb_tensors_close(set);
    fuzz_check_memory(0, MEMORY);
    return 0;
}

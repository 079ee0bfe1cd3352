/*
 * Files of torch.save. An input that begins with `=` is a whole file behind it. Any other is the
 * pickle of one, around which an archive is put with the storages "0", "1" and "2" of 64, 8 and no
 * bytes, so that a fuzzer need not find out about archives.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/support/fuzz.h"
#include "model/shards.h"
#include "support/torch_writer.h"

enum { MEMORY = 64 << 20 };

static void write_archive(struct fuzz_input pickle)
{
    static const char zeros[64];
    struct torch_writer w = {.n = 0};

    torch_entry(&w, "data.pkl", pickle.at, pickle.n);
    torch_entry(&w, "data/0", zeros, 64);
    torch_entry(&w, "data/1", zeros, 8);
    torch_entry(&w, "data/2", zeros, 0);
    torch_end(&w);
    fuzz_write("pytorch_model.bin", w.file.at, w.file.n);
    free(w.file.at);
}

/* Every tensor can be found and read, and nothing beyond it can. */
static void read_all(const struct sb_tensors *set)
{
    for (int32_t i = 0; i < sb_tensors_count(set); i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        char *bytes = malloc(t->bytes ? t->bytes : 1);
        uint64_t elements = 1;

        FUZZ_CHECK(bytes != NULL);
        FUZZ_CHECK(sb_tensors_find(set, t->name) == t);
        FUZZ_CHECK(t->rank >= 0 && t->rank <= SB_TENSOR_RANK_MAX && sb_tensors_file(set, t)[0]);
        for (int32_t d = 0; d < t->rank; d++)
            elements = t->shape[d] == 0 || elements == 0 ? 0 : elements * (uint64_t)t->shape[d];
        FUZZ_CHECK(elements <= t->bytes && t->bytes <= 8 * elements);
        FUZZ_CHECK(sb_tensors_read(set, t, 0, bytes, t->bytes) == SPECBATCH_OK);
        FUZZ_CHECK(sb_tensors_read(set, t, t->bytes, bytes, 1) == SPECBATCH_E_INVALID);
        free(bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_input input = {data, size};
    struct sb_tensors *set = NULL;

    fuzz_remove_files();
    if (size > 0 && *data == '=')
        fuzz_write("pytorch_model.bin", data + 1, size - 1);
    else
        write_archive(input);
    if (fuzz_status(sb_tensors_open(&set, &fuzz_mem, fuzz_dir())) == SPECBATCH_OK)
        read_all(set);
    else
        FUZZ_CHECK(set == NULL);
    sb_tensors_close(set);
    fuzz_check_memory(0, MEMORY);
    return 0;
}

/* GGUF files: what is accepted has every value and every tensor inside the file. Of its metadata,
 * a configuration and a tokenizer are made. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/quantiser.h"
#include "fuzz/support/fuzz.h"
#include "model/gguf_model.h"
#include "quant.h"
#include "text/chat.h"

enum { MEMORY = 64 << 20 };

/* Reads all that is in an array, in the way that its type allows. */
static void walk(struct sb_gguf_value array)
{
    struct sb_gguf_value element;
    volatile unsigned sum = 0; /* makes the reads happen */
    double number;
    int flag;

    while (sb_gguf_take(&array, &element)) {
        const char *text = sb_gguf_string(&element);
        for (uint64_t i = 0; text && i < element.count; i++)
            sum = sum + (unsigned char)text[i];
        FUZZ_CHECK(!sb_gguf_double(&element, &number) || isfinite(number));
        FUZZ_CHECK(!sb_gguf_bool(&element, &flag) || flag == (flag != 0));
    }
}

static void walk_keys(const struct sb_gguf *gguf)
{
    struct sb_gguf_value value;
    const char *key;
    size_t n, n_entry;

    for (size_t i = 0; (key = sb_gguf_key(gguf, i, &n)) != NULL; i++) {
        const unsigned char *entry = sb_gguf_entry(gguf, i, &n_entry);
        char *name = malloc(n + 1);
        volatile unsigned last = entry[n_entry - 1]; /* makes the read happen */
        (void)last;
        FUZZ_CHECK(n_entry > 8 + n + 4 && memcmp(entry + 8, key, n) == 0);
        FUZZ_CHECK(name && n > 0);
        memcpy(name, key, n);
        name[n] = '\0';
        FUZZ_CHECK(sb_gguf_get(gguf, name, &value));
        walk(value);
        free(name);
    }
}

/* Reads the rows of a matrix, whatever bits its blocks have, as floats and as weights. */
static void widen_rows(const struct sb_tensor *t, const char *bytes)
{
    const size_t n = t->rank == 2 && t->shape[1] > 0 ? (size_t)t->shape[1] : 0;
    enum sb_dtype dtype;
    float *row;
    void *made;

    if (n == 0 || t->bytes == 0 || !sb_tensor_dtype(&dtype, t))
        return;
    FUZZ_CHECK(t->bytes == (uint64_t)t->shape[0] * sb_dtype_row_bytes(dtype, n));
    FUZZ_CHECK((row = malloc(n * sizeof *row)) != NULL);
    FUZZ_CHECK((made = malloc(sb_dtype_row_bytes(SB_Q8_0, n))) != NULL);
    for (int64_t r = 0; r < t->shape[0]; r++) {
        sb_convert(row, SB_F32, bytes + (size_t)r * sb_dtype_row_bytes(dtype, n), dtype, n);
        sb_convert_rows(made, SB_Q8_0, row, SB_F32, 1, n);
        sb_convert_rows(made, SB_Q4_0, row, SB_F32, 1, n);
    }
    free(row);
    free(made);
}

static void read_all(const struct sb_gguf *gguf, const struct sb_config *config)
{
    struct sb_tensors *set = NULL;

    if (fuzz_status(sb_gguf_tensors(&set, &fuzz_mem, gguf, config)) != SPECBATCH_OK) {
        FUZZ_CHECK(set == NULL);
        return;
    }
    for (int32_t i = 0; i < sb_tensors_count(set); i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        char *bytes = malloc(t->bytes ? t->bytes : 1);
        FUZZ_CHECK(bytes && sb_tensors_file(set, t)[0]);
        FUZZ_CHECK(i == 0 || strcmp(sb_tensors_at(set, i - 1)->name, t->name) < 0);
        FUZZ_CHECK(sb_tensors_read(set, t, 0, bytes, t->bytes) == SPECBATCH_OK);
        FUZZ_CHECK(sb_tensors_read(set, t, t->bytes, bytes, 1) == SPECBATCH_E_INVALID);
        widen_rows(t, bytes);
        free(bytes);
    }
    sb_tensors_find(set, "model.layers.0.self_attn.q_proj.weight");
    sb_tensors_close(set);
}

static void check_config(const struct sb_gguf *gguf, const struct sb_config *c)
{
    FUZZ_CHECK(c->arch && c->vocab > 0 && c->hidden > 0 && c->inter > 0 && c->layers > 0);
    FUZZ_CHECK(c->heads > 0 && c->kv_heads > 0 && c->head_dim > 0 && c->context > 0);
    FUZZ_CHECK(c->heads % c->kv_heads == 0 && isfinite(c->eps) && c->eps > 0);
    FUZZ_CHECK((int64_t)c->heads * c->head_dim <= INT32_MAX);
    FUZZ_CHECK((c->experts > 0) == (c->arch->router != NULL) && c->experts <= SB_EXPERTS_MAX);
    FUZZ_CHECK(c->chosen <= c->experts && (c->chosen > 0) == (c->experts > 0));
    FUZZ_CHECK(c->rope.rot_dim > 0 && c->rope.rot_dim <= c->head_dim && c->rope.rot_dim % 2 == 0);
    FUZZ_CHECK(isfinite(c->rope.theta) && isfinite(c->rope.attention_factor));
    FUZZ_CHECK(c->n_eos >= 0 && c->n_eos <= SB_EOS_MAX && c->bos >= -1 && c->bos < c->vocab);
    for (int32_t i = 0; i < c->n_eos; i++)
        FUZZ_CHECK(c->eos[i] >= 0 && c->eos[i] < c->vocab);
    read_all(gguf, c);
}

static void read_text(const struct sb_gguf *gguf, const char *path)
{
    static const char text[] = " Hello  <s>ab\n 12345 \xE2\x96\x81\xC3\xA9<|im_end|>";
    struct sb_bytes decoded = {.mem = &fuzz_mem};
    struct sb_ids ids = {.mem = &fuzz_mem};
    struct sb_tokenizer *t = NULL;
    int32_t format;

    fuzz_status(sb_chat_detect_gguf(&format, &fuzz_mem, gguf));
    if (fuzz_status(sb_tokenizer_load_gguf(&t, &fuzz_mem, path, gguf)) == SPECBATCH_OK && t) {
        fuzz_status(sb_tokenizer_encode(t, text, sizeof text - 1, 0, &ids));
        FUZZ_CHECK(sb_tokenizer_decode(t, ids.data, ids.n, SPECBATCH_TEXT_KEEP_SPECIAL, &decoded) ==
                   SPECBATCH_OK);
    }
    sb_bytes_clear(&decoded);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sb_log log = {fuzz_log, NULL};
    struct sb_gguf *gguf = NULL;
    struct sb_config config;
    char path[1024];

    fuzz_remove_files();
    fuzz_write("model.gguf", data, size);
    FUZZ_CHECK(sb_file_join(path, fuzz_dir(), "model.gguf") == SPECBATCH_OK);
    if (fuzz_status(sb_gguf_open(&gguf, &fuzz_mem, path)) == SPECBATCH_OK) {
        for (int32_t i = 0; i < sb_gguf_n_tensors(gguf); i++) {
            const struct sb_gguf_tensor *t = sb_gguf_tensor(gguf, i);
            FUZZ_CHECK(t->offset <= size && t->bytes <= size - t->offset);
        }
        walk_keys(gguf);
        if (fuzz_status(sb_gguf_config(&config, &log, gguf)) == SPECBATCH_OK)
            check_config(gguf, &config);
        read_text(gguf, path);
    } else {
        FUZZ_CHECK(gguf == NULL);
    }
    sb_gguf_close(gguf);
    fuzz_check_memory(0, MEMORY);
    return 0;
}

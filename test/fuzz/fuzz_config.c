/* config.json and, behind the separator, generation_config.json: what is accepted is a geometry
 * that the forward pass can run, with products that do not overflow. */
#include <math.h>

#include "fuzz/support/fuzz.h"
#include "model/config.h"

enum { MEMORY = 64 << 20 };

static void check_rope(const struct sb_config *c)
{
    const struct sb_rope_config *rope = &c->rope;

    FUZZ_CHECK(rope->rot_dim > 0 && rope->rot_dim <= c->head_dim && rope->rot_dim % 2 == 0);
    FUZZ_CHECK(isfinite(rope->theta) && rope->theta > 0);
    FUZZ_CHECK(isfinite(rope->attention_factor));
    if (rope->kind != SB_ROPE_DEFAULT)
        FUZZ_CHECK(isfinite(rope->factor) && rope->factor > 0);
    if (rope->kind == SB_ROPE_LLAMA3)
        FUZZ_CHECK(isfinite(rope->low_freq) && isfinite(rope->high_freq));
    if (rope->kind == SB_ROPE_YARN)
        FUZZ_CHECK(isfinite(rope->beta_fast) && isfinite(rope->beta_slow));
    if (rope->kind == SB_ROPE_LLAMA3 || rope->kind == SB_ROPE_YARN)
        FUZZ_CHECK(isfinite(rope->original_context) && rope->original_context > 0);
}

static void check_config(const struct sb_config *c)
{
    FUZZ_CHECK(c->arch && c->vocab > 0 && c->hidden > 0 && c->inter > 0 && c->layers > 0);
    FUZZ_CHECK(c->heads > 0 && c->kv_heads > 0 && c->head_dim > 0 && c->context > 0);
    FUZZ_CHECK(c->heads % c->kv_heads == 0);
    FUZZ_CHECK((int64_t)c->heads * c->head_dim <= INT32_MAX);
    FUZZ_CHECK((c->experts > 0) == (c->arch->router != NULL) && c->experts <= SB_EXPERTS_MAX);
    FUZZ_CHECK(c->chosen <= c->experts && (c->chosen > 0) == (c->experts > 0));
    FUZZ_CHECK(isfinite(c->eps) && c->eps > 0);
    FUZZ_CHECK(c->n_eos >= 0 && c->n_eos <= SB_EOS_MAX);
    for (int32_t i = 0; i < c->n_eos; i++)
        FUZZ_CHECK(c->eos[i] >= 0 && c->eos[i] < c->vocab);
    FUZZ_CHECK(c->bos >= -1 && c->bos < c->vocab);
    check_rope(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sb_log log = {fuzz_log, NULL};
    struct fuzz_input input = {data, size};
    struct fuzz_input first = fuzz_part(&input);
    struct sb_config config;

    fuzz_remove_files();
    fuzz_write("config.json", first.at, first.n);
    if (input.n > 0)
        fuzz_write("generation_config.json", input.at, input.n);
    if (fuzz_status(sb_config_load(&config, &fuzz_mem, &log, fuzz_dir())) == SPECBATCH_OK)
        check_config(&config);
    fuzz_check_memory(0, MEMORY);
    return 0;
}

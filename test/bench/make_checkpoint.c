/*
 * make_checkpoint: writes a checkpoint of any geometry with random weights, to measure with.
 *
 *   make_checkpoint OUT_DIR --arch qwen3 --hidden 1024 --inter 3072 --layers 28 --heads 16
 *                   --kv-heads 8 --head-dim 128 --vocab 151936 --context 2048 [--tied]
 *                   --dtype bf16 [--seed N] [--std 0.02] [--sparse]
 *                   [--experts 128 --chosen 8]       of a mixture: --inter is the width of each
 *
 * It writes config.json and model.safetensors, and no tokenizer. Speed depends on shapes and types
 * and not on values, so random weights measure the same as trained ones; only acceptance needs real
 * models. Norms are ones and biases zeros, as they are when a training begins. The tensors' names
 * and shapes follow from the library's own table of architectures (model/config.h).
 *
 * The list of tensors is walked twice, for the header and for the data, so that the program never
 * holds more than a block of weights in memory. A weight is the sum of four uniform 16-bit numbers,
 * which is close to a normal distribution and has exactly the standard deviation that was asked
 * for. It takes one call of xoshiro256**, so a gigabyte of weights is made in seconds.
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/config.h"
#include "model/tensor_specs.h"

struct geometry {
    const struct sb_arch *arch;
    int64_t hidden, inter, layers, heads, kv_heads, head_dim, vocab, context, experts, chosen;
    int tied;
    const char *dtype; /* as in a safetensors file: "F32", "BF16", "F16" */
    uint64_t seed;
    double std;
    int is_sparse; /* matrices are left as holes in the file: zeros that take no time and no room */
};

/* ------------------------------------------------------------------------ random numbers */

/* xoshiro256** 1.0 (Blackman and Vigna), seeded by splitmix64. */
struct random {
    uint64_t s[4];
};

static void random_seed(struct random *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        r->s[i] = z ^ z >> 31;
    }
}

static uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t random_next(struct random *r)
{
    uint64_t *s = r->s;
    const uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

/* A number of mean 0 and standard deviation 1. The sum of four uniform numbers has a variance of
 * 4 / 12 times the square of their range. */
static float random_weight(struct random *r)
{
    const uint64_t x = random_next(r);
    const int32_t sum = (int32_t)(x & 0xffff) + (int32_t)(x >> 16 & 0xffff) +
                        (int32_t)(x >> 32 & 0xffff) + (int32_t)(x >> 48);

    return (float)(sum - 131070) * (1.7320508f / 65536.0f);
}

/* ------------------------------------------------------------------------------ elements */

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t to_bf16(float value)
{
    const uint32_t bits = float_bits(value);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Round to nearest; values below f16's normal range become zero. */
static uint16_t to_f16(float value)
{
    const uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000u;
    const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u);

    if (rounded < 113u << 23)
        return (uint16_t)sign;
    return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
}

/* Converts n floats to the type asked for and returns how many bytes that gave. */
static size_t convert(unsigned char *to, const float *values, size_t n, const char *dtype)
{
    const int is_bf16 = strcmp(dtype, "BF16") == 0;

    if (strcmp(dtype, "F32") == 0) {
        memcpy(to, values, 4 * n);
        return 4 * n;
    }
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = is_bf16 ? to_bf16(values[i]) : to_f16(values[i]);
        memcpy(to + 2 * i, &half, 2);
    }
    return 2 * n;
}

static int write_tensor(FILE *out, const char *name, int64_t n, const struct geometry *g,
                        struct random *r)
{
    enum { BLOCK = 1 << 14 };
    static float values[BLOCK];
    static unsigned char bytes[4 * BLOCK];
    const int is_norm = strstr(name, "norm") != NULL, is_bias = strstr(name, ".bias") != NULL;
    const float std = (float)g->std;

    if (g->is_sparse && !is_norm)
        return fseeko(out, (off_t)(n * (strcmp(g->dtype, "F32") == 0 ? 4 : 2)), SEEK_CUR) == 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? (size_t)(n - at) : BLOCK;
        size_t size;
        for (size_t i = 0; i < count; i++)
            values[i] = is_norm ? 1.0f : is_bias ? 0.0f : random_weight(r) * std;
        size = convert(bytes, values, count, g->dtype);
        if (fwrite(bytes, 1, size, out) != size)
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------------ the tensor list */

/* A walk over the tensors, which adds each one's entry to the header or writes its data. */
struct walk {
    const struct geometry *g;
    FILE *out;
    struct random random;
    int writes_data, failed;
    int64_t offset; /* bytes of data so far */
};

static void visit(struct walk *w, const char *name, int64_t rows, int64_t cols)
{
    const int64_t n = rows * (cols ? cols : 1);
    const int64_t end = w->offset + n * (strcmp(w->g->dtype, "F32") == 0 ? 4 : 2);

    if (w->writes_data) {
        w->failed |= !write_tensor(w->out, name, n, w->g, &w->random);
    } else {
        fprintf(w->out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", w->offset ? "," : "", name,
                w->g->dtype, (long long)rows);
        if (cols)
            fprintf(w->out, ",%lld", (long long)cols);
        fprintf(w->out, "],\"data_offsets\":[%lld,%lld]}", (long long)w->offset, (long long)end);
    }
    w->offset = end;
}

/* The configuration, as far as a layer's tensors depend on it. Biases are as the architecture has
 * them by default, which config.json says too. */
static struct sb_config config_of(const struct geometry *g)
{
    const struct sb_arch *a = g->arch;

    return (struct sb_config){
        .arch = a,
        .hidden = (int32_t)g->hidden,
        .inter = (int32_t)g->inter,
        .experts = (int32_t)g->experts,
        .heads = (int32_t)g->heads,
        .kv_heads = (int32_t)g->kv_heads,
        .head_dim = (int32_t)g->head_dim,
        .has_qkv_bias = sb_arch_has_bias(a->qkv_bias, a->default_attention_bias),
        .has_o_bias = sb_arch_has_bias(a->o_bias, a->default_attention_bias),
        .has_mlp_bias = sb_arch_has_bias(a->mlp_bias, 0),
        .has_head_norms = sb_arch_has_head_norms(a, 0),
        .has_shared = a->default_shared,
        .dense_layers = a->default_dense,
        .dense_inter = (int32_t)g->inter};
}

static int32_t visit_of_layer(void *walk, const char *name, int32_t rows, int32_t n_in,
                              int32_t expert)
{
    (void)expert;
    visit(walk, name, rows, n_in);
    return 0;
}

static void visit_all(struct walk *w)
{
    const struct geometry *g = w->g;
    const struct sb_config config = config_of(g);

    visit(w, "model.embed_tokens.weight", g->vocab, g->hidden);
    for (int64_t i = 0; i < g->layers; i++)
        sb_layer_tensors_visit(&config, (int32_t)i, visit_of_layer, w);
    visit(w, "model.norm.weight", g->hidden, 0);
    if (!g->tied)
        visit(w, "lm_head.weight", g->vocab, g->hidden);
}

/* --------------------------------------------------------------------------- the files */

static int write_config(const char *dir, const struct geometry *g)
{
    char path[1200];
    FILE *f;

    snprintf(path, sizeof path, "%s/config.json", dir);
    if ((f = fopen(path, "w")) == NULL)
        return 0;
    fprintf(f, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
            g->arch->class_name, g->arch->model_type);
    fprintf(f, "  \"attention_bias\": %s,\n  \"hidden_act\": \"silu\",\n",
            g->arch->default_attention_bias ? "true" : "false");
    fprintf(f,
            "  \"hidden_size\": %lld,\n  \"intermediate_size\": %lld,\n  \"num_hidden_layers\": "
            "%lld,\n",
            (long long)g->hidden, (long long)g->inter, (long long)g->layers);
    if (g->experts > 0)
        fprintf(f,
                "  \"num_local_experts\": %lld,\n  \"num_experts_per_tok\": %lld,\n"
                "  \"moe_intermediate_size\": %lld,\n  \"norm_topk_prob\": true,\n",
                (long long)g->experts, (long long)g->chosen, (long long)g->inter);
    fprintf(f,
            "  \"num_attention_heads\": %lld,\n  \"num_key_value_heads\": %lld,\n  \"head_dim\": "
            "%lld,\n",
            (long long)g->heads, (long long)g->kv_heads, (long long)g->head_dim);
    fprintf(f, "  \"vocab_size\": %lld,\n  \"max_position_embeddings\": %lld,\n",
            (long long)g->vocab, (long long)g->context);
    fprintf(f, "  \"rms_norm_eps\": 1e-06,\n  \"tie_word_embeddings\": %s\n}\n",
            g->tied ? "true" : "false");
    return fclose(f) == 0;
}

/* A safetensors file begins with its header's length in eight bytes. The length is known only after
 * the header has been written, so those bytes are filled in afterwards. */
static int write_weights(const char *dir, const struct geometry *g)
{
    struct walk w = {.g = g};
    unsigned char length[8] = {0};
    char path[1200];
    long end;

    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if ((w.out = fopen(path, "wb")) == NULL)
        return 0;
    fwrite(length, 1, sizeof length, w.out);
    fputc('{', w.out);
    visit_all(&w);
    fputc('}', w.out);
    while ((end = ftell(w.out)) % 8 != 0)
        fputc(' ', w.out);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)(end - 8) >> 8 * i);
    w.failed = fseek(w.out, 0, SEEK_SET) != 0 ||
               fwrite(length, 1, sizeof length, w.out) != sizeof length ||
               fseek(w.out, end, SEEK_SET) != 0;
    random_seed(&w.random, g->seed);
    w.writes_data = 1;
    w.offset = 0;
    visit_all(&w);
    w.failed |= fflush(w.out) != 0 || ftruncate(fileno(w.out), (off_t)(end + w.offset)) != 0;
    return fclose(w.out) == 0 && !w.failed;
}

/* ------------------------------------------------------------------------ the command line */

static const char *find_dtype(const char *name)
{
    static const char *const names[][2] = {{"f32", "F32"}, {"bf16", "BF16"}, {"f16", "F16"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return NULL;
}

/* Takes one option with its value. Returns 0 when it is unknown or its value makes no sense. */
static int set_option(struct geometry *g, const char *name, const char *value)
{
    const struct {
        const char *name;
        int64_t *at, most;
    } numbers[] = {
        {"--hidden", &g->hidden, SB_HIDDEN_MAX},       {"--inter", &g->inter, SB_INTER_MAX},
        {"--layers", &g->layers, SB_LAYERS_MAX},       {"--heads", &g->heads, SB_HEADS_MAX},
        {"--kv-heads", &g->kv_heads, SB_HEADS_MAX},    {"--vocab", &g->vocab, SB_VOCAB_MAX},
        {"--head-dim", &g->head_dim, SB_HEAD_DIM_MAX}, {"--context", &g->context, SB_CONTEXT_MAX},
        {"--experts", &g->experts, SB_EXPERTS_MAX},    {"--chosen", &g->chosen, SB_EXPERTS_MAX},
    };
    char *end;

    if (strcmp(name, "--arch") == 0)
        return (g->arch = sb_arch_by_type(value)) != NULL;
    if (strcmp(name, "--dtype") == 0)
        return (g->dtype = find_dtype(value)) != NULL;
    if (strcmp(name, "--seed") == 0) {
        g->seed = strtoull(value, &end, 10);
        return *end == '\0';
    }
    if (strcmp(name, "--std") == 0) {
        g->std = strtod(value, &end);
        return *end == '\0' && g->std >= 0.0 && isfinite(g->std);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].at = strtoll(value, &end, 10);
            return *end == '\0' && *numbers[i].at > 0 && *numbers[i].at <= numbers[i].most;
        }
    return 0;
}

static int usage(const char *program)
{
    char archs[256];

    sb_arch_list(archs, sizeof archs);
    fprintf(stderr,
            "usage: %s OUT_DIR [--arch NAME] [--hidden N] [--inter N] [--layers N]\n"
            "  [--heads N] [--kv-heads N] [--head-dim N] [--vocab N] [--context N] [--tied]\n"
            "  [--dtype f32|bf16|f16] [--seed N] [--std X] [--sparse]\n"
            "NAME: one of %s\n",
            program, archs);
    return 2;
}

int main(int argc, char **argv)
{
    struct geometry g = {.arch = sb_arch_by_type("qwen3"),
                         .hidden = 1024,
                         .inter = 3072,
                         .layers = 28,
                         .heads = 16,
                         .kv_heads = 8,
                         .head_dim = 128,
                         .vocab = 151936,
                         .context = 2048,
                         .dtype = "BF16",
                         .seed = 1,
                         .std = 0.02};

    if (argc < 2 || argv[1][0] == '-')
        return usage(argv[0]);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--tied") == 0) {
            g.tied = 1;
        } else if (strcmp(argv[i], "--sparse") == 0) {
            g.is_sparse = 1;
        } else if (i + 1 == argc || !set_option(&g, argv[i], argv[i + 1])) {
            fprintf(stderr, "%s: cannot use %s %s\n", argv[0], argv[i],
                    i + 1 < argc ? argv[i + 1] : "(no value)");
            return 2;
        } else {
            i++;
        }
    }
    if ((mkdir(argv[1], 0777) != 0 && errno != EEXIST) || !write_config(argv[1], &g) ||
        !write_weights(argv[1], &g)) {
        fprintf(stderr, "%s: cannot write %s: %s\n", argv[0], argv[1], strerror(errno));
        return 1;
    }
    return 0;
}

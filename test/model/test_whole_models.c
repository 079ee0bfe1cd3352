/*
 * Models that see pictures too, of which the model of texts is a part: config.json has it as
 * text_config, and its tensors lie under other names, beside those of the rest. A checkpoint of
 * texts is made a part of such a one, in each of the two ways in which transformers has named
 * tensors; then the same tensors must be loaded, as the digest tells, and the others not.
 */
#include "support/model_files.h"

#include "model/model.h"
#include "sbtest.h"

#define TEXTS "test/data/models/gemma3_bf16"

/* Appends text. */
static void add(char *to, size_t *n, const char *from, size_t length)
{
    memcpy(to + *n, from, length);
    *n += length;
}

/* Whether a tensor's name begins here: behind the quotation mark that opens it. */
static int begins_name(const char *header, const char *at)
{
    return at > header && at[-1] == '"' &&
           (strncmp(at, "model.", 6) == 0 || strncmp(at, "lm_head.", 8) == 0);
}

/* Writes the weights of the texts' model with `inner` in place of "model." and a tensor more. */
static void write_weights(const struct test_dir *dir, const char *inner)
{
    size_t n, length = 0, made = 8;
    char *file = test_read(TEXTS, "model.safetensors", &n), *out, tower[128];

    CHECK(file != NULL);
    memcpy(&length, file, 8);
    snprintf(tower, sizeof tower,
             "\"vision_tower.patch.weight\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":"
             "[%zu,%zu]},",
             n - 8 - length, n - length);
    out = malloc(n + 64 * 1024);
    CHECK(out != NULL);
    for (const char *at = file + 8; at < file + 8 + length; at++) {
        if (begins_name(file + 8, at)) {
            add(out, &made, inner, strlen(inner));
            at += strlen("model.") - 1;
            continue;
        }
        out[made++] = *at;
        if (at == file + 8)
            add(out, &made, tower, strlen(tower));
    }
    while (made % 8 != 0)
        out[made++] = ' ';
    length = made - 8;
    memcpy(out, &length, 8);
    memcpy(&length, file, 8);
    add(out, &made, file + 8 + length, n - 8 - length);
    add(out, &made, file, 8);
    test_write(dir, "model.safetensors", out, made);
    free(out);
    free(file);
}

/* Writes config.json with that of the texts inside. */
static void write_config(const struct test_dir *dir)
{
    static const char head[] = "{\"model_type\":\"gemma3\",\"architectures\":"
                               "[\"Gemma3ForConditionalGeneration\"],\"text_config\":";
    size_t n, made = 0;
    char *text = test_read(TEXTS, "config.json", &n), out[4096], *name;

    CHECK(text != NULL && n + sizeof head < sizeof out);
    text[n] = '\0';
    name = strstr(text, "Gemma3ForCausalLM");
    CHECK(name != NULL);
    add(out, &made, head, strlen(head));
    /* a text_config does not name a class */
    add(out, &made, text, (size_t)(strstr(text, "\"architectures\"") - text));
    name = strstr(name, "],") + 2;
    add(out, &made, name, strlen(name));
    add(out, &made, ",\"vision_config\":{}}", strlen(",\"vision_config\":{}}"));
    test_write(dir, "config.json", out, made);
    free(text);
}

static void keep_line(void *user, int32_t level, const char *line)
{
    (void)level;
    snprintf(user, 300, "%s", line);
}

static void check_whole(const char *inner)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const struct test_dir dir = test_dir_make();
    struct specbatch_model *texts = NULL, *whole = NULL;
    char line[300] = "", path[128];

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    write_weights(&dir, inner);
    write_config(&dir);
    options.log = keep_line;
    options.log_user = line;
    CHECK_OK(specbatch_model_open(&texts, TEXTS, NULL));
    CHECK_OK(specbatch_model_open(&whole, dir.path, &options));
    CHECK_STR(specbatch_model_digest(whole), specbatch_model_digest(texts));
    CHECK(strstr(line, "1 tensors of the checkpoint are not used, the first is "
                       "vision_tower.patch.weight") != NULL);
    specbatch_model_close(whole);
    CHECK_OK(specbatch_convert(path, dir.path, NULL));
    CHECK_OK(specbatch_model_open(&whole, path, NULL));
    CHECK_INT(whole->config.window, 70);
    specbatch_model_close(whole);
    specbatch_model_close(texts);
    test_dir_remove(&dir);
}

static void names_of_old_checkpoints(void)
{
    check_whole("language_model.model.");
}

static void names_of_new_checkpoints(void)
{
    check_whole("model.language_model.");
}

/* A tensor that is not there is missed by the name that the files give to the others. */
static void a_missing_tensor_is_named(void)
{
    const struct test_dir dir = test_dir_make();
    struct specbatch_model *model = NULL;
    char *file, *name;
    size_t n;

    write_weights(&dir, "language_model.model.");
    write_config(&dir);
    file = test_read(dir.path, "model.safetensors", &n);
    name = file ? strstr(file + 8, "language_model.model.norm.weight") : NULL;
    CHECK(name != NULL);
    name[0] = 'x';
    test_write(&dir, "model.safetensors", file, n);
    CHECK_ERROR(specbatch_model_open(&model, dir.path, NULL), SPECBATCH_E_FORMAT,
                "tensor language_model.model.norm.weight is missing");
    free(file);
    test_dir_remove(&dir);
}

TEST_BEGIN
RUN(names_of_old_checkpoints);
RUN(names_of_new_checkpoints);
RUN(a_missing_tensor_is_named);
TEST_END

/* Comparing tokenizers; see same_tokenizer.h. */
#include "support/same_tokenizer.h"

#include "json.h"
#include "specbatch.h"
#include "support/model_files.h"

/* Whether two tokenizers make the same ids of a text, and the same texts of these. */
static int same(const struct sb_tokenizer *a, const struct sb_tokenizer *b, const char *text,
                size_t n, uint32_t flags)
{
    struct sb_ids ids[2] = {{.mem = &test_mem}, {.mem = &test_mem}};
    struct sb_bytes texts[2] = {{.mem = &test_mem}, {.mem = &test_mem}};
    const struct sb_tokenizer *const both[] = {a, b};
    int32_t rc[2];

    for (int i = 0; i < 2; i++) {
        rc[i] = sb_tokenizer_encode(both[i], text, n, flags, &ids[i]);
        sb_tokenizer_decode(both[i], ids[0].data, ids[0].n, 0, &texts[i]);
        sb_tokenizer_decode(both[i], ids[0].data, ids[0].n, SPECBATCH_TEXT_KEEP_SPECIAL, &texts[i]);
    }
    const int good = rc[0] == rc[1] && ids[0].n == ids[1].n && texts[0].n == texts[1].n &&
                     (ids[0].n == 0 ||
                      memcmp(ids[0].data, ids[1].data, ids[0].n * sizeof(int32_t)) == 0) &&
                     (texts[0].n == 0 || memcmp(texts[0].data, texts[1].data, texts[0].n) == 0);
    for (int i = 0; i < 2; i++) {
        sb_ids_clear(&ids[i]);
        sb_bytes_clear(&texts[i]);
    }
    return good;
}

int same_tokenizer(const struct sb_tokenizer *a, const struct sb_tokenizer *b, uint32_t flags,
                   const char *goldens)
{
    size_t length = 0, n;
    char *lines = test_read(".", goldens, &length), *line = lines;
    int count = 0;

    while (lines && count >= 0 && *line) {
        struct sb_json *doc = NULL;
        char *end = strchr(line, '\n');
        const char *text = NULL;
        if (sb_json_parse(&doc, &test_mem, line, (size_t)(end - line), "golden") == SPECBATCH_OK)
            text = sb_json_string(sb_json_get(sb_json_root(doc), "text"), &n);
        if (text && !same(a, b, text, n, flags)) {
            printf("     %.*s\n", (int)(end - line), line);
            count = -2; /* which ends the loop */
        }
        sb_json_free(doc);
        count += text != NULL; /* some lines have ids only */
        line = end + 1;
    }
    free(lines);
    return count;
}

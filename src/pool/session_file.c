/* Writing and reading session files; session_file.h draws them. */
#include "pool/session_file.h"

#include <string.h>

#include "alloc.h"
#include "status.h"

enum {
    VERSION = 1,
    MAGIC = 12,
    DIGEST = SB_DIGEST_TEXT - 1,
    MODEL = DIGEST + SB_FINGERPRINT + 4 * 4,
    HEAD = MAGIC + 7 * 4 + 2 * MODEL
};
static const char magic[MAGIC + 1] = "specbatch-kv";

int sb_session_block_bytes(const struct sb_session_head *head, const struct sb_session_model *model,
                           size_t *bytes)
{
    size_t n = (size_t)head->block_columns;

    return sb_mul_size(n, (size_t)model->layers, &n) && sb_mul_size(n, 2, &n) &&
           sb_mul_size(n, (size_t)model->kv_heads, &n) &&
           sb_mul_size(n, (size_t)model->head_dim, &n) &&
           sb_mul_size(n, (size_t)model->element_bytes, bytes);
}

/* ---------------------------------------------------------------------------- numbers */

static unsigned char *put_text(unsigned char *at, const char *text, size_t size)
{
    const size_t n = strlen(text);

    memset(at, 0, size);
    memcpy(at, text, n < size ? n : size);
    return at + size;
}

static unsigned char *put_model(unsigned char *at, const struct sb_session_model *model)
{
    at = put_text(at, model->digest, DIGEST);
    at = put_text(at, model->fingerprint, SB_FINGERPRINT);
    at = sb_put_number(at, model->layers);
    at = sb_put_number(at, model->kv_heads);
    at = sb_put_number(at, model->head_dim);
    return sb_put_number(at, model->element_bytes);
}

/* A text may fill its place up to the last byte; the struct has room for a NUL behind the digest,
 * and a fingerprint without one loses its last byte. */
static const unsigned char *get_model(const unsigned char *at, struct sb_session_model *model)
{
    memcpy(model->digest, at, DIGEST);
    model->digest[DIGEST] = '\0';
    at += DIGEST;
    memcpy(model->fingerprint, at, SB_FINGERPRINT);
    model->fingerprint[SB_FINGERPRINT - 1] = '\0';
    at = sb_get_number(at + SB_FINGERPRINT, &model->layers);
    at = sb_get_number(at, &model->kv_heads);
    at = sb_get_number(at, &model->head_dim);
    return sb_get_number(at, &model->element_bytes);
}

/* ---------------------------------------------------------------------------- writing */

static int32_t write_head(struct sb_checked_out *out, const struct sb_session_head *head)
{
    unsigned char bytes[HEAD], *at = put_text(bytes, magic, MAGIC);
    int32_t rc = SPECBATCH_OK;

    at = sb_put_number(at, VERSION);
    at = sb_put_number(at, head->block_columns);
    at = sb_put_number(at, head->span);
    at = sb_put_number(at, head->n_ids);
    at = sb_put_number(at, head->n_spanned);
    at = sb_put_number(at, head->n_blocks);
    at = sb_put_number(at, head->n_drafted);
    at = put_model(at, &head->target);
    put_model(at, &head->draft);
    SB_TRY(sb_checked_write(out, bytes, sizeof bytes));
    SB_TRY(sb_checked_end_part(out));
done:
    return rc;
}

int32_t sb_session_create(struct sb_checked_out *out, const char *path,
                          const struct sb_session_head *head, const int32_t *ids)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_checked_create(out, path));
    SB_TRY(write_head(out, head));
    SB_TRY(sb_checked_write_numbers(out, ids, (size_t)head->n_ids));
    SB_TRY(sb_checked_end_part(out));
done:
    return rc;
}

int32_t sb_session_write_block(struct sb_checked_out *out, const void *columns, size_t bytes)
{
    const int32_t rc = sb_checked_write(out, columns, bytes);

    return rc == SPECBATCH_OK ? sb_checked_end_part(out) : rc;
}

/* ---------------------------------------------------------------------------- reading */

int32_t sb_session_skip(struct sb_session_in *in, size_t bytes)
{
    char piece[4096];
    int32_t rc = SPECBATCH_OK;

    while (bytes > 0 && rc == SPECBATCH_OK) {
        const size_t n = bytes < sizeof piece ? bytes : sizeof piece;
        rc = sb_checked_read(&in->from, piece, n);
        bytes -= n;
    }
    return rc;
}

static void parse_head(struct sb_session_head *head, const unsigned char *at)
{
    at = sb_get_number(at, &head->block_columns);
    at = sb_get_number(at, &head->span);
    at = sb_get_number(at, &head->n_ids);
    at = sb_get_number(at, &head->n_spanned);
    at = sb_get_number(at, &head->n_blocks);
    at = sb_get_number(at, &head->n_drafted);
    at = get_model(at, &head->target);
    get_model(at, &head->draft);
}

static int is_shape(const struct sb_session_model *model)
{
    return model->layers > 0 && model->kv_heads > 0 && model->head_dim > 0 &&
           model->element_bytes > 0;
}

static int numbers_agree(const struct sb_session_head *head)
{
    return head->block_columns > 0 && head->span >= 0 && head->n_ids > 0 && head->n_spanned >= 0 &&
           head->n_spanned <= head->n_ids && head->n_blocks >= 0 &&
           head->n_blocks <= head->n_ids / head->block_columns && head->n_drafted >= 0 &&
           head->n_drafted <= head->n_blocks && is_shape(&head->target) &&
           (head->n_drafted == 0 || is_shape(&head->draft));
}

/* The bytes of the whole file that the head describes. Returns 0 when they do not fit in size_t. */
static int file_bytes(const struct sb_session_head *head, size_t *bytes)
{
    size_t target, draft = 0, all = HEAD + SB_CHECK + SB_CHECK;

    return sb_session_block_bytes(head, &head->target, &target) &&
           (head->n_drafted == 0 || sb_session_block_bytes(head, &head->draft, &draft)) &&
           sb_mul_size(draft, (size_t)head->n_drafted, &draft) &&
           sb_add_size(target, SB_CHECK, &target) &&
           sb_mul_size(target, (size_t)head->n_blocks, &target) && sb_add_size(all, target, &all) &&
           sb_add_size(all, draft, &all) && sb_add_size(all, (size_t)head->n_ids * 4, bytes);
}

static int32_t read_head(struct sb_session_in *in)
{
    const char *name = in->from.file.name;
    unsigned char bytes[HEAD];
    int32_t version, rc = SPECBATCH_OK;
    size_t size = 0;

    if (in->from.file.size < MAGIC + 4)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: too short for a session", name);
    SB_TRY(sb_checked_read(&in->from, bytes, MAGIC + 4));
    if (memcmp(bytes, magic, MAGIC) != 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: not a session", name);
    sb_get_number(bytes + MAGIC, &version);
    if (version != VERSION)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%.100s: version %d of the format, this library reads %d",
                name, (int)version, VERSION);
    if (in->from.file.size < HEAD + SB_CHECK)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: ends within its head", name);
    SB_TRY(sb_checked_read(&in->from, bytes + MAGIC + 4, HEAD - MAGIC - 4));
    SB_TRY(sb_checked_read_check(&in->from));
    parse_head(&in->head, bytes + MAGIC + 4);
    if (!numbers_agree(&in->head) || !file_bytes(&in->head, &size))
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: the numbers in its head contradict each other", name);
    if (size != in->from.file.size)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: has %llu bytes, its head says %zu", name,
                (unsigned long long)in->from.file.size, size);
done:
    return rc;
}

int32_t sb_session_open(struct sb_session_in *in, const char *path)
{
    int32_t rc = sb_checked_open(&in->from, path);

    if (rc != SPECBATCH_OK)
        return rc;
    rc = read_head(in);
    if (rc != SPECBATCH_OK)
        sb_session_close(in);
    return rc;
}

int32_t sb_session_read_ids(struct sb_session_in *in, int32_t *ids)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_checked_read_numbers(&in->from, ids, (size_t)in->head.n_ids));
    SB_TRY(sb_checked_read_check(&in->from));
done:
    return rc;
}

void sb_session_close(struct sb_session_in *in)
{
    sb_file_close(&in->from.file);
}

/*
 * The GGUF reader: what it reads, and that it refuses everything else by a message that names the
 * file, and the key or the tensor. The files are written here, byte by byte, and removed again.
 */
#include "gguf.h"

#include "sbtest.h"
#include "support/gguf_writer.h"

static int32_t open_in(struct sb_gguf **g, const struct test_dir *dir, const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    return sb_gguf_open(g, &test_mem, path);
}

/* ------------------------------------------------------------------------- what is read */

/* Every type of value, an array of strings and an array of arrays. */
static struct gguf_writer one_of_each(void)
{
    struct gguf_writer w = {.alignment = 32};

    gguf_key(&w, "i8", SB_GGUF_I8);
    gguf_add_number(&w.keys, 0xfe, 1);
    gguf_key(&w, "i16", SB_GGUF_I16);
    gguf_add_number(&w.keys, 0x8000, 2);
    gguf_key(&w, "i32", SB_GGUF_I32);
    gguf_add_number(&w.keys, 0xffffffff, 4);
    gguf_key(&w, "i64", SB_GGUF_I64);
    gguf_add_number(&w.keys, 0x8000000000000000u, 8);
    gguf_key(&w, "u8", SB_GGUF_U8);
    gguf_add_number(&w.keys, 0xfe, 1);
    gguf_key(&w, "u16", SB_GGUF_U16);
    gguf_add_number(&w.keys, 0xfffe, 2);
    gguf_key_u32(&w, "u32", 0xfffffffe);
    gguf_key(&w, "u64", SB_GGUF_U64);
    gguf_add_number(&w.keys, 0x8000000000000000u, 8);
    gguf_key_flag(&w, "flag", 1);
    gguf_key_text(&w, "text", "a\nb");
    gguf_key_array(&w, "texts", SB_GGUF_STRING, 3);
    gguf_add_text(&w.keys, "x", 1);
    gguf_add_text(&w.keys, "", 0);
    gguf_add_text(&w.keys, "yz", 2);
    gguf_key_array(&w, "bytes", SB_GGUF_U8, 2);
    gguf_add(&w.keys, "\x07\x09", 2);
    gguf_key_array(&w, "nested", SB_GGUF_ARRAY, 2);
    for (int i = 0; i < 2; i++) {
        gguf_add_number(&w.keys, SB_GGUF_STRING, 4);
        gguf_add_number(&w.keys, 1, 8);
        gguf_add_text(&w.keys, "deep", 4);
    }
    gguf_key_u32(&w, "behind", 5);
    return w;
}

static void reads_every_type(void)
{
    static const struct {
        const char *key;
        int is_int;
        int64_t number;
    } numbers[] = {{"i8", 1, -2},          {"i16", 1, -32768}, {"i32", 1, -1},
                   {"i64", 1, INT64_MIN},  {"u8", 1, 254},     {"u16", 1, 65534},
                   {"u32", 1, 4294967294}, {"u64", 0, 0},      {"flag", 0, 0},
                   {"text", 0, 0},         {"texts", 0, 0},    {"behind", 1, 5}};
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = one_of_each();
    struct sb_gguf_value value, element;
    struct sb_gguf *g = NULL;
    int64_t number;
    int flag = 0;

    gguf_write(&w, &dir, "a.gguf");
    CHECK_OK(open_in(&g, &dir, "a.gguf"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CHECK(sb_gguf_get(g, numbers[i].key, &value));
        CHECK_INT(sb_gguf_int(&value, &number), numbers[i].is_int);
        CHECK(!numbers[i].is_int || number == numbers[i].number);
    }
    CHECK(sb_gguf_get(g, "flag", &value) && sb_gguf_bool(&value, &flag) && flag == 1);
    CHECK(sb_gguf_get(g, "text", &value) && value.count == 3 &&
          memcmp(sb_gguf_string(&value), "a\nb", 3) == 0 && !sb_gguf_bool(&value, &flag));
    CHECK(sb_gguf_get(g, "texts", &value) && value.count == 3 && !sb_gguf_string(&value));
    CHECK(sb_gguf_take(&value, &element) && element.count == 1 && *element.at == 'x');
    CHECK(sb_gguf_take(&value, &element) && element.count == 0);
    CHECK(sb_gguf_take(&value, &element) && element.count == 2 && element.at[1] == 'z');
    CHECK(!sb_gguf_take(&value, &element));
    CHECK(sb_gguf_get(g, "bytes", &value) && sb_gguf_take(&value, &element));
    CHECK(sb_gguf_take(&value, &element) && sb_gguf_int(&element, &number) && number == 9);
    CHECK(sb_gguf_get(g, "nested", &value) && !sb_gguf_take(&value, &element));
    CHECK(!sb_gguf_get(g, "tex", &value) && !sb_gguf_get(g, "textsx", &value));
    sb_gguf_close(g);
    test_dir_remove(&dir);
}

/* An f32 is the shortest decimal that rounds to it. */
static void reads_decimals(void)
{
    static const double decimals[] = {1e-6, 1e-5,         1.5625e-7, 10000.0,   1000000.0,
                                      5e5,  0.1,          0.25,      -3.5e-30,  8.0,
                                      0.0,  3.4028235e38, 1e-45,     16777216.0};
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = {.alignment = 32};
    struct sb_gguf_value value;
    struct sb_gguf *g = NULL;
    double number;
    char key[8];

    for (size_t i = 0; i < sizeof decimals / sizeof *decimals; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        gguf_key_f32(&w, key, (float)decimals[i]);
    }
    gguf_key_f32(&w, "nan", NAN);
    gguf_key_f32(&w, "inf", -INFINITY);
    gguf_key(&w, "wide", SB_GGUF_F64);
    gguf_add_number(&w.keys, 0x3fb999999999999au, 8); /* 0.1 */
    gguf_key(&w, "wide_inf", SB_GGUF_F64);
    gguf_add_number(&w.keys, 0x7ff0000000000000u, 8);
    gguf_write(&w, &dir, "a.gguf");
    CHECK_OK(open_in(&g, &dir, "a.gguf"));
    for (size_t i = 0; i < sizeof decimals / sizeof *decimals; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        CHECK(sb_gguf_get(g, key, &value) && sb_gguf_double(&value, &number));
        CHECK(number == decimals[i]);
    }
    CHECK(sb_gguf_get(g, "nan", &value) && !sb_gguf_double(&value, &number));
    CHECK(sb_gguf_get(g, "inf", &value) && !sb_gguf_double(&value, &number));
    CHECK(sb_gguf_get(g, "wide", &value) && sb_gguf_double(&value, &number) && number == 0.1);
    CHECK(sb_gguf_get(g, "wide_inf", &value) && !sb_gguf_double(&value, &number));
    sb_gguf_close(g);
    test_dir_remove(&dir);
}

static void reads_tensors(void)
{
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = {.alignment = 64};
    const struct sb_gguf_tensor *t;
    struct sb_gguf *g = NULL;
    unsigned char bytes[36], got[36];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    gguf_key_u32(&w, "general.alignment", 64);
    gguf_tensor(&w, "a", 2, (int64_t[]){3, 2}, GGUF_F32, bytes, 24);
    gguf_tensor(&w, "q", 2, (int64_t[]){2, 32}, GGUF_Q4_0, bytes, 36);
    gguf_tensor(&w, "empty", 1, (int64_t[]){0}, GGUF_BF16, bytes, 0);
    gguf_tensor(&w, "scalar", 0, NULL, GGUF_F16, bytes, 2);
    gguf_write(&w, &dir, "a.gguf");
    CHECK_OK(open_in(&g, &dir, "a.gguf"));
    CHECK_INT(sb_gguf_n_tensors(g), 4);
    for (int i = 0; i < 4; i++) {
        t = sb_gguf_tensor(g, i);
        CHECK(t->bytes <= sizeof got && t->offset % 64 == 0);
        CHECK_OK(sb_file_read(sb_gguf_file(g, t->file), t->offset, got, (size_t)t->bytes));
        CHECK_MEM(got, bytes, (size_t)t->bytes);
        if (t->name[0] == 'a')
            CHECK(t->rank == 2 && t->shape[0] == 3 && t->shape[1] == 2 && t->bytes == 24);
        if (t->name[0] == 'q')
            CHECK(strcmp(t->type, "Q4_0") == 0 && t->bytes == 36);
    }
    sb_gguf_close(g);
    test_dir_remove(&dir);
}

/* --------------------------------------------------------------------- what is refused */

/* Writes a file of a head and n bytes, and opens it. */
static int32_t open_bytes(const struct test_dir *dir, uint32_t version, uint64_t n_tensors,
                          uint64_t n_keys, const void *rest, size_t n)
{
    struct gguf_buffer file = {.n = 0};
    struct sb_gguf *g = NULL;
    int32_t rc;

    gguf_add(&file, "GGUF", 4);
    gguf_add_number(&file, version, 4);
    gguf_add_number(&file, n_tensors, 8);
    gguf_add_number(&file, n_keys, 8);
    gguf_add(&file, rest, n);
    test_write(dir, "a.gguf", file.at, file.n);
    free(file.at);
    rc = open_in(&g, dir, "a.gguf");
    sb_gguf_close(g);
    return rc;
}

#define KEY "\1\0\0\0\0\0\0\0k"
#define NAME "\1\0\0\0\0\0\0\0t"

/* What follows the header, of one key or of one tensor. */
static const struct refusal {
    uint64_t n_tensors, n_keys;
    const char *rest;
    size_t n;
    int32_t code;
    const char *part;
} refusals[] = {
#define CASE(tensors, keys, bytes, code, part)              \
    {                                                       \
        tensors, keys, bytes, sizeof(bytes) - 1, code, part \
    }
    CASE(0, 1, "", SPECBATCH_E_FORMAT, "a.gguf: ends inside a key"),
    CASE(0, 1, "\1\0\0\0", SPECBATCH_E_FORMAT, "ends inside a key"),
    CASE(0, 1, "\xff\xff\xff\xff\xff\xff\xff\xffk", SPECBATCH_E_FORMAT, "ends inside a key"),
    CASE(0, 1, "\0\0\0\0\0\0\0\0", SPECBATCH_E_FORMAT, "byte 32: not a key"),
    CASE(0, 1, "\1\0\0\0\0\0\0\0\n\4\0\0\0\1\0\0\0", SPECBATCH_E_FORMAT, "not a key"),
    CASE(0, 1, "\1\0\0\0\0\0\0\0\xc3\4\0\0\0\1\0\0\0", SPECBATCH_E_FORMAT, "not a key"),
    CASE(0, 1, KEY, SPECBATCH_E_FORMAT, "ends inside k"),
    CASE(0, 1, KEY "\4\0\0\0\1\0\0", SPECBATCH_E_FORMAT, "ends inside k"),
    CASE(0, 1, KEY "\15\0\0\0\1\0\0\0", SPECBATCH_E_FORMAT, "k: unknown type of value 13"),
    CASE(0, 1, KEY "\7\0\0\0\2", SPECBATCH_E_FORMAT, "k: a flag that is neither"),
    CASE(0, 1, KEY "\10\0\0\0\5\0\0\0\0\0\0\0text", SPECBATCH_E_FORMAT, "ends inside k"),
    CASE(0, 1, KEY "\11\0\0\0\1\0\0\0\5\0\0\0\0\0\0\0abcd", SPECBATCH_E_FORMAT, "ends inside k"),
    CASE(0, 1, KEY "\11\0\0\0\13\0\0\0\0\0\0\0\0\0\0\x20", SPECBATCH_E_FORMAT, "k: "),
    CASE(0, 1, KEY "\11\0\0\0\12\0\0\0\1\0\0\0\0\0\0\x20", SPECBATCH_E_FORMAT, "k: "),
    CASE(0, 1, KEY "\11\0\0\0\10\0\0\0\377\377\377\377\0\0\0\0", SPECBATCH_E_FORMAT, "inside k"),
    CASE(0, 1, KEY "\11\0\0\0\17\0\0\0\1\0\0\0\0\0\0\0", SPECBATCH_E_FORMAT, "type of value 15"),
    CASE(0, 1, KEY "\11\0\0\0\7\0\0\0\2\0\0\0\0\0\0\0\1\3", SPECBATCH_E_FORMAT, "neither 0 nor 1"),
    CASE(0, 1,
         KEY "\11\0\0\0\11\0\0\0\1\0\0\0\0\0\0\0\11\0\0\0\1\0\0\0\0\0\0\0\11\0\0\0\1\0\0\0\0\0\0\0"
             "\11\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1",
         SPECBATCH_E_FORMAT, "arrays more than 4 deep"),
    CASE(0, 2, KEY "\7\0\0\0\1" KEY "\7\0\0\0\1", SPECBATCH_E_FORMAT, "k is there twice"),
    CASE(0, 65537, "", SPECBATCH_E_FORMAT, "the limits are"),
    CASE(1000001, 0, "", SPECBATCH_E_FORMAT, "the limits are"),
    CASE(UINT64_MAX, 0, "", SPECBATCH_E_FORMAT, "the limits are"),
    CASE(1, 0, "", SPECBATCH_E_FORMAT, "ends inside a tensor's name"),
    CASE(1, 0, "\1\0\0\0\0\0\0\0\1", SPECBATCH_E_FORMAT, "not a tensor's name"),
    CASE(1, 0, "\0\0\0\0\0\0\0\0\1", SPECBATCH_E_FORMAT, "not a tensor's name"),
    CASE(1, 0, NAME "\5\0\0\0", SPECBATCH_E_FORMAT, "tensor t: more than 4 dimensions"),
    CASE(1, 0, NAME "\1\0\0\0\0\0\0\0\0\0\0\x80", SPECBATCH_E_FORMAT, "tensor t: shape overflows"),
    CASE(1, 0, NAME "\2\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0", SPECBATCH_E_FORMAT,
         "tensor t: shape overflows"),
    CASE(1, 0, NAME "\1\0\0\0\0\0\0\0\0\0\0\x7f\0\0\0\0", SPECBATCH_E_FORMAT, "shape overflows"),
    CASE(1, 0, NAME "\1\0\0\0\1\0\0\0\0\0\0\0\4\0\0\0", SPECBATCH_E_UNSUPPORTED,
         "tensor t: unknown type 4"),
    CASE(1, 0, NAME "\1\0\0\0\1\0\0\0\0\0\0\0\xff\0\0\0", SPECBATCH_E_UNSUPPORTED, "unknown type"),
    CASE(1, 0, NAME "\1\0\0\0\20\0\0\0\0\0\0\0\2\0\0\0", SPECBATCH_E_FORMAT,
         "tensor t: rows of 16 elements are not blocks of Q4_0"),
    CASE(1, 0, NAME "\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", SPECBATCH_E_FORMAT, "ends inside t"),
    CASE(1, 0, NAME "\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", SPECBATCH_E_FORMAT,
         "tensor t: ends beyond the file"),
    CASE(1, 0, NAME "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", SPECBATCH_E_FORMAT,
         "tensor t: ends beyond the file"), /* it has no elements */
    CASE(1, 0, NAME "\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\40\0\0\0\0\0\0\0", SPECBATCH_E_FORMAT,
         "tensor t: begins at byte 32 of the data, what is before it ends at 0"),
#undef CASE
};

static void refuses_bad_files(void)
{
    const struct test_dir dir = test_dir_make();

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        CHECK_ERROR(open_bytes(&dir, 3, r->n_tensors, r->n_keys, r->rest, r->n), r->code, r->part);
    }
    CHECK_ERROR(open_bytes(&dir, 1, 0, 0, "", 0), SPECBATCH_E_UNSUPPORTED, "version 1 of GGUF");
    CHECK_ERROR(open_bytes(&dir, 4, 0, 0, "", 0), SPECBATCH_E_UNSUPPORTED, "version 4 of GGUF");
    CHECK_ERROR(open_bytes(&dir, 3u << 24, 0, 0, "", 0), SPECBATCH_E_UNSUPPORTED, "big-endian");
    CHECK_OK(open_bytes(&dir, 2, 0, 0, "", 0));
    test_write_text(&dir, "short.gguf", "GGUF\3");
    test_write_text(&dir, "other.gguf", "version https://git-lfs.github.com");
    struct sb_gguf *g = NULL;
    CHECK_ERROR(open_in(&g, &dir, "short.gguf"), SPECBATCH_E_FORMAT, "short.gguf: too short");
    CHECK_ERROR(open_in(&g, &dir, "other.gguf"), SPECBATCH_E_FORMAT, "not a GGUF file");
    CHECK_ERROR(open_in(&g, &dir, "nothing.gguf"), SPECBATCH_E_NOT_FOUND, "nothing.gguf");
    CHECK_ERROR(open_in(&g, &dir, "."), SPECBATCH_E_IO, "not a regular file");
    CHECK(g == NULL);
    test_dir_remove(&dir);
}

/* Overlaps, holes, wrong alignments and what is behind the last tensor. */
static void refuses_bad_layouts(void)
{
    static const struct {
        uint32_t alignment; /* 0: not written */
        size_t first, more; /* bytes of the first tensor, and behind the last one */
        int32_t code;
        const char *part;
    } cases[] = {
        {0, 4, 0, SPECBATCH_OK, ""},
        {0, 4, 31, SPECBATCH_OK, ""},
        {0, 4, 32, SPECBATCH_E_FORMAT, "32 bytes after the last tensor"},
        {0, 36, 0, SPECBATCH_E_FORMAT,
         "tensor u: begins at byte 32 of the data, what is before it"},
        {64, 4, 0, SPECBATCH_E_FORMAT, "and the alignment is 64"},
        {12, 4, 0, SPECBATCH_E_FORMAT, "general.alignment"},
        {0xffffffff, 4, 0, SPECBATCH_E_FORMAT, "general.alignment"},
        {1u << 30, 4, 0, SPECBATCH_E_FORMAT, "general.alignment"},
    };
    static const unsigned char zeros[64];
    const struct test_dir dir = test_dir_make();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {.alignment = 32};
        struct sb_gguf *g = NULL;
        int32_t rc;
        if (cases[i].alignment)
            gguf_key_u32(&w, "general.alignment", cases[i].alignment);
        gguf_tensor(&w, "t", 1, (int64_t[]){(int64_t)cases[i].first / 4}, GGUF_F32, zeros, 4);
        gguf_tensor(&w, "u", 1, (int64_t[]){1}, GGUF_F32, zeros, 4);
        w.data.n = 36; /* where the second tensor ends */
        gguf_add(&w.data, zeros, cases[i].more);
        gguf_write(&w, &dir, "a.gguf");
        rc = open_in(&g, &dir, "a.gguf");
        sb_gguf_close(g);
        CHECK_INT(rc, cases[i].code);
        CHECK(rc == SPECBATCH_OK || strstr(specbatch_last_error(), cases[i].part));
    }
    test_dir_remove(&dir);
}

/* -------------------------------------------------------------------------------- parts */

/* Writes one of the parts of a model, with one tensor. */
static void write_part(const struct test_dir *dir, const char *name, uint32_t number,
                       uint32_t count, const char *tensor)
{
    struct gguf_writer w = {.alignment = 32};

    gguf_key(&w, "split.no", SB_GGUF_U16);
    gguf_add_number(&w.keys, number, 2);
    gguf_key(&w, "split.count", SB_GGUF_U16);
    gguf_add_number(&w.keys, count, 2);
    gguf_tensor(&w, tensor, 1, (int64_t[]){1}, GGUF_F32, tensor, 4);
    gguf_write(&w, dir, name);
}

static void reads_parts(void)
{
    const struct test_dir dir = test_dir_make();
    struct sb_gguf *g = NULL;
    char bytes[5] = "";

    write_part(&dir, "m-00001-of-00003.gguf", 0, 3, "tee0");
    write_part(&dir, "m-00002-of-00003.gguf", 1, 3, "tee1");
    write_part(&dir, "m-00003-of-00003.gguf", 2, 3, "tee2");
    CHECK_OK(open_in(&g, &dir, "m-00001-of-00003.gguf"));
    CHECK_INT(sb_gguf_n_files(g), 3);
    CHECK_INT(sb_gguf_n_tensors(g), 3);
    for (int i = 0; i < 3; i++) {
        const struct sb_gguf_tensor *t = sb_gguf_tensor(g, i);
        CHECK_INT(t->file, i);
        CHECK_OK(sb_file_read(sb_gguf_file(g, i), t->offset, bytes, 4));
        CHECK_STR(bytes, t->name);
    }
    sb_gguf_close(g);
    g = NULL;
    CHECK_ERROR(open_in(&g, &dir, "m-00002-of-00003.gguf"), SPECBATCH_E_UNSUPPORTED,
                "part 2 of 3; open the first");
    write_part(&dir, "m-00003-of-00003.gguf", 1, 3, "tee2");
    CHECK_ERROR(open_in(&g, &dir, "m-00001-of-00003.gguf"), SPECBATCH_E_FORMAT,
                "it is part 2 of 3, and not 3 of 3");
    write_part(&dir, "m-00001-of-00004.gguf", 0, 4, "tee0");
    CHECK_ERROR(open_in(&g, &dir, "m-00001-of-00004.gguf"), SPECBATCH_E_IO,
                "m-00002-of-00004.gguf is not there");
    write_part(&dir, "m.gguf", 0, 3, "tee0");
    CHECK_ERROR(open_in(&g, &dir, "m.gguf"), SPECBATCH_E_FORMAT, "does not end in -00001-of-00003");
    write_part(&dir, "m.gguf", 3, 3, "tee0");
    CHECK_ERROR(open_in(&g, &dir, "m.gguf"), SPECBATCH_E_FORMAT, "split.no and split.count");
    write_part(&dir, "m.gguf", 0, 1, "tee0");
    CHECK_OK(open_in(&g, &dir, "m.gguf"));
    sb_gguf_close(g);
    test_dir_remove(&dir);
}

/* ---------------------------------------------------------------------- many bad files */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Bytes changed, the end cut off: every change is read or refused, and what is read is inside. */
static void survives_mutations(void)
{
    static const unsigned char zeros[24];
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = one_of_each();
    uint32_t random = 2463534242u;
    int accepted = 0, refused = 0;
    size_t length = 0;
    char *original, *file;

    gguf_tensor(&w, "a", 2, (int64_t[]){3, 2}, GGUF_F32, zeros, 24);
    gguf_tensor(&w, "b", 1, (int64_t[]){5}, GGUF_BF16, zeros, 10);
    gguf_write(&w, &dir, "a.gguf");
    original = test_read(dir.path, "a.gguf", &length);
    file = malloc(length);
    CHECK(original && file);
    for (int round = 0; round < 6000; round++) {
        struct sb_gguf *g = NULL;
        const size_t n = next_random(&random) % 16 == 0 ? next_random(&random) % length : length;
        int32_t rc;
        memcpy(file, original, length);
        for (uint32_t i = next_random(&random) % 3; i < 3; i++) {
            char *at = &file[next_random(&random) % length];
            *at = round % 2 ? (char)next_random(&random)
                            : (char)(*at ^ 1 << next_random(&random) % 8);
        }
        test_write(&dir, "a.gguf", file, n);
        rc = open_in(&g, &dir, "a.gguf");
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_FORMAT || rc == SPECBATCH_E_UNSUPPORTED);
        for (int32_t i = 0; rc == SPECBATCH_OK && i < sb_gguf_n_tensors(g); i++) {
            const struct sb_gguf_tensor *t = sb_gguf_tensor(g, i);
            CHECK(t->offset <= n && t->bytes <= n - t->offset);
        }
        accepted += rc == SPECBATCH_OK;
        refused += rc != SPECBATCH_OK;
        sb_gguf_close(g);
    }
    CHECK(accepted > 100 && refused > 1000); /* enough of either for the test to mean something */
    free(original);
    free(file);
    test_dir_remove(&dir);
}

static void runs_out_of_memory_cleanly(void)
{
    const struct test_dir dir = test_dir_make();
    struct test_memory memory = {0, 0, 0};
    const struct sb_mem mem = {test_memory_alloc, test_memory_free, &memory};
    struct sb_gguf *g = NULL;
    char path[128];
    int32_t rc = SPECBATCH_E_NOMEM;

    write_part(&dir, "m-00001-of-00002.gguf", 0, 2, "tee0");
    write_part(&dir, "m-00002-of-00002.gguf", 1, 2, "tee1");
    snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", dir.path);
    for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
        memory = (struct test_memory){0, at, 0};
        rc = sb_gguf_open(&g, &mem, path);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        CHECK(rc == SPECBATCH_OK || memory.live == 0);
        CHECK(at < 1000);
    }
    sb_gguf_close(g);
    CHECK_INT(memory.live, 0);
    test_dir_remove(&dir);
}

TEST_BEGIN
RUN(reads_every_type);
RUN(reads_decimals);
RUN(reads_tensors);
RUN(refuses_bad_files);
RUN(refuses_bad_layouts);
RUN(reads_parts);
RUN(survives_mutations);
RUN(runs_out_of_memory_cleanly);
TEST_END

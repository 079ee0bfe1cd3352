/*
 * The reader of pytorch_model.bin: a file that torch itself has written, models that are the same
 * from either format, and a message with the place for everything that is refused. Refused files
 * are written here, byte by byte.
 */
#include "model/model.h"
#include "model/shards.h"

#include "half.h"
#include "sbtest.h"
#include "support/torch_writer.h"

static const char bin[] = "pytorch_model.bin";

/* ------------------------------------------------------------------ what torch writes */

static double number_at(const struct sb_tensor *t, const unsigned char *at)
{
    uint64_t bits = 0;
    float f;
    double d;

    memcpy(&bits, at, t->type[0] == 'B' || t->type[1] == '1' ? 2 : t->type[1] == '3' ? 4 : 8);
    memcpy(&d, &bits, sizeof d);
    if (strcmp(t->type, "I64") == 0)
        return (double)(int64_t)bits;
    if (strcmp(t->type, "F64") == 0)
        return d;
    if (strcmp(t->type, "BF16") == 0)
        bits = sb_bf16_widen((uint16_t)bits);
    else if (strcmp(t->type, "F16") == 0)
        bits = sb_f16_widen((uint16_t)bits);
    memcpy(&f, &(uint32_t){(uint32_t)bits}, sizeof f);
    return f;
}

/* make_torch.py says what each tensor counts. */
static void reads_a_file_of_torch(void)
{
    static const struct {
        const char *name, *type;
        int32_t rank, first;
        int64_t shape[2];
        uint64_t bytes;
    } want[] = {
        {"embed.weight", "F32", 2, 0, {4, 3}, 48}, {"halves", "F16", 2, 200, {2, 2}, 8},
        {"head.bias", "BF16", 1, 100, {4, 0}, 8},  {"head.weight", "F32", 2, 0, {4, 3}, 48},
        {"none", "F32", 2, 0, {0, 5}, 0},          {"parameter", "F64", 2, 600, {1, 2}, 16},
        {"part", "F32", 2, 500, {2, 2}, 16},       {"row", "F32", 2, 700, {1, 2}, 8},
        {"steps", "I64", 0, 300, {0, 0}, 8},
    };
    struct sb_tensors *set = NULL;

    CHECK_OK(sb_tensors_open(&set, &test_mem, "test/data/models/torch"));
    CHECK_INT(sb_tensors_count(set), 9);
    for (int32_t i = 0; i < 9; i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        unsigned char bytes[48];
        uint64_t n = t->rank == 0
                         ? 1
                         : (uint64_t)t->shape[0] * (uint64_t)(t->rank > 1 ? t->shape[1] : 1);
        CHECK_STR(t->name, want[i].name);
        CHECK_STR(t->type, want[i].type);
        CHECK_INT(t->rank, want[i].rank);
        CHECK(memcmp(t->shape, want[i].shape, sizeof want[i].shape) == 0);
        CHECK_INT(t->bytes, want[i].bytes);
        CHECK_OK(sb_tensors_read(set, t, 0, bytes, (size_t)t->bytes));
        for (uint64_t k = 0; k < n; k++)
            CHECK(number_at(t, bytes + k * (t->bytes / n)) == want[i].first + (double)k);
    }
    sb_tensors_close(set);
}

/* ---------------------------------------------------------------- models of either format */

/* Writes the tensors first .. last of a set as a file of torch.save. */
static int write_some(const struct sb_tensors *set, int32_t first, int32_t last, int wide,
                      const struct test_dir *dir, const char *name)
{
    struct torch_writer w = {.zip64 = wide, .padded = wide};
    int good = 1;

    for (int32_t i = first; i <= last; i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        const char *storage = strcmp(t->type, "BF16") == 0  ? "BFloat16Storage"
                              : strcmp(t->type, "F16") == 0 ? "HalfStorage"
                                                            : "FloatStorage";
        unsigned char *bytes = malloc((size_t)t->bytes);
        char key[16];
        snprintf(key, sizeof key, "%d", (int)i);
        good &= bytes && sb_tensors_read(set, t, 0, bytes, (size_t)t->bytes) == SPECBATCH_OK;
        if (good)
            torch_tensor(&w, t->name, storage, t->rank, t->shape, key, bytes,
                         storage[0] == 'F' ? 4 : 2);
        free(bytes);
    }
    torch_write(&w, dir, name);
    return good;
}

static int32_t digest(char text[64], const char *path)
{
    specbatch_model *model = NULL;
    const int32_t rc = specbatch_model_open(&model, path, NULL);

    snprintf(text, 64, "%s", specbatch_model_digest(model));
    specbatch_model_close(model);
    return rc;
}

/* The digest is over every byte of the weights. */
static void is_the_same_model(void)
{
    static const char *const models[] = {
        "test/data/models/emoji",
        "test/data/models/llama_mha_f16",
        "test/data/models/qwen2_tied_f32",
    };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const struct test_dir dir = test_dir_make();
        struct sb_tensors *set = NULL;
        char want[64], got[64];
        CHECK_OK(digest(want, models[i]));
        test_copy(&dir, models[i], "model.safetensors");
        CHECK_ERROR(digest(got, dir.path), SPECBATCH_E_IO, "nor a pytorch_model.bin");
        CHECK_OK(sb_tensors_open(&set, &test_mem, models[i]));
        CHECK(write_some(set, 0, sb_tensors_count(set) - 1, i == 1, &dir, bin));
        sb_tensors_close(set);
        CHECK_OK(digest(got, dir.path));
        CHECK_STR(got, want);
        test_dir_remove(&dir);
    }
}

static void reads_shards(void)
{
    const struct test_dir dir = test_dir_make();
    const char model[] = "test/data/models/emoji";
    struct sb_tensors *set = NULL;
    char want[64], got[64], index[2048] = "{\"weight_map\":{";

    CHECK_OK(digest(want, model));
    test_copy(&dir, model, "model.safetensors");
    CHECK_OK(sb_tensors_open(&set, &test_mem, model));
    CHECK(write_some(set, 0, 4, 0, &dir, "a.bin"));
    CHECK(write_some(set, 5, sb_tensors_count(set) - 1, 0, &dir, "b.bin"));
    for (int32_t i = 0; i < sb_tensors_count(set); i++)
        snprintf(index + strlen(index), sizeof index - strlen(index), "%s\"%s\":\"%s\"",
                 i ? "," : "", sb_tensors_at(set, i)->name, i < 5 ? "a.bin" : "b.bin");
    snprintf(index + strlen(index), sizeof index - strlen(index), "}}");
    sb_tensors_close(set);
    test_write_text(&dir, "pytorch_model.bin.index.json", index);
    CHECK_OK(digest(got, dir.path));
    CHECK_STR(got, want);
    *strstr(index, "b.bin") = 'a';
    test_write_text(&dir, "pytorch_model.bin.index.json", index);
    CHECK_ERROR(digest(got, dir.path), SPECBATCH_E_FORMAT, "pytorch_model.bin.index.json: tensor");
    test_dir_remove(&dir);
}

/* --------------------------------------------------------------------------- pickles */

/* Pieces of pickles: a string of one letter, a storage, a tensor of it, a whole list. */
#define S1(letter) "X\1\0\0\0" letter
#define STORAGE(type, key, n) "(X\7\0\0\0storagectorch\n" type "\n" S1(key) S1("c") n "tQ"
#define TENSOR(storage, offset, shape, stride) \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage offset shape stride "\211}tR"
#define F2 STORAGE("FloatStorage", "0", "K\2")
#define X2 TENSOR(F2, "K\0", "K\2\x85", "K\1\x85")
#define LIST(items) "\x80\2}(" items "u."
#define P(pickle) pickle, sizeof pickle - 1

struct pickle {
    const char *bytes;
    size_t n;
    const char *part; /* of the message; NULL: it is read */
    int32_t code;     /* or how many tensors are read */
};

/* Writes a file with this pickle and a storage of 8 bytes, and opens it. Returns how many tensors
 * it has, or the failure; or LEAKS if it leaves memory behind. */
enum { LEAKS = -1000 };
static int32_t open_pickle(const struct test_dir *dir, const char *bytes, size_t n)
{
    struct test_memory memory = {0, INT64_MAX, 0};
    const struct sb_mem mem = {test_memory_alloc, test_memory_free, &memory};
    struct torch_writer w = {.n = 0};
    struct sb_tensors *set = NULL;
    int32_t rc;

    torch_entry(&w, "data.pkl", bytes, n);
    torch_entry(&w, "data/0", "12345678", 8);
    torch_write(&w, dir, bin);
    rc = sb_tensors_open(&set, &mem, dir->path);
    if (rc == SPECBATCH_OK)
        rc = sb_tensors_count(set);
    sb_tensors_close(set);
    return memory.live == 0 ? rc : LEAKS;
}

/* Arguments of which one, in turn, is of the wrong kind. */
#define NAMES(s, type, key, device, n)                                                    \
    {                                                                                     \
        P(LIST("(" s type key device n "tQ")), "what names a storage", SPECBATCH_E_FORMAT \
    }
#define MAKES(storage, offset, shape, stride, gradient, hooks)                                     \
    {                                                                                              \
        P(LIST(S1("x") "ctorch._utils\n_rebuild_tensor_v2\n(" storage offset shape stride gradient \
                   hooks "tR")),                                                                   \
            "those of _rebuild_tensor_v2", SPECBATCH_E_FORMAT                                      \
    }
#define WRAPS(tensor, gradient, hooks)                                                      \
    {                                                                                       \
        P(LIST(S1("x") "ctorch._utils\n_rebuild_parameter\n(" tensor gradient hooks "tR")), \
            "those of _rebuild_parameter", SPECBATCH_E_FORMAT                               \
    }
#define F "ctorch\nFloatStorage\n"
#define ONES "(K\1K\1K\1K\1K\1K\1K\1K\1t"

static const struct pickle pickles[] = {
    {P(LIST(S1("x") X2)), NULL, 1},
    {P(LIST("")), NULL, 0},
    {P("\x80\2}" S1("x") X2 "s."), NULL, 1},
    {P("ccollections\nOrderedDict\n)R" S1("x") X2 "s}" S1("m") "Nsb."), NULL, 1},
    {P(LIST(S1("x") "ctorch._utils\n_rebuild_parameter\n" X2 "\x88}\x87R")), NULL, 1},
    {P(LIST(S1("x") X2 "q\0" S1("y") "h\0" S1("z") "j\0\0\0\0")), NULL, 3},
    {P(LIST(S1("x") TENSOR(STORAGE("LongStorage", "0", "\x8a\1\1"), "M\0\0", ")", ")"))), NULL, 1},
    {P(LIST(S1("x") TENSOR(F2, "J\1\0\0\0", "K\1\x85", "K\7\x85"))), NULL, 1},
    {P(LIST(S1("x") TENSOR(F2, "K\2", "K\7K\0\x86", "K\7K\7\x86"))), NULL, 1},
    {P(LIST(S1("x") TENSOR(F2, "K\0", ONES, ONES))), NULL, 1},
    /* What only a program would do. */
    {P("\x80\2cos\nsystem\nX\2\0\0\0ls\x85R."), "byte 2: it calls for os.system",
     SPECBATCH_E_UNSUPPORTED},
    {P(LIST(S1("x") "cbuiltins\neval\n" S1("1") "\x85R")), "it calls for builtins.eval",
     SPECBATCH_E_UNSUPPORTED},
    {P("\x80\2ctorch\nFloatStoragE\n."), "torch.FloatStoragE", SPECBATCH_E_UNSUPPORTED},
    {P("\x80\2ctorch\nFloatStorage\n)R."), "calls the type of a storage", SPECBATCH_E_FORMAT},
    {P("\x80\2ccollections\nOrderedDict\n}\x85R."), "OrderedDict with", SPECBATCH_E_FORMAT},
    {P("\x80\2]."), "instruction 0x5d", SPECBATCH_E_UNSUPPORTED},
    {P("\x80\2ccollections\nOrderedDict\n)\x81."), "instruction 0x81", SPECBATCH_E_UNSUPPORTED},
    {P("\x80\4\x95\0\0\0\0\0\0\0\0}."), "a pickle of protocol 4", SPECBATCH_E_UNSUPPORTED},
    /* What is no list of tensors. */
    {P("\x80\2K\1."), "not what a list of tensors has", SPECBATCH_E_FORMAT},
    {P("\x80\2}}."), "something is left over", SPECBATCH_E_FORMAT},
    {P("\x80\2}.}"), "something is left over", SPECBATCH_E_FORMAT},
    {P(LIST("K\1" X2)), "a name that is not a string", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") "K\1")), "x is not a tensor", SPECBATCH_E_UNSUPPORTED},
    {P(LIST(S1("x") "}")), "x is not a tensor", SPECBATCH_E_UNSUPPORTED},
    {P(LIST(S1("\n") X2)), "control character", SPECBATCH_E_FORMAT},
    {P(LIST("X\0\0\0\0" X2)), "name has 0 bytes", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") X2 S1("x") X2)), "tensor x is in", SPECBATCH_E_FORMAT},
    /* Broken programs. */
    {P(""), "the pickle has no end", SPECBATCH_E_FORMAT},
    {P("\x80"), "in the middle of an instruction", SPECBATCH_E_FORMAT},
    {P("\x80\2X\377\377\377\377x"), "in the middle of an instruction", SPECBATCH_E_FORMAT},
    {P("\x80\2ctorch\nFloat"), "in the middle of an instruction", SPECBATCH_E_FORMAT},
    {P("\x80\2ctorch"), "in the middle of an instruction", SPECBATCH_E_FORMAT},
    {P("\x80\2."), "its stack is empty", SPECBATCH_E_FORMAT},
    {P("\x80\2}\x86."), "its stack is empty", SPECBATCH_E_FORMAT},
    {P("\x80\2}K\1s."), "its stack is empty", SPECBATCH_E_FORMAT},
    {P("\x80\2t."), "no mark", SPECBATCH_E_FORMAT},
    {P("\x80\2}u."), "no mark", SPECBATCH_E_FORMAT},
    {P("\x80\2(u."), "without a dictionary", SPECBATCH_E_FORMAT},
    {P("\x80\2}(K\1u."), "without a dictionary", SPECBATCH_E_FORMAT},
    {P("\x80\2K\1K\1K\1s."), "without a dictionary", SPECBATCH_E_FORMAT},
    {P("\x80\2K\1(\x86."), "a mark inside a tuple", SPECBATCH_E_FORMAT},
    {P("\x80\2(q\0."), "no value to keep", SPECBATCH_E_FORMAT},
    {P("\x80\2}q\1."), "not kept in turn", SPECBATCH_E_FORMAT},
    {P("\x80\2}r\377\377\377\377."), "not kept in turn", SPECBATCH_E_FORMAT},
    {P("\x80\2h\0."), "was not kept", SPECBATCH_E_FORMAT},
    {P("\x80\2K\1}b."), "attributes of something", SPECBATCH_E_FORMAT},
    {P("\x80\2\x8a\1\377."), "a negative number", SPECBATCH_E_FORMAT},
    {P("\x80\2\x8a\11\0\0\0\0\0\0\0\200\0."), "more than 63 bits", SPECBATCH_E_FORMAT},
    {P("\x80\2\x8a\12\0\0\0\0\0\0\0\0\0\1."), "more than 64 bits", SPECBATCH_E_FORMAT},
    /* Tensors that lie. */
    {P(LIST("K\1\x85Q")), "what names a storage", SPECBATCH_E_FORMAT},
    {P(LIST("(K\1ctorch\nFloatStorage\n" S1("0") S1("c") "K\2tQ")), "what names a storage",
     SPECBATCH_E_FORMAT},
    {P(LIST("(" S1("s") "ccollections\nOrderedDict\n" S1("0") S1("c") "K\2tQ")),
     "a storage without a type", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(STORAGE("FloatStorage", "0", "J\377\377\377\377"), "K\0", ")", ")"))),
     "of a negative size", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(STORAGE("FloatStorage", "7", "K\2"), "K\0", ")", ")"))),
     "tensor x: its storage data/7 is not there", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(STORAGE("FloatStorage", "0", "K\3"), "K\0", ")", ")"))),
     "tensor x: its storage data/0 has 8 bytes, and not 3", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(STORAGE("FloatStorage", "0", "\x8a\10\2\0\0\0\0\0\0\100"), "K\0", ")",
                           ")"))),
     "and not 4611686018427387906", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") X2 S1("y") TENSOR(STORAGE("LongStorage", "0", "K\1"), "K\0", ")", ")"))),
     "tensor y: its storage is I64 here and F32 elsewhere", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "K\3\x85", "K\1\x85"))), "tensor x: ends beyond its storage",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\1", "K\2\x85", "K\1\x85"))), "tensor x: ends beyond its storage",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "J\377\377\377\377", ")", ")"))),
     "tensor x: ends beyond its storage", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "K\1K\2\x86", "K\2K\2\x86"))), "tensor x is not contiguous",
     SPECBATCH_E_UNSUPPORTED},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "K\2\x85", "K\0\x85"))), "tensor x is not contiguous",
     SPECBATCH_E_UNSUPPORTED},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "\x8a\10\0\0\0\0\1\0\0\0\x8a\10\0\0\0\0\1\0\0\0\x86",
                           "\x8a\10\0\0\0\0\1\0\0\0K\1\x86"))),
     "tensor x: shape overflows", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "J\377\377\377\377\x85", "K\1\x85"))), "are not sizes",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "K\2\x85", "J\377\377\377\377\x85"))), "are not sizes",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "K\1J\377\377\377\377\x86", "K\1K\1\x86"))), "are not sizes",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "K\1K\2\x86", "K\2N\x86"))), "are not sizes",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "K\2\x85", ")"))), "are not sizes", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "N\x85", "K\1\x85"))), "are not sizes", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR(F2, "K\0", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t",
                           "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t"))),
     "more than 8 dimensions", SPECBATCH_E_UNSUPPORTED},
    {P(LIST(S1("x") TENSOR(F2, "K\0", ")", ")}"))), "those of _rebuild_tensor_v2",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") "ctorch._utils\n_rebuild_tensor_v2\n(" F2 "K\0))\211}}tR")),
     "those of _rebuild_tensor_v2", SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") TENSOR("", "K\0", ")", ")"))), "those of _rebuild_tensor_v2",
     SPECBATCH_E_FORMAT},
    {P(LIST(S1("x") "ctorch._utils\n_rebuild_parameter\n)R")), "those of _rebuild_parameter",
     SPECBATCH_E_FORMAT},
    NAMES("N", F, S1("0"), S1("c"), "K\2"),
    NAMES(S1("s"), "N", S1("0"), S1("c"), "K\2"),
    NAMES(S1("s"), F, "N", S1("c"), "K\2"),
    NAMES(S1("s"), F, S1("0"), "N", "K\2"),
    NAMES(S1("s"), F, S1("0"), S1("c"), "N"),
    MAKES("N", "K\0", ")", ")", "\211", "}"),
    MAKES(F2, "N", ")", ")", "\211", "}"),
    MAKES(F2, "K\0", "N", ")", "\211", "}"),
    MAKES(F2, "K\0", ")", "N", "\211", "}"),
    MAKES(F2, "K\0", ")", ")", "N", "}"),
    MAKES(F2, "K\0", ")", ")", "\211", "N"),
    WRAPS("N", "\x88", "}"),
    WRAPS(X2, "N", "}"),
    WRAPS(X2, "\x88", "N"),
};

static void reads_and_refuses_pickles(void)
{
    const struct test_dir dir = test_dir_make();

    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        const struct pickle *p = &pickles[i];
        if (!p->part)
            CHECK_INT(open_pickle(&dir, p->bytes, p->n), p->code);
        else
            CHECK_ERROR(open_pickle(&dir, p->bytes, p->n), p->code, p->part);
        CHECK(!p->part || strstr(specbatch_last_error(), bin));
    }
    test_dir_remove(&dir);
}

/* A stack that never ends is cut off before it takes memory. */
static void refuses_a_high_stack(void)
{
    const struct test_dir dir = test_dir_make();
    char *pickle = malloc(1 << 18);

    CHECK(pickle != NULL);
    memset(pickle, '(', 1 << 18);
    CHECK_ERROR(open_pickle(&dir, pickle, 1 << 18), SPECBATCH_E_FORMAT,
                "byte 65536: its stack is too high");
    free(pickle);
    test_dir_remove(&dir);
}

/* --------------------------------------------------------------------------- archives */

static int32_t open_bytes(const struct test_dir *dir, const void *bytes, size_t n)
{
    struct sb_tensors *set = NULL;
    int32_t rc;

    test_write(dir, bin, bytes, n);
    rc = sb_tensors_open(&set, &test_mem, dir->path);
    sb_tensors_close(set);
    return rc;
}

/* An archive of one tensor in a storage of 8 bytes. */
static struct torch_writer archive(struct torch_writer w)
{
    torch_entry(&w, "data/0", "12345678", 8);
    torch_entry(&w, "data.pkl", P(LIST(S1("x") X2)));
    return w;
}

static void refuses_other_archives(void)
{
    static const unsigned char old[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                        0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    const struct test_dir dir = test_dir_make();
    struct sb_tensors *set = NULL;
    struct torch_writer w = archive((struct torch_writer){.method = 8});

    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_UNSUPPORTED,
                "entry t/data/0 is compressed (method 8)");
    w = archive((struct torch_writer){.flags = 1});
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_UNSUPPORTED, "encrypted");
    w = archive((struct torch_writer){.n = 0});
    torch_entry(&w, "data/0", "", 0);
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT, "two entries");
    w = archive((struct torch_writer){.n = 0});
    torch_entry(&w, "byteorder", "big", 3);
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_UNSUPPORTED,
                "not little-endian");
    w = archive((struct torch_writer){.n = 0});
    torch_entry(&w, "byteorder", "middle", 6);
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_UNSUPPORTED,
                "not little-endian");
    w = archive((struct torch_writer){.n = 0});
    torch_entry(&w, "byteorder", "little or the other", 19);
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT,
                "byteorder has 19 bytes, the limit is 16");
    w = archive((struct torch_writer){.n = 0});
    torch_entry(&w, "constants.pkl", "", 0);
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_UNSUPPORTED, "TorchScript");
    w = (struct torch_writer){.n = 0};
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT, "without data.pkl");
    w = archive((struct torch_writer){.n = 0});
    torch_end(&w);
    w.file.at[w.file.n - 18] = 1; /* the number of this file among the archive's */
    CHECK_ERROR(open_bytes(&dir, w.file.at, w.file.n), SPECBATCH_E_UNSUPPORTED,
                "the last of several files of an archive");
    free(w.file.at);
    CHECK_ERROR(open_bytes(&dir, old, sizeof old), SPECBATCH_E_UNSUPPORTED, "torch before 1.6");
    CHECK_ERROR(open_bytes(&dir, "PK", 2), SPECBATCH_E_FORMAT, "too short");
    test_write_text(&dir, bin, "version https://git-lfs.github.com/spec/v1\n");
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT, "Git LFS pointer");
    test_dir_remove(&dir);
}

/* A name that is too long, and a directory that is larger than any list needs: it is refused before
 * memory is taken for it. */
static void refuses_what_is_too_large(void)
{
    static const unsigned char end[22] = "PK\5\6\0\0\0\0\1\0\1\0\1\0\0\4";
    const struct test_dir dir = test_dir_make();
    struct sb_tensors *set = NULL;
    struct torch_writer w = {.n = 0};
    char name[1024 + 1] = "", path[512];
    FILE *file;

    memset(name, 'n', sizeof name - 1);
    torch_entry(&w, name, "", 0);
    torch_write(&w, &dir, bin);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT, "too long");
    snprintf(path, sizeof path, "%.400s/%s", dir.path, bin);
    file = fopen(path, "wb");
    CHECK(file && fseek(file, (1 << 26) + 1, SEEK_SET) == 0 && fwrite(end, sizeof end, 1, file));
    CHECK(file && fclose(file) == 0);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT,
                "a directory of 67108865 bytes, the limit is 67108864");
    test_dir_remove(&dir);
}

/* An entry that says to begin where no header of it has room. */
static void refuses_an_entry_at_the_end(void)
{
    const struct test_dir dir = test_dir_make();
    struct torch_writer w = archive((struct torch_writer){.n = 0});
    const size_t directory = w.file.n;

    torch_end(&w);
    for (int i = 0; i < 4; i++)
        w.file.at[directory + 42 + (size_t)i] = (unsigned char)((w.file.n - 8) >> (8 * i));
    CHECK_ERROR(open_bytes(&dir, w.file.at, w.file.n), SPECBATCH_E_FORMAT,
                "entry t/data/0 begins beyond the file");
    free(w.file.at);
    test_dir_remove(&dir);
}

/* One byte of an archive is another, counted from its first byte, from that of its directory, or,
 * below 0, from its end. The entries of its directory begin at its bytes 0 and 54. */
static void refuses_a_lie_in_an_archive(void)
{
    static const struct {
        int zip64, in_directory, at;
        unsigned char byte;
        const char *part;
    } lies[] = {
        {0, 0, 2, 7, "entry t/data/0 has no header before its data"},
        {0, 0, 29, 255, "entry t/data/0: its 8 bytes are not in the file"},
        {0, 1, 2, 7, "the directory of the archive ends after 0 entries"},
        {0, 1, 20, 7, "entry t/data/0: its 8 bytes are not in the file"},
        {0, 1, 28, 255, "entry 0 of the archive's directory is broken"},
        {0, 1, 28, 0, "name is empty"},
        {0, 1, 45, 1, "entry t/data/0: its 8 bytes are not in the file"},
        {0, 1, 47, 0, "has a NUL"},
        {0, 1, 47, 7, "control character"},
        {0, 1, 32, 5, "the directory of the archive ends after 1 entries"},
        {0, 1, 82, 30, "entry 1 of the archive's directory is broken"},
        {0, 1, 86, 5, "entry 1 of the archive's directory is broken"},
        {1, 1, 54, 7, "entry 0 of the archive's directory is broken"},
        {1, 1, 56, 8, "entry 0 of the archive's directory is broken"},
        {1, 0, -34, 0, "the zip64 locator points to no zip64 end"},
        {1, 0, -33, 255, "the zip64 locator points beyond the file"},
        {0, 0, -20, 7, "does not end as a zip archive does"},
        {0, 0, -12, 1, "bytes after the last entry"},
        {0, 0, -12, 255, "255 entries in a directory"},
        {0, 0, -9, 255, "is not inside the file"},
        {0, 0, -5, 255, "is not inside the file"},
    };
    const struct test_dir dir = test_dir_make();

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct torch_writer w = archive((struct torch_writer){.zip64 = lies[i].zip64});
        const size_t directory = w.file.n;
        unsigned char *at;
        torch_end(&w);
        at = w.file.at + (lies[i].in_directory ? directory : lies[i].at < 0 ? w.file.n : 0);
        at[lies[i].at] = lies[i].byte;
        CHECK_ERROR(open_bytes(&dir, w.file.at, w.file.n), SPECBATCH_E_FORMAT, lies[i].part);
        free(w.file.at);
    }
    test_dir_remove(&dir);
}

/* Archives that are cut off, and with any one byte changed: none makes the reader crash, and none
 * is read in another way than what it says. */
static void survives_broken_archives(void)
{
    const struct test_dir dir = test_dir_make();
    int accepted = 0, refused = 0;

    for (int zip64 = 0; zip64 < 2; zip64++) {
        struct torch_writer w = archive((struct torch_writer){.zip64 = zip64});
        torch_end(&w);
        CHECK_OK(open_bytes(&dir, w.file.at, w.file.n));
        for (size_t n = 0; n < w.file.n; n++)
            CHECK(open_bytes(&dir, w.file.at, n) == SPECBATCH_E_FORMAT);
        for (size_t i = 0; i < 2 * w.file.n; i++) {
            unsigned char *at = &w.file.at[i / 2];
            const unsigned char was = *at;
            int32_t rc;
            *at = (unsigned char)(i % 2 ? was ^ 0xff : was ^ 1);
            rc = open_bytes(&dir, w.file.at, w.file.n);
            CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_FORMAT || rc == SPECBATCH_E_UNSUPPORTED);
            accepted += rc == SPECBATCH_OK;
            refused += rc != SPECBATCH_OK;
            *at = was;
        }
        free(w.file.at);
    }
    CHECK(accepted > 50 && refused > 300); /* enough of either for the test to mean something */
    test_dir_remove(&dir);
}

static void runs_out_of_memory_cleanly(void)
{
    struct test_memory memory = {0, 0, 0};
    const struct sb_mem mem = {test_memory_alloc, test_memory_free, &memory};
    struct sb_tensors *set = NULL;
    int32_t rc = SPECBATCH_E_NOMEM;

    for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
        memory = (struct test_memory){0, at, 0};
        rc = sb_tensors_open(&set, &mem, "test/data/models/torch");
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        CHECK(rc == SPECBATCH_OK || memory.live == 0);
        CHECK(at < 1000);
    }
    sb_tensors_close(set);
    CHECK_INT(memory.live, 0);
}

TEST_BEGIN
RUN(reads_a_file_of_torch);
RUN(is_the_same_model);
RUN(reads_shards);
RUN(reads_and_refuses_pickles);
RUN(refuses_a_high_stack);
RUN(refuses_other_archives);
RUN(refuses_what_is_too_large);
RUN(refuses_an_entry_at_the_end);
RUN(refuses_a_lie_in_an_archive);
RUN(survives_broken_archives);
RUN(runs_out_of_memory_cleanly);
TEST_END

/*
 * libspecbatch: fast and exact text generation by batch speculative decoding.
 *
 * A small draft model proposes K tokens for each of B sequences. The target model verifies all of
 * them in one pass, and each sequence keeps the proposals up to the first wrong one. Whatever the
 * policy, the batch, the draft length, the arrival order or the number of threads, the tokens and
 * log-probabilities of a request are those of plain decoding of that request alone, bit for bit
 * (docs/numerics.md states the scope).
 *
 *     specbatch_model *target = NULL, *small = NULL;
 *     specbatch_draft *draft = NULL;
 *     specbatch_pool *pool = NULL;
 *     specbatch_request request = SPECBATCH_REQUEST_INIT;
 *     specbatch_result *result = NULL;
 *     size_t active = 1;
 *
 *     if (specbatch_model_open(&target, "qwen3-8b", NULL) ||
 *         specbatch_model_open(&small, "qwen3-0.6b", NULL) ||
 *         specbatch_draft_from_model(&draft, small) ||
 *         specbatch_pool_create(&pool, target, draft, NULL))
 *         return fail(specbatch_last_error());
 *     request.text = "Once upon a time";
 *     request.max_new = 100;
 *     specbatch_pool_submit(pool, &request, NULL);
 *     while (active && specbatch_pool_step(pool, &active) == SPECBATCH_OK)
 *         while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
 *             puts(specbatch_result_text(result, NULL));
 *             specbatch_result_free(result);
 *         }
 *
 * Words. A model is an opened checkpoint. A draft is what proposes tokens: a model, the text
 * itself, or functions of the caller's. A pool decodes requests on a target model. A round is what
 * one call of specbatch_pool_step does: draft, verify and accept once, for up to B requests, its
 * rows. A sequence is a request's prompt and the tokens it has got so far.
 *
 * Conventions. Functions return a status: 0 is success, and every failure is negative and leaves
 * one line in specbatch_last_error() that names the place. In the comments below, E_NOMEM stands
 * for SPECBATCH_E_NOMEM, and so on; "fatal" stands for the code that has ended the pool. Any
 * function may also return E_INTERNAL. Out-parameters come first and are written on success only,
 * unless the comment says otherwise. Handles are opaque, and freeing NULL does nothing. Strings are
 * UTF-8; file names are whatever bytes the system takes. In the line of an error or of the log, a
 * '?' stands for what is not UTF-8 and for control characters. Token ids are int32_t, counts are
 * size_t. An option struct begins with its own size, zero means "the default" in each field
 * that has one, and it only ever grows at its end.
 *
 * Other languages. Constants are passed as int32_t, and flags as uint32_t. Flags are the constants
 * that are written as 1 << n. No struct has padding: a field begins where the one before it ends, a
 * pointer takes 8 bytes, and so does a size_t. So declarations can be checked by their sizes, which
 * are these in 0.2:
 *
 *     specbatch_model_options    112        specbatch_pool_options     120
 *     specbatch_message           24        specbatch_request          136
 *     specbatch_chat_options      24        specbatch_request_state     64
 *     specbatch_ngram_options     16        specbatch_event             64
 *     specbatch_draft_row         56        specbatch_audit_report      40
 *     specbatch_draft_ops         40        specbatch_sampling          80
 *     specbatch_stops             32        specbatch_mask              24
 *     specbatch_mask_row          72        specbatch_answers           16
 *     specbatch_table_options     24
 *
 * Threads. "Thread: any" means that a function may be called on any thread at any time. Models and
 * drafts are immutable, so any number of pools and threads may use one at once. "Thread: one at a
 * time" means that it may be called on any thread, but not while another thread is inside a call on
 * the same object; on a pool such a call fails with E_BUSY. Pools are independent of each other. A
 * collected result is independent too: it may outlive its pool, any number of threads may read it,
 * and any one of them frees it.
 *
 * State. The library keeps no global state, except for each thread's last error and the
 * floating-point mode that the thread came with. It never prints, exits, reads the environment or
 * installs a handler.
 *
 * Callbacks. Memory hooks, log functions, progress functions, masks and the functions of a draft
 * are called on a thread that is inside the library, in the host's floating-point mode. They may
 * not call the pool that called them (E_BUSY), except for specbatch_pool_stat and
 * specbatch_pool_interrupt. They must return. If a callback is left by longjmp or by an exception,
 * the interrupted call is never finished, what it was creating is lost, and its pool is dead
 * (specbatch_pool_free says how to free it).
 *
 * Forks. A pool works only in the process that created it, since its threads do not exist in a
 * forked child. In such a child:
 *   - calls on the parent's pools return E_INVALID, except for specbatch_pool_stat, which works,
 *     and specbatch_pool_interrupt, which returns OK and does nothing;
 *   - specbatch_pool_free gives the memory of the parent's pool back, and calls the draft's
 *     functions as ever. If a thread or a callback was inside the pool at the fork, nothing of it
 *     is touched, and free fails with E_BUSY, and so does stat outside that callback;
 *   - results, text streams, models and drafts may be used and freed;
 *   - a new pool may be created on a model that the parent opened on the CPU. With a model on a GPU
 *     that is E_INVALID, and closing such a model leaves the GPU alone. CUDA does not survive a
 *     fork, so fork before CUDA is first used;
 *   - a callback inside which the fork was made may not return.
 */
#ifndef SPECBATCH_H
#define SPECBATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SPECBATCH_API __attribute__((visibility("default")))
#else
#define SPECBATCH_API
#endif

/* ------------------------------------------------------------------ version */

#define SPECBATCH_VERSION_MAJOR 0
#define SPECBATCH_VERSION_MINOR 2
#define SPECBATCH_VERSION_PATCH 0
/* The same as one number: major * 10000 + minor * 100 + patch. Since 0.2. */
#define SPECBATCH_VERSION_NUMBER \
    (SPECBATCH_VERSION_MAJOR * 10000 + SPECBATCH_VERSION_MINOR * 100 + SPECBATCH_VERSION_PATCH)
/* The number of the ABI, which the soname and the symbol versions carry (docs/abi.md). */
#define SPECBATCH_SOVERSION 1

/* SPECBATCH_VERSION_NUMBER of the library at run time. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_version(void);

/* The same as text, "0.2.0" for example: a static string. Thread: any. Since 0.2. */
SPECBATCH_API const char *specbatch_version_string(void);

/* SPECBATCH_SOVERSION of the library at run time. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_abi_version(void);

/* Returns 1 when this build has the feature on this machine, else 0; also 0 for NULL and for
 * unknown names:
 *   "cpu"
 *   "cuda"                              the CUDA module lies beside the library, finds a device
 *   "avx2", "avx512", "avx512_bf16"     this processor can run it
 *   "amx"                               the same, its matrix unit for bfloat16; since 0.2
 * Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_has(const char *feature);

/* ------------------------------------------------------------------- status */

enum {
    SPECBATCH_OK = 0,

    /* The call was wrong. Nothing has changed. */

    /* An argument is NULL or out of range. */
    SPECBATCH_E_INVALID = -1,
    /* An option struct has a non-zero field or flag that this library does not know. */
    SPECBATCH_E_OPTIONS = -2,
    /* The prompt and max_new do not fit the model's context or the pool's max_len. */
    SPECBATCH_E_TOO_LONG = -3,
    /* A token id is outside the vocabulary. */
    SPECBATCH_E_TOKEN = -4,
    /* The caller's buffer is too small. The size that is needed is reported. */
    SPECBATCH_E_BUFFER = -5,
    /* There is no such request, counter, policy or format. */
    SPECBATCH_E_NOT_FOUND = -6,
    /* There is nothing to collect now, or no event. */
    SPECBATCH_E_EMPTY = -7,
    /* As many requests wait as queue_max allows. */
    SPECBATCH_E_QUEUE_FULL = -8,
    /* The call came from a callback of the same pool, or another thread is inside the pool. */
    SPECBATCH_E_BUSY = -9,
    /* Draft and target do not share a vocabulary. */
    SPECBATCH_E_VOCAB = -10,

    /* Resources. */

    /* An allocation failed. The object is as it was before the call. */
    SPECBATCH_E_NOMEM = -20,
    /* The pool needs more bytes than budget_bytes, or a pin more blocks than the prefix cache can
     * give. The message has both numbers. */
    SPECBATCH_E_BUDGET = -21,

    /* Files. */

    /* A file cannot be opened, read or written. */
    SPECBATCH_E_IO = -30,
    /* A file's content breaks the rules of its format. */
    SPECBATCH_E_FORMAT = -31,
    /* Well formed, but not something that this library can run. */
    SPECBATCH_E_UNSUPPORTED = -32,
    /* Text was given or asked for, and the model has no tokenizer. */
    SPECBATCH_E_NO_TOKENIZER = -33,

    /* What ends a step or a request. */

    /* The draft's propose function, a mask or the progress function asked to stop, or propose broke
     * its rules. */
    SPECBATCH_E_CANCELLED = -40,
    /* The target's logits hold a NaN, or those of a scored prompt an infinity. This ends the one
     * request only. */
    SPECBATCH_E_NAN = -41,
    /* specbatch_pool_interrupt was called. */
    SPECBATCH_E_INTERRUPTED = -42,
    /* Mask and bans leave no token that the request could go on with. This ends the one request
     * only. Since 0.2. */
    SPECBATCH_E_NO_CHOICE = -43,

    /* Devices. */

    /* The device asked for is not there. The message says which part of it is missing. */
    SPECBATCH_E_NO_DEVICE = -50,

    /* Fatal codes: the pool that returns one is dead. From then on every call on it returns the
     * same code, except that specbatch_pool_collect still hands out the results that had finished,
     * that specbatch_pool_stat and specbatch_pool_free work, and that specbatch_pool_interrupt
     * returns OK and does nothing. */

    /* The device failed. */
    SPECBATCH_E_DEVICE = -60,
    /* A callback was left by longjmp or an exception, or the library has a bug. */
    SPECBATCH_E_INTERNAL = -61
};

#define SPECBATCH_ERROR_MAX 256

/* The name of a status, "SPECBATCH_E_NOMEM" for example, or "unknown status". A static string.
 * Thread: any. Since 0.1. */
SPECBATCH_API const char *specbatch_status_name(int32_t status);

/* Returns 1 for the fatal codes, after which a pool is dead, else 0. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_status_is_fatal(int32_t status);

/* One line about the latest failure on this thread, of at most SPECBATCH_ERROR_MAX - 1 bytes; ""
 * when there has been none. Borrowed until the next call on this thread. Thread: any. Since 0.1. */
SPECBATCH_API const char *specbatch_last_error(void);

/* ---------------------------------------------------- memory and log callbacks */

/* Returns `size` bytes aligned to `align` (a power of two, at most 64), or NULL. */
typedef void *(*specbatch_alloc_fn)(void *user, size_t size, size_t align);
/* Frees what the alloc function returned for exactly `size` bytes. */
typedef void (*specbatch_free_fn)(void *user, void *ptr, size_t size);

enum { SPECBATCH_LOG_ERROR = 1, SPECBATCH_LOG_WARN = 2, SPECBATCH_LOG_INFO = 3 };
/* Receives one line without a newline. It may not call the library, and is never called while the
 * library holds a lock. */
typedef void (*specbatch_log_fn)(void *user, int32_t level, const char *line);

/* -------------------------------------------------------------------- model */

typedef struct specbatch_model specbatch_model;

enum { SPECBATCH_DEVICE_CPU = 0, SPECBATCH_DEVICE_CUDA = 1 };

/* How matrix products are computed: the compute class (docs/numerics.md). In each class results are
 * the same bits under every policy, batch and so on; one class's bits differ from another's.
 * On CUDA, BF16 means the checkpoint's own 16-bit type, and F32 is a slow reference whose bits are
 * those of F32 on the CPU (docs/cuda.md). */
enum {
    /* BF16 on CUDA. On the CPU SPLIT for bfloat16 weights where the processor has a matrix unit
     * that the system lets the library use, else F32. So it differs between machines: what compares
     * them names a class. */
    SPECBATCH_COMPUTE_AUTO = 0,
    /* Weights and matrix inputs are rounded to bfloat16, which is faster for many rows. */
    SPECBATCH_COMPUTE_BF16 = 1,
    /* Weights as they are stored, and float activations: within 1e-4 of a float reference. */
    SPECBATCH_COMPUTE_F32 = 2,
    /* For bfloat16 weights: each float activation is cut into three bfloat16 values, which a matrix
     * unit can multiply. As accurate as F32. Other weights are as with F32. CPU only. Since 0.2. */
    SPECBATCH_COMPUTE_SPLIT = 3,
    /* For quantised weights: activations become integers of 8 bits, each 32 of them with a scale of
     * their own. The least work, and less exact than BF16. Other weights are as with BF16. CPU
     * only. Since 0.2. */
    SPECBATCH_COMPUTE_INT8 = 4
};

/* The instruction set of the CPU's arithmetic. All of them give the same bits. To force one is for
 * tests and bug reports; E_UNSUPPORTED where it is not to be had. */
enum {
    SPECBATCH_SIMD_AUTO = 0,
    SPECBATCH_SIMD_SCALAR = 1,
    SPECBATCH_SIMD_AVX2 = 2,
    SPECBATCH_SIMD_AVX512 = 3,
    /* AVX-512, and the matrix unit where both factors of a product are bfloat16, or both integers
     * of 8 bits. Since 0.2. */
    SPECBATCH_SIMD_AMX = 4
};

/* The type of the keys and values in a pool's caches. Each is a class of its own: results are the
 * same bits under every policy, batch and so on, and differ between types (docs/numerics.md). With
 * 16 bits a cache takes half the memory. Since 0.2. */
enum {
    /* On the CPU F32, with the classes BF16 and INT8 BF16; on CUDA the type of the weights, and no
     * other. */
    SPECBATCH_KV_AUTO = 0,
    SPECBATCH_KV_F32 = 1,
    SPECBATCH_KV_BF16 = 2,
    SPECBATCH_KV_F16 = 3 /* what is too large for it becomes its largest finite value */
};

/* What matrices are quantised to when a model is opened: to integers of 8 or 4 bits, in groups of
 * 32 that share a scale. Each is a class of its own: results are the same bits under every policy,
 * batch and so on, and differ between types (docs/numerics.md). Matrices that are quantised
 * already, as in many GGUF files, stay as they are. Since 0.2. */
enum {
    SPECBATCH_WEIGHTS_AUTO = 0, /* as they are stored */
    SPECBATCH_WEIGHTS_Q8 = 1,
    SPECBATCH_WEIGHTS_Q4 = 2 /* the embedding table and the output layer: 8 bits */
};

/* Who computes the attention of long prompts on CUDA in the class BF16; elsewhere the option
 * changes nothing. Each is a class of its own: results are the same bits under every policy, batch
 * and so on, and differ between the two (docs/cuda.md). Since 0.2. */
enum {
    SPECBATCH_PREFILL_OWN = 0, /* the library's own kernel */
    /* cuDNN, where it passes a test: whether it did is in the model's fingerprint, and if not, the
     * log says why. A model takes seconds longer to open then, and so does the first pool with
     * slots of a new length to create. A draft's prompts are always the own kernel's. */
    SPECBATCH_PREFILL_CUDNN = 1
};

/* Told while weights are loaded: `done` of `total` bytes. `done` never falls, and the last call has
 * done == total. Any other return value than 0 ends the loading with E_CANCELLED. Since 0.2. */
typedef int32_t (*specbatch_progress_fn)(void *user, uint64_t done, uint64_t total);

typedef struct specbatch_model_options {
    size_t struct_size; /* sizeof(specbatch_model_options) */
    int32_t device;     /* SPECBATCH_DEVICE_* */
    int32_t compute;    /* SPECBATCH_COMPUTE_* */
    int32_t simd;       /* SPECBATCH_SIMD_* */
    /* Which of the GPUs that CUDA sees; on the CPU it must be 0. Called `reserved` in 0.1. */
    int32_t device_index;
    /* Set both or neither. NULL: the C library's. They must be callable from any thread. */
    specbatch_alloc_fn alloc;
    specbatch_free_fn free;
    void *alloc_user;
    specbatch_log_fn log; /* NULL: nothing is logged */
    void *log_user;
    /* The absolute path of libspecbatch_cuda.so. NULL: it lies beside this library. */
    const char *cuda_module;
    /* NULL: loading is not watched. Since 0.2. */
    specbatch_progress_fn progress;
    void *progress_user;
    int32_t kv;      /* SPECBATCH_KV_*. Since 0.2. */
    int32_t weights; /* SPECBATCH_WEIGHTS_*. Since 0.2. */
    /* CUDA: the path, of at most 1023 bytes, of a file in which the timings of large products are
     * kept from process to process; NULL: they are made anew. It is read and written when a pool is
     * created, models may share it, and it affects speed and never a token. A file that is missing,
     * damaged or of another machine is written anew; if one cannot be read or written, the log says
     * so. The path is copied. The CPU ignores it. Since 0.2. */
    const char *plan_file;
    int32_t prefill;  /* SPECBATCH_PREFILL_*. Since 0.2. */
    int32_t reserved; /* 0 */
} specbatch_model_options;

#define SPECBATCH_MODEL_OPTIONS_INIT                                                           \
    {                                                                                          \
        sizeof(specbatch_model_options), 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
            NULL, 0, 0, NULL, 0, 0                                                             \
    }

/* Sets struct_size to `size`, and every other field within the first `size` bytes to its default.
 * `size` is the caller's sizeof(specbatch_model_options).
 * E_INVALID (options is NULL, or size is less than sizeof(size_t) or above 4096). Thread: any.
 * Since 0.1. */
SPECBATCH_API int32_t specbatch_model_options_init(specbatch_model_options *options, size_t size);

/*
 * Opens the checkpoint in a directory as Hugging Face lays it out:
 *   config.json
 *   generation_config.json     optional
 *   model.safetensors          or model.safetensors.index.json and the files that it names; or,
 *                              where neither is there, pytorch_model.bin with its index alike
 *   tokenizer.json             or tokenizer.model, or neither: then the model takes token ids only
 * or a GGUF file, if the path is not that of a directory; of several parts the first. Its metadata
 * have the configuration, the tokenizer and the chat template, and a tokenizer.json beside it is
 * taken instead of its tokenizer. Tensors may be F32, BF16 and F16, and matrices of a GGUF file
 * Q8_0, Q4_0, Q4_K, Q5_K, Q6_K and MXFP4 too. A model of tensors of the same types gives the same
 * bits from any container. All files are read and closed again, so they are not needed afterwards.
 * A pytorch_model.bin is a pickle, a program: it is not executed, and one that does anything but
 * list tensors is E_UNSUPPORTED.
 *
 * *out is a model with one reference, which the caller drops by specbatch_model_close. options is
 * NULL or a struct, which is copied. The memory and log functions in it must stay callable until
 * the last reference is dropped.
 *
 * E_INVALID, E_OPTIONS, E_NOMEM, E_IO, E_FORMAT, E_UNSUPPORTED, E_CANCELLED (by the progress
 * function), E_NO_DEVICE, E_DEVICE. Thread: any. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_model_open(specbatch_model **out, const char *path,
                                           const specbatch_model_options *options);

/*
 * Writes the checkpoint `from`, a directory or a GGUF file, as a GGUF file `to`, which
 * specbatch_model_open and llama.cpp open. Its matrices are those of a model that is opened with
 * the same option `weights`: in Q8_0, in Q4_0, or as they are. Those whose rows are no multiple of
 * 32 elements stay as they are. Norms and biases are F32. A model of the file, if opened with that
 * option too, gives the same tokens and log-probabilities, bit for bit.
 *
 * Tokenizer and chat template become metadata. If these cannot say all that the tokenizer does, the
 * log is told, and tokenizer.json and the files beside it are in the file too: this library goes by
 * them and so loses nothing, while llama.cpp goes by the metadata, which may be without a tokenizer
 * then.
 *
 * Of a GGUF file, in parts or in one, the metadata stay as they are, and a tokenizer.json beside it
 * goes in, with the files beside that. By way of a file in the checkpoint's own type the new one
 * is, byte by byte, that of the directory. What is quantised already is copied if `weights` is
 * AUTO, and else refused, because to round it again loses more.
 *
 * Memory is taken for metadata and for some rows of a tensor only. Of options (NULL: the defaults)
 * alloc, free, log, progress and weights are used; the others are checked and change nothing. The
 * file is written under a temporary name in its directory, and takes the place of a file of this
 * name when it is whole and on the disk. After a failure nothing of it is left.
 *
 * If `to` ends in ".safetensors", it is a safetensors file of the tensors that config.json calls
 * for, as they are stored, and of nothing else: beside a config.json it is a checkpoint.
 *
 * E_INVALID (also: `to` is a directory, or has more than 1023 bytes), E_OPTIONS, E_NOMEM, E_IO (the
 * message has the system's reason), E_FORMAT, E_UNSUPPORTED (also: its config.json says what a GGUF
 * file cannot, what is quantised would be quantised again, or safetensors are to be quantised or
 * made of a GGUF file), E_CANCELLED.
 * Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_convert(const char *to, const char *from,
                                        const specbatch_model_options *options);

/* Adds a reference, to be dropped by one more specbatch_model_close. Pools, drafts, text streams
 * and results hold references of their own. NULL is ignored. Thread: any. Since 0.1. */
SPECBATCH_API void specbatch_model_retain(specbatch_model *model);

/* Drops a reference: the one of specbatch_model_open, or that of a specbatch_model_retain. Dropping
 * the last one frees the model. NULL is ignored. Thread: any. Since 0.1. */
SPECBATCH_API void specbatch_model_close(specbatch_model *model);

/* What the checkpoint says. Strings and arrays are borrowed and live as long as the model. A NULL
 * model gives 0, "" or NULL. Thread: any. Since 0.1. */

/* The architecture: "llama", "qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe", "mistral",
 * "mixtral", "phi3", "gemma2", "gemma3_text", "smollm3" or "gpt_oss". GGUF files do not tell
 * Mistral from Llama, unless it has a sliding window. */
SPECBATCH_API const char *specbatch_model_arch(const specbatch_model *model);
/* The type of the layers' matrices as they are in memory, or of most of their elements where it
 * differs: "f32", "bf16", "f16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k" or "mxfp4". The
 * fingerprint names all types that there are. */
SPECBATCH_API const char *specbatch_model_dtype(const specbatch_model *model);
/* One line that names the numerics class: all that the bits of results depend on. */
SPECBATCH_API const char *specbatch_model_fingerprint(const specbatch_model *model);
/* 32 hexadecimal digits over all numbers of the configuration and every byte of the weights, as the
 * checkpoint has them: equal for equal models, on whatever device, and different for others. A GGUF
 * file differs from what it was made of if some tensors (norms, most often) have another type in
 * it, or if it names other special tokens. It is no proof against forgery. Since 0.2. */
SPECBATCH_API const char *specbatch_model_digest(const specbatch_model *model);
SPECBATCH_API int32_t specbatch_model_vocab_size(const specbatch_model *model);
SPECBATCH_API int32_t specbatch_model_layers(const specbatch_model *model);
/* The most tokens that a prompt and its continuation may have together. */
SPECBATCH_API int32_t specbatch_model_context(const specbatch_model *model);
/* Bytes of memory that the weights take. */
SPECBATCH_API uint64_t specbatch_model_bytes(const specbatch_model *model);
/* 1 or 0. */
SPECBATCH_API int32_t specbatch_model_has_tokenizer(const specbatch_model *model);
/* The end-of-sequence ids, *n of them. n may be NULL. */
SPECBATCH_API const int32_t *specbatch_model_eos(const specbatch_model *model, size_t *n);

/* --------------------------------------------------------------------- text */

enum {
    /* Tokenizing: leave out what the tokenizer's template adds (the begin-of-sequence token). */
    SPECBATCH_TEXT_NO_BOS = 1 << 0,
    /* Tokenizing: take special tokens in the text for ordinary text, as untrusted input needs. */
    SPECBATCH_TEXT_PLAIN_SPECIAL = 1 << 1,
    /* Detokenizing: keep special tokens in the text. */
    SPECBATCH_TEXT_KEEP_SPECIAL = 1 << 2
};

/*
 * Converts text to token ids. `length` is in bytes, and the text need not end in NUL; it may be
 * NULL with length 0. *n (required) receives the number of ids, also with E_BUFFER. ids may be NULL
 * with capacity 0, to ask for that number only.
 *
 * E_INVALID (also: invalid UTF-8, or a flag that is not for tokenizing), E_NO_TOKENIZER, E_BUFFER,
 * E_UNSUPPORTED (the tokenizer's regular expression would take more steps on this text than any
 * known one takes; other texts are not affected), E_NOMEM. Thread: any. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_tokenize(const specbatch_model *model, const char *text,
                                         size_t length, uint32_t flags, int32_t *ids,
                                         size_t capacity, size_t *n);

/*
 * Converts token ids to text. The text is written with a NUL behind it, for which `capacity` must
 * have room. *n (required) receives the length in bytes without that NUL, also with E_BUFFER.
 * buffer may be NULL with capacity 0, to ask for the length only; ids may be NULL with n_ids 0. Ids
 * that the vocabulary has no text for are skipped, and bytes that do not form UTF-8 become U+FFFD.
 *
 * E_INVALID (also: a flag that is not for detokenizing), E_NO_TOKENIZER, E_BUFFER, E_NOMEM.
 * Thread: any. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_detokenize(const specbatch_model *model, const int32_t *ids,
                                           size_t n_ids, uint32_t flags, char *buffer,
                                           size_t capacity, size_t *n);

/* One token as the vocabulary's file spells it. buffer, capacity and *n are as for
 * specbatch_detokenize.
 * E_INVALID, E_NO_TOKENIZER, E_TOKEN (no token has this id), E_BUFFER. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_token_text(const specbatch_model *model, int32_t id, char *buffer,
                                           size_t capacity, size_t *n);

/* ----------------------------------------------------------- conversations */

/* Chat formats, by the models that were trained on them. Their numbers are those of this soname:
 * 0.1 had others. Mistral's have the version of its tokenizer.
 *
 * A format refuses what its template refuses (E_INVALID): Gemma's and Mistral's V1 and V3 that the
 * user has not every other turn, GEMMA2 a system message at the beginning, and Mistral's V1 and V3
 * one elsewhere. These two put it into the first question, or into the last message if that is a
 * question. GPT_OSS has a system message at the beginning only, and refuses an answer that spells
 * its marks of channels: of an answer's text, a later conversation has what is behind the last
 * "<|channel|>final<|message|>", and no reasoning. DEEPSEEK_R1 begins with the last of the system
 * messages and leaves out the others; answers keep what is behind their last "</think>", and the
 * next one begins with "<think>". */
enum {
    SPECBATCH_CHAT_AUTO = 0,   /* the model's own: see specbatch_model_chat_format */
    SPECBATCH_CHAT_RAW = 1,    /* no format: the contents, one after the other */
    SPECBATCH_CHAT_VICUNA = 2, /* Vicuna 1.1 and later */
    SPECBATCH_CHAT_QWEN3 = 3,
    SPECBATCH_CHAT_GLM4 = 4,    /* GLM-4-0414 */
    SPECBATCH_CHAT_GLMZ1 = 5,   /* GLM-Z1-0414, whose answers begin with <think> */
    SPECBATCH_CHAT_LLAMA3 = 6,  /* Llama 3; not 3.1 and later, whose system message has a date */
    SPECBATCH_CHAT_CHATML = 7,  /* ChatML without more, as of Qwen3-Instruct-2507 */
    SPECBATCH_CHAT_QWEN2 = 8,   /* ChatML; without a system message, that of Qwen2-Instruct */
    SPECBATCH_CHAT_QWEN2_5 = 9, /* the same with that of Qwen2.5-Instruct */
    SPECBATCH_CHAT_PHI3 = 10,   /* Phi-3 */
    SPECBATCH_CHAT_PHI3_5 = 11, /* Phi-3.5, which leaves out a system message without text */
    SPECBATCH_CHAT_PHI4 = 12,   /* Phi-4; not Phi-4-reasoning */
    SPECBATCH_CHAT_GEMMA2 = 13, /* Gemma and Gemma 2, which have no system message */
    SPECBATCH_CHAT_GEMMA3 = 14, /* Gemma 3, which puts it in front of the first question */
    SPECBATCH_CHAT_MISTRAL_V1 = 15,        /* Mistral-7B-Instruct-v0.2 */
    SPECBATCH_CHAT_MISTRAL_V3 = 16,        /* Mistral-7B-Instruct-v0.3 and Large-Instruct-2407 */
    SPECBATCH_CHAT_MISTRAL_V3_TEKKEN = 17, /* Mistral-Nemo-Instruct-2407 */
    SPECBATCH_CHAT_MISTRAL_V7 = 18,        /* Mistral-Large-Instruct-2411 */
    SPECBATCH_CHAT_PHI4_MINI = 19,         /* Phi-4-mini-instruct */
    SPECBATCH_CHAT_GLM4_5 = 20,            /* GLM-4.5, GLM-4.5-Air and GLM-4.6 */
    SPECBATCH_CHAT_LLAMA3_1 = 21,          /* Llama 3.1 and 3.3 */
    SPECBATCH_CHAT_LLAMA3_2 = 22,          /* Llama 3.2, which has the same text */
    SPECBATCH_CHAT_GPT_OSS = 23,           /* gpt-oss: harmony, without tools */
    SPECBATCH_CHAT_DEEPSEEK_R1 = 24        /* DeepSeek-R1-Distill, of Qwen2.5 and of Llama 3 */
};

/* Formats are numbered from 0 to specbatch_chat_count() - 1. Thread: any. Since 0.2. */
SPECBATCH_API int32_t specbatch_chat_count(void);
/* A format's name, a static string: "auto", "qwen3", "qwen2.5" and so on. NULL when the number is
 * out of range. Thread: any. Since 0.2. */
SPECBATCH_API const char *specbatch_chat_name(int32_t format);
/* The number of a format, or E_INVALID (name is NULL) or E_NOT_FOUND. Thread: any. Since 0.2. */
SPECBATCH_API int32_t specbatch_chat_by_name(const char *name);

/*
 * The format of the model's own chat template: chat_template.jinja in the checkpoint's folder, or
 * else chat_template in its tokenizer_config.json (of several, the one that is called "default").
 * Templates are recognised by what they say and never run. A template that some fine-tune has
 * changed is not recognised, since its text would not be that of the format. Vicuna's checkpoints
 * have no template.
 *
 * A number above 0, E_INVALID (model is NULL) or E_NOT_FOUND (there is no template, or none that
 * this library knows). Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_model_chat_format(const specbatch_model *model);

/* A message of a conversation. The array of them has a stride, so that the struct can grow. */
typedef struct specbatch_message {
    const char *role;      /* "system", "user" or "assistant" */
    const char *content;   /* need not end in NUL; may be NULL if content_length is 0 */
    size_t content_length; /* in bytes, without a NUL behind it */
} specbatch_message;

enum {
    /* Without reasoning, as a template's enable_thinking=false has it. A format that never has any
     * is not changed by this; GLMZ1, GPT_OSS and DEEPSEEK_R1 always have it, and refuse
     * (E_UNSUPPORTED). */
    SPECBATCH_CHAT_NO_THINK = 1 << 0,
    /* End behind the last message, without the mark that begins an answer. */
    SPECBATCH_CHAT_NO_ANSWER_PROMPT = 1 << 1,
    /* For specbatch_chat_tokens: special tokens that are spelled out in a content become tokens,
     * as they do in text. Only for contents that are trusted. */
    SPECBATCH_CHAT_PARSE_SPECIAL = 1 << 2
};

/* How long GPT_OSS is to reason. */
enum {
    SPECBATCH_EFFORT_DEFAULT = 0, /* what the template says by itself: medium */
    SPECBATCH_EFFORT_LOW = 1,
    SPECBATCH_EFFORT_MEDIUM = 2,
    SPECBATCH_EFFORT_HIGH = 3
};

typedef struct specbatch_chat_options {
    size_t struct_size; /* sizeof(specbatch_chat_options) */
    int32_t format;     /* SPECBATCH_CHAT_AUTO and so on */
    uint32_t flags;     /* SPECBATCH_CHAT_NO_THINK and so on */
    /* The day that it is, 20261129 being November 29, 2026, for formats that say it. The library
     * has no clock. 0: LLAMA3_1 and LLAMA3_2 say July 26, 2024, as their templates do unless told
     * (Llama 3.1) or without a clock (3.2), and GPT_OSS refuses (E_INVALID). */
    int32_t date;
    int32_t effort; /* SPECBATCH_EFFORT_DEFAULT and so on, for GPT_OSS */
} specbatch_chat_options;

#define SPECBATCH_CHAT_OPTIONS_INIT                \
    {                                              \
        sizeof(specbatch_chat_options), 0, 0, 0, 0 \
    }

/* Does for these options what specbatch_model_options_init does for those.
 * E_INVALID. Thread: any. Since 0.2. */
SPECBATCH_API int32_t specbatch_chat_options_init(specbatch_chat_options *options, size_t size);

/*
 * Converts a conversation to the token ids that its model was trained on, up to the place where the
 * assistant answers next: a request's ids, without anything to be added. The format's marks become
 * special tokens. A special token that is spelled out in a content stays text there, and so does
 * each mark, unless PARSE_SPECIAL is given; other added tokens, such as Qwen3's <think>, are tokens
 * in a content too. Otherwise the ids are those of the conversation's text as a whole.
 *
 * options is NULL or a struct. messages points to n_messages of them, each message_size bytes
 * behind the last; message_size is the caller's sizeof(specbatch_message). ids, capacity and *n are
 * as for specbatch_tokenize.
 *
 * E_INVALID (also: no message, an unknown role, or one where the format has none; a date that is
 * none, or none where the format needs one), E_OPTIONS (a flag, or a field of a message, that this
 * library does not know), E_NOT_FOUND (no such format; or AUTO, and specbatch_model_chat_format
 * finds none), E_UNSUPPORTED (NO_THINK with GLMZ1, GPT_OSS or DEEPSEEK_R1; also as
 * specbatch_tokenize), E_NO_TOKENIZER, E_BUFFER, E_NOMEM. Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_chat_tokens(const specbatch_model *model,
                                            const specbatch_chat_options *options,
                                            const specbatch_message *messages, size_t message_size,
                                            size_t n_messages, int32_t *ids, size_t capacity,
                                            size_t *n);

/*
 * The same as text, to be looked at, or for other programs. Nothing in the text tells a mark from a
 * content that spells it, so prompts that hold untrusted contents are made by
 * specbatch_chat_tokens. model may be NULL if options have a format. buffer, capacity and *n are as
 * for specbatch_detokenize.
 *
 * As specbatch_chat_tokens, without E_NO_TOKENIZER. Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_chat_text(const specbatch_model *model,
                                          const specbatch_chat_options *options,
                                          const specbatch_message *messages, size_t message_size,
                                          size_t n_messages, char *buffer, size_t capacity,
                                          size_t *n);

/* ------------------------------------------------------------- text streams */

/* Makes text of a growing sequence of ids, piece by piece and never half a character. */
typedef struct specbatch_text_stream specbatch_text_stream;

/* Creates a stream, which the caller frees. It holds a reference to the model. flags are those of
 * specbatch_detokenize.
 * E_INVALID, E_NO_TOKENIZER, E_NOMEM. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_text_stream_create(specbatch_text_stream **out,
                                                   specbatch_model *model, uint32_t flags);

/*
 * Adds ids. *text is the text that they have completed, with a NUL behind it and *length bytes long
 * (length may be NULL). It is borrowed until the next call on this stream. With n_ids = 0 nothing
 * is added, and *text is "" (0.1 ended the text then). Held back are the first bytes of an
 * unfinished character and, if the tokenizer's decoder has ByteFallback, a run of byte tokens until
 * it ends, because one bad byte turns the whole run into U+FFFD.
 *
 * E_INVALID, E_NOMEM (the stream is as before). Thread: one at a time. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_text_stream_push(specbatch_text_stream *stream, const int32_t *ids,
                                                 size_t n_ids, const char **text, size_t *length);

/* Ends the text. *text is what was held back, with an unfinished character as U+FFFD; it and
 * *length are as for specbatch_text_stream_push. The next id that is pushed begins another text.
 * E_INVALID, E_NOMEM (the stream is as before). Thread: one at a time. Since 0.2. */
SPECBATCH_API int32_t specbatch_text_stream_finish(specbatch_text_stream *stream, const char **text,
                                                   size_t *length);

/* Frees a stream and drops its reference. NULL is ignored. Thread: one at a time. Since 0.1. */
SPECBATCH_API void specbatch_text_stream_free(specbatch_text_stream *stream);

/* ----------------------------------------------------------------- policies */

/* How the rows of a round are chosen, and whether they have to be aligned. A sequence has its keys
 * and values in a slot of the caches, a column for each token; aligned rows end in the same column.
 * B is the pool's batch. "The paper" is Batch Speculative Decoding Done Right. */
enum {
    /* Any B sequences, each with its own length. The default. */
    SPECBATCH_POLICY_RAGGED = 0,
    /* Any B sequences, without speculation: the baseline. */
    SPECBATCH_POLICY_PLAIN = 1,
    /* B sequences until all have finished. After every round they are realigned, which is to shift
     * them in their slots so that all end in one column (the paper's Algorithm 2). */
    SPECBATCH_POLICY_EQSPEC = 2,
    /* Sequences that end in the same column already, out of a window of W. Others are realigned if
     * no column fills the batch, if one of them has waited too long, or at the end of the slots
     * (the paper's Algorithm 3; which rows are taken is this library's own rule). */
    SPECBATCH_POLICY_EXSPEC = 3,
    /* Any B sequences; each is cut to the smallest accepted count of the round (the paper,
     * section 2). */
    SPECBATCH_POLICY_ROLLBACK = 4
};

/* Policies are numbered from 0 to specbatch_policy_count() - 1. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_policy_count(void);
/* A policy's name, a static string: "ragged" for example. NULL when the number is out of range.
 * Thread: any. Since 0.1. */
SPECBATCH_API const char *specbatch_policy_name(int32_t policy);
/* The number of a policy, or E_INVALID (name is NULL) or E_NOT_FOUND. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_policy_by_name(const char *name);

/* ------------------------------------------------------------------- drafts */

/*
 * What proposes tokens. A wrong proposal costs time and never changes a token, so a draft may be
 * anything. It is immutable, has counted references, and may serve any number of pools at once. A
 * pool that never speculates (draft_len -1, or the plain policy) takes a draft and leaves it idle.
 */
typedef struct specbatch_draft specbatch_draft;

/*
 * A draft model, which should be a small one of the target's family. It must be on the same kind of
 * device as the target and have its vocabulary; padding and added tokens may differ. Both are
 * checked by specbatch_pool_create. Every pool has caches of its own for it.
 *
 * *out has one reference, which the caller drops by specbatch_draft_release. The draft takes a
 * reference of its own to the model, whose memory functions it uses.
 *
 * E_INVALID, E_NOMEM. Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_draft_from_model(specbatch_draft **out, specbatch_model *model);

typedef struct specbatch_ngram_options {
    size_t struct_size; /* sizeof(specbatch_ngram_options) */
    /* The most tokens that are compared: 1..16; 0: 8, or min_match if that is more. */
    int32_t max_match;
    /* The fewest tokens that have to be equal: 1..max_match; 0: 2, or max_match if that is less. */
    int32_t min_match;
} specbatch_ngram_options;

#define SPECBATCH_NGRAM_OPTIONS_INIT          \
    {                                         \
        sizeof(specbatch_ngram_options), 0, 0 \
    }

/* Does for these options what specbatch_model_options_init does for those.
 * E_INVALID. Thread: any. Since 0.2. */
SPECBATCH_API int32_t specbatch_ngram_options_init(specbatch_ngram_options *options, size_t size);

/*
 * A draft without a model, for texts that repeat themselves or their prompt: summaries, edited
 * code, answers that quote. It looks for the last tokens of a sequence, max_match of them or as
 * many less as it takes, at an earlier place of the same sequence, prompt included, and proposes
 * what followed there. Of several such places the latest counts. It proposes nothing where not even
 * min_match tokens recur. A token costs it a few hash table accesses for each length from min_match
 * to max_match. Tables take 6 to 12 bytes of a pool for each such length, times slots and max_len.
 *
 * options is NULL or a struct, which is copied. *out is as for specbatch_draft_from_model; its
 * memory is the C library's.
 *
 * E_INVALID, E_OPTIONS, E_NOMEM. Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_draft_from_ngrams(specbatch_draft **out,
                                                  const specbatch_ngram_options *options);

/*
 * A draft without a model, from a file of specbatch_table_make: it proposes what most often
 * followed the last tokens of a sequence in the texts that the table was made of, then what
 * followed those and the proposal, and so on. The longest context counts that the table has. Of
 * options (NULL: the defaults) max_match and min_match are the tokens that are compared at most and
 * at least.
 *
 * The file is read once, into memory of the C library's. *out is as for
 * specbatch_draft_from_ngrams. A pool refuses it (E_VOCAB) if it has ids that the target lacks, or
 * was made with a tokenizer that spells some of its ids in another way.
 *
 * E_INVALID, E_NOMEM, E_IO (also: there is no such file), E_FORMAT, E_UNSUPPORTED (another version
 * of the format). Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_draft_from_table(specbatch_draft **out, const char *path);

/* How a table is made. Since 0.2. */
typedef struct specbatch_table_options {
    size_t struct_size; /* sizeof(specbatch_table_options) */
    int32_t max_match;  /* tokens of a context at most: 1..8; 0: 4, or min_match if that is more */
    int32_t min_match;  /* and at least: 1..max_match; 0: 1 */
    int32_t min_count;  /* contexts that occur less often are left out; 0: 2 */
    int32_t reserved;   /* 0 */
} specbatch_table_options;

#define SPECBATCH_TABLE_OPTIONS_INIT                \
    {                                               \
        sizeof(specbatch_table_options), 0, 0, 0, 0 \
    }

/* Does for these options what specbatch_model_options_init does for those.
 * E_INVALID. Thread: any. Since 0.2. */
SPECBATCH_API int32_t specbatch_table_options_init(specbatch_table_options *options, size_t size);

/*
 * Writes a table of n-grams to the file `to`: for contexts of min_match to max_match tokens, what
 * most often follows them among n_ids ids. These are texts, one behind the other, tokenized by
 * `model`, which should be the target; its memory functions are used, for 8 bytes an id and for the
 * table. Equal ids and options make equal files. The file is written under a temporary name, as by
 * specbatch_convert.
 *
 * options: NULL or a struct. E_INVALID (also: n_ids is 0 or above 2^31 - 1), E_OPTIONS, E_TOKEN,
 * E_NOMEM, E_IO. Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_table_make(const char *to, const specbatch_model *model,
                                           const int32_t *ids, size_t n_ids,
                                           const specbatch_table_options *options);

/* One row of a round, as a propose function sees it. The library fills it in, the function writes
 * n_out and what `out` points to, and both are the library's again when it returns. */
typedef struct specbatch_draft_row {
    size_t struct_size;    /* sizeof(specbatch_draft_row) of the library */
    uint64_t request_id;   /* the number that specbatch_pool_submit gave, which is the pool's own */
    void *request_user;    /* `user` of the request */
    const int32_t *tokens; /* the sequence so far, the prompt included, n_tokens of them */
    size_t n_tokens;
    int32_t *out;  /* room for k proposals */
    int32_t k;     /* proposals wanted at most: 1..draft_len */
    int32_t n_out; /* how many were made: 0 until the function writes 0..k */
} specbatch_draft_row;

/*
 * The functions of a caller's draft; all but propose may be NULL. Each gets `user`. They are called
 * by the rules for callbacks above, on the thread that is inside the pool: so if the pools of one
 * draft run on several threads, they are called on several threads at once. Requests of different
 * pools may have the same number. A pool whose draft length adapts (without SPECBATCH_POOL_FIXED_K)
 * does not ask in rounds that speculate for no row.
 */
typedef struct specbatch_draft_ops {
    size_t struct_size; /* sizeof(specbatch_draft_ops) */
    /* Proposes for all rows of a round that may have proposals, in one call. A row's proposals are
     * ignored from the first id on that is not in the target's vocabulary. Returns 0. After any
     * other value, or an n_out outside 0..k, specbatch_pool_step returns E_CANCELLED; the round has
     * then changed nothing, and the next step asks again. */
    int32_t (*propose)(void *user, specbatch_draft_row *const *rows, size_t n_rows);
    /* A request that propose has seen has ended, in whatever way, or its pool is being freed. It is
     * called once for each such request, and the request is not in any row afterwards. */
    void (*retire)(void *user, uint64_t request_id, void *request_user);
    /* The last reference to the draft was dropped. Nothing is called afterwards. */
    void (*release)(void *user);
    void *user;
} specbatch_draft_ops;

#define SPECBATCH_DRAFT_OPS_INIT                            \
    {                                                       \
        sizeof(specbatch_draft_ops), NULL, NULL, NULL, NULL \
    }

/* A draft of the caller's own. ops is copied. *out has one reference, which the caller drops; its
 * memory is the C library's. On failure release is not called.
 * E_INVALID (also: propose is NULL), E_OPTIONS, E_NOMEM. Thread: any. Since 0.2. */
SPECBATCH_API int32_t specbatch_draft_from_ops(specbatch_draft **out,
                                               const specbatch_draft_ops *ops);

/*
 * A draft of up to 32 others, which are asked in turn: each row of a round has the proposals of the
 * first of them that has any for it. So n-grams may come before a model: where they find something
 * the model is not run. A request can choose among them (its draft_sources). A model or the
 * functions of a caller may be among them once at most, and a list may not. Functions that fail end
 * the step with E_CANCELLED, as they do alone, also if sources before them have proposals.
 *
 * *out is as for specbatch_draft_from_ngrams. It takes references of its own.
 *
 * E_INVALID (also: n_drafts is 0 or above 32), E_NOMEM. Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_draft_from_list(specbatch_draft **out,
                                                specbatch_draft *const *drafts, size_t n_drafts);

/* Adds a reference, to be dropped by one more specbatch_draft_release. Pools hold references of
 * their own. NULL is ignored. Thread: any. Since 0.2. */
SPECBATCH_API void specbatch_draft_retain(specbatch_draft *draft);

/* Drops a reference; dropping the last one frees the draft. NULL is ignored. Thread: any.
 * Since 0.2. */
SPECBATCH_API void specbatch_draft_release(specbatch_draft *draft);

/* --------------------------------------------------------------------- pool */

typedef struct specbatch_pool specbatch_pool;

enum {
    /* Of queued requests those with short prompts are admitted first: each token of a prompt counts
     * as if the request had come a round later, so that no request waits for ever. */
    SPECBATCH_POOL_SORT_BY_LENGTH = 1 << 0,
    /* For eqspec: a finished row's place is filled at once, not when all rows have finished. */
    SPECBATCH_POOL_EQSPEC_REPLACE = 1 << 1,
    /* Always ask for draft_len proposals. Without this flag a pool measures what proposals cost and
     * win, and asks each row for as many as pay, which may be none. */
    SPECBATCH_POOL_FIXED_K = 1 << 2,
    /* A request gets a slot for its prompt, which grows with its answer, and not at once for all of
     * max_new. So more requests fit in the caches. When there is no room to grow, the request that
     * would come last in the queue (docs/requests.md) gives its slot back, waits there, and is
     * computed anew later: its tokens stay the same. Policies that align rows ignore this. Since
     * 0.2. */
    SPECBATCH_POOL_GROW_SLOTS = 1 << 3
};

typedef struct specbatch_pool_options {
    size_t struct_size; /* sizeof(specbatch_pool_options) */
    int32_t policy;     /* SPECBATCH_POLICY_* */
    int32_t batch;      /* B, the rows that a round decodes at most: 1..4096; 0: 8 */
    /* W, the sequences that exspec keeps in the caches: batch..65536; 0: 6 * batch. Other policies
     * ignore it: eqspec keeps `batch` sequences. The rest keep one more for every 8 rows or part of
     * 8, in which the prompts of newcomers are computed while B rows decode; none if batch is 1. */
    int32_t window;
    /* K, the proposals for a row in a round at most: 1..64; 0: 5; -1: none. See
     * SPECBATCH_POOL_FIXED_K. */
    int32_t draft_len;
    /* The most tokens that a prompt and its max_new may have together: 1 to the target's context.
     * 0: that or 2048, whichever is smaller. */
    int32_t max_len;
    /* The prompt tokens that a pass computes beside its decode rows at most: 1..8192; 0: 128. If
     * the model's fingerprint names spans, this is rounded up to whole spans (docs/cuda.md). */
    int32_t prefill_chunk;
    int32_t n_threads;     /* 1..256; 0: one for each processor that the process may use */
    uint32_t flags;        /* SPECBATCH_POOL_* */
    uint64_t queue_max;    /* requests that may wait; 0: 65536 */
    uint64_t budget_bytes; /* bytes that caches and buffers may take at most; 0: no bound */
    /* Set both or neither. NULL: the C library's. Results are freed through them, so they must be
     * callable from any thread until the last result has been freed, even after the pool. */
    specbatch_alloc_fn alloc;
    specbatch_free_fn free;
    void *alloc_user;
    specbatch_log_fn log; /* NULL: nothing is logged */
    void *log_user;
    /* Columns of the caches, which all sequences in them share. A column holds one token's keys and
     * values. Slots come in sizes of L, L / 2, L / 4 columns and so on, L being max_len and some to
     * spare; a request takes the smallest that its prompt and max_new fit in, and waits until one
     * is free. This number is rounded down to a multiple of L, and to L for each sequence at most.
     * 0: L for each sequence that a pool of ragged keeps (see `window`), or as many columns as
     * budget_bytes has room for. Since 0.2. */
    uint64_t cache_columns;
    /* Bytes for keys and values of prompts and answers that are kept when their request has ended:
     * a later prompt that begins with the same tokens is not computed again so far. They are kept
     * in blocks of 32 tokens, and room for less than one is E_INVALID. 0: none. Since 0.2. */
    uint64_t prefix_bytes;
    /* A draft model stops proposing for a row in a round behind a token that it gives a probability
     * below this, by its logits as they are: 0 up to 1; 0: never. With CUDA it is slow: rounds with
     * it are not recorded there, and wait for the device at every step. Since 0.2. */
    float draft_min_prob;
    int32_t reserved; /* 0 */
} specbatch_pool_options;

#define SPECBATCH_POOL_OPTIONS_INIT                                                           \
    {                                                                                         \
        sizeof(specbatch_pool_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, \
            NULL, 0, 0, 0.0f, 0                                                               \
    }

/* Does for these options what specbatch_model_options_init does for those.
 * E_INVALID. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_pool_options_init(specbatch_pool_options *options, size_t size);

/* The bytes that specbatch_pool_create would take for caches and buffers, if it had these arguments
 * and no budget.
 * E_INVALID, E_OPTIONS, E_VOCAB. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_pool_bytes(uint64_t *bytes, const specbatch_model *target,
                                           const specbatch_draft *draft,
                                           const specbatch_pool_options *options);

/*
 * Creates a pool of requests on one target. draft is NULL, for plain decoding, or what proposes.
 * The pool takes references of its own to both. All memory for caches and buffers is taken here,
 * and each cache is one allocation. options is NULL or a struct, which is copied; its callbacks and
 * their user pointers must outlive the pool, and the memory functions the pool's results too. The
 * caller frees the pool.
 *
 * E_INVALID, E_OPTIONS, E_NOMEM, E_BUDGET, E_VOCAB, E_UNSUPPORTED (the device cannot run the
 * model's attention heads), E_DEVICE. Thread: any. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_pool_create(specbatch_pool **out, specbatch_model *target,
                                            specbatch_draft *draft,
                                            const specbatch_pool_options *options);

/*
 * Frees the pool, its unfinished requests and its uncollected results. NULL is ignored. When it is
 * called from a callback of the same pool, or while another thread is inside the pool, nothing is
 * freed, which the log and specbatch_last_error then say.
 *
 * The draft's retire function is called first, for each request that is unfinished. After one of
 * the pool's callbacks was left by longjmp or an exception, this frees all that the pool holds, but
 * for the text of an event that was being made. It must then be called on the thread on which that
 * happened, from the function that had called the interrupted one, from a function above it, or
 * from some 8 kilobytes of stack below it at most. A call from further down cannot be told from one
 * that the callback itself makes, so it is refused with E_BUSY, as every other call on the pool is;
 * where it can be told, calls return E_INTERNAL.
 *
 * Thread: one at a time. Since 0.1.
 */
SPECBATCH_API void specbatch_pool_free(specbatch_pool *pool);

/*
 * Keeps room in the prefix cache for a prefix, such as a system prompt, until it is unpinned: the
 * blocks of 32 tokens that the n_ids ids fill. Nothing is computed: the first request whose prompt
 * begins with them fills the blocks, and from then on no later one that is longer computes them
 * again. (The last token of a prompt is computed in any case, and with it the rest of its block.)
 * What does not fill a block is not kept. Pins may share their beginnings. *pin is a number that
 * names this pin; pins that are not undone end with the pool.
 *
 * On a device with spans (docs/cuda.md) tokens behind the ids' last whole span are kept for prompts
 * that have no more whole spans, a prompt's last token not counted. Longer prompts compute them.
 *
 * E_INVALID (also: a pool without prefix_bytes, ids for less than a block or for more than
 * max_len), E_TOKEN, E_BUDGET (other pins have left too few blocks; nothing is changed), E_NOMEM,
 * E_BUSY, fatal. Thread: one at a time. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_pool_pin(specbatch_pool *pool, const int32_t *ids, size_t n_ids,
                                         uint64_t *pin);

/* Undoes a pin: what it kept may now be evicted. E_INVALID, E_NOT_FOUND (no such pin), E_BUSY,
 * fatal. Thread: one at a time. Since 0.2. */
SPECBATCH_API int32_t specbatch_pool_unpin(specbatch_pool *pool, uint64_t pin);

/* ----------------------------------------------------------------- requests */

enum {
    SPECBATCH_REQUEST_IGNORE_EOS = 1 << 0, /* go on past the model's end-of-sequence ids */
    /* Keep the natural logarithm of every token's probability. */
    SPECBATCH_REQUEST_LOGPROBS = 1 << 1,
    /* The same of every token of the prompt but the first, and their alternatives if top_logprobs
     * asks for some. The prompt is then computed from the first token on, whatever is kept of it,
     * and max_new may be 0: such a request ends with SPECBATCH_FINISH_LENGTH when its prompt is
     * computed. Since 0.2. */
    SPECBATCH_REQUEST_PROMPT_LOGPROBS = 1 << 2,
    /* Log-probabilities of the answer, and its alternatives, are by the probabilities that tokens
     * are sampled from, behind all filters, and not the model's own. With temperature 0 they are by
     * the logits behind mask, bias and penalties. Prompts have the model's own. Since 0.2. */
    SPECBATCH_REQUEST_FILTERED_LOGPROBS = 1 << 3
};

enum {
    /* repetition_penalty counts tokens of the answer only. Without it those of the prompt count. */
    SPECBATCH_SAMPLING_SPARE_PROMPT = 1 << 0
};

/*
 * How tokens are chosen from the model's probabilities. The steps are taken in the order of the
 * fields from bias on: bias, penalties, temperature, top_k, top_p, typical_p, min_p, choice; a mask
 * comes before them. docs/numerics.md has the formulas. Of equal candidates the lowest id counts as
 * the first. A number that is closer to 0 than the smallest normal float counts as 0.
 *
 * The choice at a position is a function of the seed, the position and the row's probabilities, and
 * of nothing else. So a request with a seed has the same answer with any policy, batch, draft and
 * draft length, and a draft model that draws by the same seed is right more often. Since 0.2.
 */
typedef struct specbatch_sampling {
    size_t struct_size; /* sizeof(specbatch_sampling) */
    uint64_t seed;      /* any number; requests that differ in nothing else differ by their seeds */
    float temperature;  /* 0: the most probable token; else a finite number above 0 */
    int32_t top_k;      /* the so many most probable tokens; 0: all */
    float top_p;        /* the most probable tokens that together have this probability: above 0 up
                           to 1; 0: 1, which is all */
    float typical_p;    /* as top_p, with the tokens in the order of how close their information is
                           to the expected one */
    float min_p;        /* tokens at least this times as probable as the first: 0 to 1 */
    /* A logit is divided by it if it is positive, else multiplied, when its token has occurred
     * already; above 0; 0: 1, which changes nothing. */
    float repetition_penalty;
    float presence_penalty;  /* taken from a logit if the answer has its token already */
    float frequency_penalty; /* the same, as many times as the answer has it */
    int32_t penalty_window;  /* penalties look back so many tokens: up to 3072; 0: 3072 */
    uint32_t flags;          /* SPECBATCH_SAMPLING_* */
    /* Added to the logits of n_bias ids: at most 1024, each once. -INFINITY bans one. */
    const int32_t *bias_ids;
    const float *bias;
    size_t n_bias;
} specbatch_sampling;

#define SPECBATCH_SAMPLING_INIT                                                                 \
    {                                                                                           \
        sizeof(specbatch_sampling), 0, 0.0f, 0, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0, 0, NULL, \
            NULL, 0                                                                             \
    }

/*
 * Strings that end an answer, n_strings of them: 1..16, each of at most 255 bytes and none empty.
 * They are looked for in the text that specbatch_result_text would have without them, and the
 * answer ends before the one that begins first there. That one counts also if another that begins
 * later is complete earlier, so generation goes on while it may still come; if it does not, the
 * other counts. Of strings that begin at the same byte it does not matter which one counts.
 *
 * The text ends exactly before the string. The tokens end with the last one that lies wholly before
 * it, so the text may have more bytes than those tokens. Log-probabilities, counters and kept keys
 * end with the tokens. The finish is SPECBATCH_FINISH_STOP, also where an end-of-sequence id or
 * max_new would have ended the answer at the same token.
 *
 * With min_new, strings are looked for from the first character on that has no byte of the first
 * min_new tokens.
 *
 * Polls, events and states hold back tokens that may yet turn out to be part of such a string. A
 * request that is cancelled, or ends by an error, keeps the text that was certain then. The prompt
 * is not searched. Needs a tokenizer: E_NO_TOKENIZER. Since 0.2.
 */
typedef struct specbatch_stops {
    size_t struct_size;         /* sizeof(specbatch_stops) */
    const char *const *strings; /* UTF-8 */
    const size_t *lengths;      /* in bytes; NULL: each string ends at its NUL */
    size_t n_strings;
} specbatch_stops;

/* A position of a request, as a mask sees it. The library fills it in, the mask clears bits, and
 * both are the library's again when it returns. Since 0.2. */
typedef struct specbatch_mask_row {
    size_t struct_size;    /* sizeof(specbatch_mask_row) of the library */
    uint64_t request_id;   /* the number that specbatch_pool_submit gave */
    void *request_user;    /* `user` of the request */
    const int32_t *tokens; /* prompt, answer and proposals before the position, n_tokens of them */
    size_t n_tokens;
    size_t n_prompt;   /* the first so many are the prompt */
    size_t n_answer;   /* and then so many the answer; the rest is proposed, and may be wrong */
    uint32_t *allowed; /* bit id % 32 of word id / 32: 1 for each id that has a token */
    size_t n_words;
} specbatch_mask_row;

/*
 * What may be generated, such as a grammar: a function that clears the bits of what may not follow,
 * end-of-sequence ids among them. It must be a pure function of the request and the tokens. It is
 * asked for positions behind proposals too, which a draft makes without it, so it may find tokens
 * there that it has not allowed; and it may be asked again for the same position.
 *
 * It is called by the rules for callbacks above, for all positions at once of a round's requests
 * that have the same function and user. In a round that speculates the first positions of these
 * requests come in a call before the others: where only one token is allowed, and that one does not
 * end the answer, it is proposed without asking the draft, and the next position comes in another
 * call. If nothing is allowed, or before min_new only what would end the answer, the request ends
 * with E_NO_CHOICE. Returns 0; after any other value specbatch_pool_step returns E_CANCELLED, and
 * the step may be repeated. Since 0.2.
 */
typedef struct specbatch_mask {
    size_t struct_size; /* sizeof(specbatch_mask) */
    int32_t (*allow)(void *user, specbatch_mask_row *const *rows, size_t n_rows);
    void *user;
} specbatch_mask;

/*
 * Several answers to one prompt, which is computed once. They are requests of their own, with the
 * numbers id, id + 1 and so on, and answer i has the seed `seed` + i. Either all are submitted or
 * none is. Each is cancelled by its own number, which leaves the others alone.
 *
 * If best_of is more than n, so many answers are made and n of them handed out: those with the
 * largest mean log-probability of a token in the model's own probabilities, of equals the lower
 * number. Answers without a token, cancelled ones and those that failed come behind all others.
 * Nothing is handed out before all of them have ended: until then polls give no tokens, there are
 * no events, and specbatch_pool_state says of an answer that has ended that it is decoding. Then
 * the n answers are finished, the best first. The numbers of the rest are unknown from then on.
 * best_of above n cannot be had with SPECBATCH_REQUEST_FILTERED_LOGPROBS (E_INVALID). Since 0.2.
 */
typedef struct specbatch_answers {
    size_t struct_size; /* sizeof(specbatch_answers) */
    int32_t n;          /* 1..1024; it has no default */
    int32_t best_of;    /* how many are made: n..1024; 0: n */
} specbatch_answers;

#define SPECBATCH_STOPS_INIT                   \
    {                                          \
        sizeof(specbatch_stops), NULL, NULL, 0 \
    }
#define SPECBATCH_MASK_INIT                \
    {                                      \
        sizeof(specbatch_mask), NULL, NULL \
    }
#define SPECBATCH_ANSWERS_INIT          \
    {                                   \
        sizeof(specbatch_answers), 1, 0 \
    }

typedef struct specbatch_request {
    size_t struct_size; /* sizeof(specbatch_request) */
    /* The prompt, either as n_ids token ids or as text: give exactly one of ids and text. The text
     * ends at its NUL, or has text_length bytes. */
    const int32_t *ids;
    size_t n_ids;
    const char *text;
    uint32_t text_flags; /* SPECBATCH_TEXT_*, for text */
    uint32_t flags;      /* SPECBATCH_REQUEST_* */
    /* Tokens to generate at most: 1 or more; it has no default. Since 0.2 also 0, see
     * SPECBATCH_REQUEST_PROMPT_LOGPROBS. */
    int32_t max_new;
    /* Proposals in a round at most: 1..64, as far as the pool's draft_len allows (0.1 refused more
     * than that); 0: the pool's draft_len; -1: no speculation for this request. */
    int32_t draft_len;
    /* Further ids that end the sequence, n_stop_ids of them: at most 64. */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    /* The caller's own: the library hands it to the draft (specbatch_draft_row) and back with the
     * events and the result (specbatch_result_user), and does nothing else with it. Since 0.2. */
    void *user;
    /* Bytes of the text, which then may hold NULs and need not end in one. 0: up to its NUL, which
     * a text must therefore have if it can be empty. Since 0.2. */
    size_t text_length;
    const specbatch_sampling *sampling; /* NULL: the most probable token. Since 0.2. */
    const specbatch_stops *stops;       /* NULL: no strings end it. Since 0.2. */
    const specbatch_mask *mask;         /* NULL: all tokens are allowed. Since 0.2. */
    const specbatch_answers *answers;   /* NULL: one. Since 0.2. */
    /* Before it has so many tokens nothing ends it: ids that would are banned, and stop strings are
     * not looked for. 0..max_new. Since 0.2. */
    int32_t min_new;
    /* Alternatives to each token that are kept, with their log-probabilities: 0..32. The token's
     * own needs SPECBATCH_REQUEST_LOGPROBS nonetheless. Since 0.2. */
    int32_t top_logprobs;
    /* Requests of higher priority leave the queue first. A point is worth 16 rounds of waiting, so
     * that none waits for ever. What has left the queue is served alike: see docs/requests.md.
     * -1000..1000. Since 0.2. */
    int32_t priority;
    /* Of a draft of several sources, those that may propose: bit i for the source i; 0: all. Any
     * other draft is source 0. Bits of sources that are not there are E_OPTIONS; a pool that never
     * speculates takes any. Since 0.2. */
    uint32_t draft_sources;
    /* Nanoseconds from its submission on after which it ends, with the tokens that it has then
     * (SPECBATCH_FINISH_DEADLINE), when the next step begins: also if it is still queued. 0: none.
     * Since 0.2. */
    uint64_t deadline_ns;
} specbatch_request;

#define SPECBATCH_REQUEST_INIT                                                                    \
    {                                                                                             \
        sizeof(specbatch_request), NULL, 0, NULL, 0, 0, 0, 0, NULL, 0, NULL, 0, NULL, NULL, NULL, \
            NULL, 0, 0, 0, 0, 0                                                                   \
    }

/* Does for a request what specbatch_model_options_init does for model options.
 * E_INVALID. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_request_init(specbatch_request *request, size_t size);

/*
 * Queues a request, at any time, also while others run. Everything that it points to is copied. *id
 * (id may be NULL) is the request's number: 1, 2, 3 and so on, in the order of submission. Several
 * answers have a number each, of which this is the first, and all of them count in queue_max.
 *
 * E_INVALID (also: an empty prompt), E_OPTIONS, E_TOO_LONG, E_TOKEN, E_QUEUE_FULL,
 * E_NO_TOKENIZER, E_UNSUPPORTED (as specbatch_tokenize), E_NOMEM, E_BUSY, fatal. Thread: one at a
 * time. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_pool_submit(specbatch_pool *pool, const specbatch_request *request,
                                            uint64_t *id);

/* Ends a request with the tokens it has. Its result is collected like any other and says
 * SPECBATCH_FINISH_CANCELLED; its tokens are the first of those that it would have got.
 * E_INVALID, E_NOT_FOUND (unknown, or finished already), E_BUSY, fatal.
 * Thread: one at a time. Since 0.1. */
SPECBATCH_API int32_t specbatch_pool_cancel(specbatch_pool *pool, uint64_t id);

/*
 * Runs one round: chooses rows, drafts, verifies, and appends the new tokens. *n_active (n_active
 * may be NULL) receives the number of requests that are queued or unfinished afterwards. A step
 * with nothing to do succeeds. A step takes no memory, so it cannot run out of it; if a device's
 * driver does, that is E_DEVICE.
 *
 * E_INVALID, E_BUSY, E_CANCELLED (by the draft or a mask) and E_INTERRUPTED (after either the step
 * may be repeated), fatal. Thread: one at a time. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_pool_step(specbatch_pool *pool, size_t *n_active);

/* Steps until no request is queued or unfinished, or a step fails. Then results can be collected,
 * and events read. The status codes are those of specbatch_pool_step, and after E_CANCELLED and
 * E_INTERRUPTED it may be called again. Thread: one at a time. Since 0.2. */
SPECBATCH_API int32_t specbatch_pool_run(specbatch_pool *pool);

/*
 * Ends the step that is under way with E_INTERRUPTED; or the next one, if none is under way or if
 * it has begun to compute. So a run ends before its next round. No request is changed, and the pool
 * goes on with the next step or run. Interruptions that come before the step has ended count as
 * one. This function does not wait for the step, and does nothing to a dead pool.
 *
 * It may be called at any time between specbatch_pool_create and specbatch_pool_free: on any
 * thread, in the pool's own callbacks, and in signal handlers (it stores one atomic number; only
 * with a NULL pool it does more).
 *
 * E_INVALID (pool is NULL). Thread: any. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_pool_interrupt(specbatch_pool *pool);

/*
 * For streaming: writes the tokens that a request has got since the last poll, `capacity` of them
 * at most. The rest stays for the next poll. *n (required) receives how many were written. With ids
 * NULL and capacity 0, *n is how many wait, and they go on waiting. A request can be polled until
 * it is collected, and need not be polled to the end before that: the result has all of its tokens,
 * and a stream goes on in them at the index "number polled so far".
 *
 * E_INVALID, E_NOT_FOUND (unknown, or collected already), E_BUSY, fatal.
 * Thread: one at a time. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_pool_poll(specbatch_pool *pool, uint64_t id, int32_t *ids,
                                          size_t capacity, size_t *n);

/* How a request ended. */
enum {
    SPECBATCH_FINISH_EOS = 1, /* at an end-of-sequence id, which is its last token */
    /* At one of its own stop_ids, which is its last token, or before one of its stop strings. */
    SPECBATCH_FINISH_STOP = 2,
    SPECBATCH_FINISH_LENGTH = 3,    /* it has max_new tokens */
    SPECBATCH_FINISH_CANCELLED = 4, /* by specbatch_pool_cancel */
    SPECBATCH_FINISH_ERROR = 5,     /* by the error in specbatch_result_status */
    SPECBATCH_FINISH_DEADLINE = 6   /* its time was over. Since 0.2 */
};

/* The name of SPECBATCH_FINISH_*: "eos", "stop", "length", "cancelled", "error" or "deadline";
 * "unknown" for any other value. A static string. Thread: any. Since 0.2. */
SPECBATCH_API const char *specbatch_finish_name(int32_t finish);

/* Where a request is in its life. */
enum {
    SPECBATCH_STATE_QUEUED = 1,   /* it waits for a slot in the caches, or for one again */
    SPECBATCH_STATE_FILLING = 2,  /* its prompt is being computed */
    SPECBATCH_STATE_DECODING = 3, /* its prompt is computed, and rounds decode it */
    SPECBATCH_STATE_FINISHED = 4  /* it can be collected */
};

/* Filled by specbatch_pool_state. Times are in nanoseconds of a monotonic clock from the submission
 * on. What has not happened yet counts until now, but for the first token. Since 0.2. */
typedef struct specbatch_request_state {
    size_t struct_size;           /* sizeof(specbatch_request_state), set by the caller */
    int32_t state;                /* SPECBATCH_STATE_* */
    int32_t finish;               /* SPECBATCH_FINISH_*; 0: it has not finished */
    uint64_t n_prompt;            /* tokens of its prompt */
    uint64_t n_filled;            /* of those: computed so far, or found (see prefix_bytes) */
    uint64_t n_generated;         /* tokens that it has got, as polls show them */
    uint64_t time_queued_ns;      /* until it got a slot, or finished without one */
    uint64_t time_first_token_ns; /* until the end of the step that gave the first; 0: none yet */
    uint64_t time_total_ns;       /* until the end of the step in which it finished */
} specbatch_request_state;

#define SPECBATCH_REQUEST_STATE_INIT                            \
    {                                                           \
        sizeof(specbatch_request_state), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* Tells where a request is: E_INVALID, E_NOT_FOUND (unknown, or collected already), E_BUSY, fatal.
 * Thread: one at a time. Since 0.2. */
SPECBATCH_API int32_t specbatch_pool_state(specbatch_pool *pool, uint64_t id,
                                           specbatch_request_state *state);

/* What a request has got since its last event. Filled by specbatch_pool_next_event. Since 0.2. */
typedef struct specbatch_event {
    size_t struct_size; /* sizeof(specbatch_event), set by the caller */
    uint64_t id;        /* the number that specbatch_pool_submit gave */
    void *user;         /* of the request */
    /* The new tokens, n_ids of them, which in a last event may be 0. None come twice, and none are
     * left out. */
    const int32_t *ids;
    size_t n_ids;
    /* The text that they complete, NUL-terminated and text_length bytes long; held back is what
     * specbatch_text_stream_push would hold back, until the last event, which has all that is left.
     * So it may be "", and each text is UTF-8 by itself: no character (code point) is ever torn. An
     * emoji that consists of several characters may come in several events. All texts of a request
     * together are specbatch_result_text. NULL: the model has no tokenizer. */
    const char *text;
    size_t text_length;
    int32_t finish; /* 0 while the request runs; in its last event SPECBATCH_FINISH_* */
    /* SPECBATCH_OK, or the error that ended the request. This code is all that is kept of it. */
    int32_t status;
} specbatch_event;

#define SPECBATCH_EVENT_INIT                                     \
    {                                                            \
        sizeof(specbatch_event), 0, NULL, NULL, 0, NULL, 0, 0, 0 \
    }

/*
 * For streaming many requests at once: takes the next event out of the pool. The request whose news
 * have waited longest comes first. Call it after a step until it returns E_EMPTY:
 *
 *     specbatch_event event = SPECBATCH_EVENT_INIT;
 *     while (active && specbatch_pool_step(pool, &active) == SPECBATCH_OK)
 *         while (specbatch_pool_next_event(pool, &event) == SPECBATCH_OK)
 *             send(event.id, event.text, event.text_length, event.finish);
 *
 * Each call fills in the whole struct but its struct_size, so one struct serves for all of them.
 * The pointers in it are borrowed until the next call on the pool, which includes this one. Events
 * and polls do not take tokens from each other. Events that are not read cost nothing and are not
 * lost: a request's news gather in one event. Every request has a last event, which says how it
 * finished, even if no token and no text is left for it. A request can be collected after its last
 * event or before it. Collecting it drops the events that it still had, as its result has
 * everything: so a program that streams reads events first, and then collects. An event costs the
 * text that it brings, however many requests there are.
 *
 * E_EMPTY (no request has news), E_INVALID, E_NOMEM (for the text; nothing is lost, and the call
 * may be repeated), E_BUSY, fatal. Thread: one at a time. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_pool_next_event(specbatch_pool *pool, specbatch_event *event);

/* ----------------------------------------------------------------- sessions */

/*
 * Saves the keys and values of a token sequence, such as a conversation so far, for a later pool or
 * process: n_ids ids, all of which are written, and the columns that the pool keeps of them (option
 * prefix_bytes). These are whole blocks of 32 tokens, which is what requests and their answers
 * leave behind when they end. *n_kept (n_kept may be NULL) receives the number of tokens that they
 * cover.
 *
 * The file is written under a temporary name in the same directory, and takes the place of a file
 * of this name when it is whole and on the disk. After a failure nothing of it is left.
 *
 * E_INVALID (also: n_ids is 0, the pool keeps nothing, or the path has more than 1023 bytes),
 * E_TOKEN, E_TOO_LONG (more ids than the target's context), E_IO (the message has the system's
 * reason), E_NOMEM, E_BUSY, fatal. Thread: one at a time. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_pool_save_session(specbatch_pool *pool, const int32_t *ids,
                                                  size_t n_ids, const char *path, size_t *n_kept);

/*
 * Loads a session: writes its ids, whose number goes to *n (required, also with E_BUFFER), and adds
 * its columns to those that the pool keeps. A request whose prompt begins with the ids then is not
 * computed again so far, and has the tokens that it would have had anyway. If there is not room for
 * all columns, the first are kept. ids may be NULL with capacity 0, to ask for *n only.
 *
 * The session must be of the target's digest and fingerprint; policy, batch, draft, threads and
 * SIMD level do not matter. Columns of a draft model are loaded too if it is the pool's.
 *
 * A file that is damaged is told by its checksums, and nothing has changed then; nor with any other
 * failure, except that if the file is overwritten meanwhile its first blocks may have been loaded.
 * The file is not to be trusted further than whoever wrote it: a forged one can lead to wrong
 * tokens, and to nothing worse.
 *
 * E_INVALID (also: the pool keeps nothing, or the session is of another model or numerics class),
 * E_IO, E_FORMAT, E_UNSUPPORTED (written by a library with another format), E_BUFFER, E_NOMEM,
 * E_BUSY, fatal. Thread: one at a time. Since 0.2.
 */
SPECBATCH_API int32_t specbatch_pool_load_session(specbatch_pool *pool, const char *path,
                                                  int32_t *ids, size_t capacity, size_t *n);

/* ------------------------------------------------------------------ results */

typedef struct specbatch_result specbatch_result;

/* Takes the next finished request out of the pool, in the order of finishing. *result is the
 * caller's, who frees it, and may outlive the pool. It holds a reference to the target, so a model
 * stays in memory while a result of it does. A dead pool hands out what had finished, and then
 * returns its fatal code. E_EMPTY (none has finished), E_INVALID, E_BUSY, E_NOMEM, fatal.
 * Thread: one at a time. Since 0.1. */
SPECBATCH_API int32_t specbatch_pool_collect(specbatch_pool *pool, specbatch_result **result);

/* What a result holds. Arrays and strings are borrowed until the result is freed; n and length may
 * be NULL. A NULL result gives NULL or 0. Thread: any. Since 0.1. */

/* The number that specbatch_pool_submit gave. */
SPECBATCH_API uint64_t specbatch_result_id(const specbatch_result *result);
/* `user` of the request. Since 0.2. */
SPECBATCH_API void *specbatch_result_user(const specbatch_result *result);
/* SPECBATCH_OK, or the error that ended the request. */
SPECBATCH_API int32_t specbatch_result_status(const specbatch_result *result);
/* SPECBATCH_FINISH_* */
SPECBATCH_API int32_t specbatch_result_finish(const specbatch_result *result);
/* The generated tokens, *n of them, without the prompt. */
SPECBATCH_API const int32_t *specbatch_result_tokens(const specbatch_result *result, size_t *n);
/* The natural logarithms of those tokens' probabilities, or NULL and *n = 0 when the request did
 * not ask for them. */
SPECBATCH_API const float *specbatch_result_logprobs(const specbatch_result *result, size_t *n);
/* The alternatives that top_logprobs asked for: for each generated token n_top ids, the most
 * probable first, of equally probable ones the lowest, and their log-probabilities, which are of
 * the same kind as the token's own. The token may be among them. Where fewer ids have a probability
 * above 0, the rest is -1 and -INFINITY. NULL and n_top = 0 when the request asked for none. Since
 * 0.2. */
SPECBATCH_API const int32_t *specbatch_result_top_ids(const specbatch_result *result,
                                                      size_t *n_top);
SPECBATCH_API const float *specbatch_result_top_logprobs(const specbatch_result *result,
                                                         size_t *n_top);
/* Log-probabilities of the prompt's tokens from the second on, *n of them, and their alternatives
 * as above; NULL and 0 when the request did not ask for them, when the prompt has one token only,
 * or when the request ended before its prompt was computed. Since 0.2. */
SPECBATCH_API const float *specbatch_result_prompt_logprobs(const specbatch_result *result,
                                                            size_t *n);
SPECBATCH_API const int32_t *specbatch_result_prompt_top_ids(const specbatch_result *result,
                                                             size_t *n_top);
SPECBATCH_API const float *specbatch_result_prompt_top_logprobs(const specbatch_result *result,
                                                                size_t *n_top);
/* Which of a request's answers it is: 0 up to `best_of` - 1, which by default is `n` - 1. Since
 * 0.2. */
SPECBATCH_API int32_t specbatch_result_answer(const specbatch_result *result);
/* The generated text without special tokens, NUL-terminated; NULL when the model has no
 * tokenizer. */
SPECBATCH_API const char *specbatch_result_text(const specbatch_result *result, size_t *length);
/* The tokens of the prompt, *n of them. Since 0.2. */
SPECBATCH_API const int32_t *specbatch_result_prompt(const specbatch_result *result, size_t *n);
/* The number of tokens in the prompt. */
SPECBATCH_API size_t specbatch_result_prompt_length(const specbatch_result *result);
/* The number of target passes that decoded the request. */
SPECBATCH_API uint64_t specbatch_result_rounds(const specbatch_result *result);
/* The number of proposals that were verified for it. */
SPECBATCH_API uint64_t specbatch_result_drafted(const specbatch_result *result);
/* The number of proposals that became tokens. */
SPECBATCH_API uint64_t specbatch_result_accepted(const specbatch_result *result);
/* Nanoseconds from the submission until the request got a slot (or finished without one), until the
 * end of the step that gave its first token (0: it has none), and until its end. Since 0.2. */
SPECBATCH_API uint64_t specbatch_result_time_queued_ns(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_time_first_token_ns(const specbatch_result *result);
SPECBATCH_API uint64_t specbatch_result_time_total_ns(const specbatch_result *result);
/* That of the target: see specbatch_model_fingerprint. */
SPECBATCH_API const char *specbatch_result_fingerprint(const specbatch_result *result);

/* Frees a result, once, on any thread, also after its pool. No other thread may still be reading
 * it. NULL is ignored. Since 0.1. */
SPECBATCH_API void specbatch_result_free(specbatch_result *result);

/* -------------------------------------------------------------------- stats */

/* Reads a counter of the pool by its name; docs/stats.md explains each. Counters of tokens count
 * committed tokens only. A name ends in its unit where that is not a number of things (_ns,
 * _bytes). Works in the pool's own callbacks, and on a dead pool. Counters are for the thread that
 * runs the pool: if another thread reads one, a call that comes at the same time may be refused.
 * E_INVALID, E_NOT_FOUND, E_BUSY (another thread is inside the pool).
 * Thread: one at a time. Since 0.1. */
SPECBATCH_API int32_t specbatch_pool_stat(const specbatch_pool *pool, const char *name,
                                          uint64_t *value);
/* How many counters there are. Thread: any. Since 0.1. */
SPECBATCH_API int32_t specbatch_stat_count(void);
/* The name of a counter, from 0 to specbatch_stat_count() - 1: a static string. NULL when the index
 * is out of range. Thread: any. Since 0.1. */
SPECBATCH_API const char *specbatch_stat_name(int32_t index);

/* -------------------------------------------------------------------- audit */

typedef struct specbatch_audit_report {
    size_t struct_size; /* sizeof(specbatch_audit_report), set by the caller */
    /* 1: the tokens are equal, and so are the log-probabilities and alternatives that the result
     * has, bit for bit. */
    int32_t equal;
    int32_t token_expected; /* plain decoding's id at first_divergence; -1: it had ended */
    int32_t token_got;      /* the result's id there; -1: it had ended */
    float margin;           /* plain decoding's largest logit minus its second largest, there */
    /* The index of the first token that differs, or whose log-probability or alternatives do; 0 if
     * those of the prompt do; -1: none does. */
    int64_t first_divergence;
    uint64_t n_tokens; /* tokens that were compared */
} specbatch_audit_report;

#define SPECBATCH_AUDIT_REPORT_INIT                         \
    {                                                       \
        sizeof(specbatch_audit_report), 0, 0, 0, 0.0f, 0, 0 \
    }

/*
 * Decodes a finished request once more, on the target alone, at batch 1 and without speculation,
 * and compares. `target` must have the digest of the model that made the result, and `request` must
 * be the request as it was submitted, but for its draft_len, draft_sources, priority, deadline_ns,
 * answers and user. Otherwise this is E_INVALID, and the message says what differs. A cancelled or
 * failed result is compared as far as it goes. Of options (NULL: the defaults) the threads, memory
 * functions, budget and max_len are used, and there is room for the result in any case; policy,
 * batch and draft are not. A difference is not an error: the report tells it.
 *
 * E_INVALID, E_OPTIONS, E_NOMEM, E_BUDGET, E_TOO_LONG, E_TOKEN, E_NO_TOKENIZER, E_UNSUPPORTED,
 * E_CANCELLED (by the request's mask), E_DEVICE. Thread: any. Since 0.1.
 */
SPECBATCH_API int32_t specbatch_audit(specbatch_model *target,
                                      const specbatch_pool_options *options,
                                      const specbatch_request *request,
                                      const specbatch_result *result,
                                      specbatch_audit_report *report);

#ifdef __cplusplus
}
#endif

#endif

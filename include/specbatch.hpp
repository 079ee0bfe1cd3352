/*
 * libspecbatch for C++17: handles that free themselves, failures as exceptions, and callbacks that
 * may throw. Everything here is inline and stands on specbatch.h, whose comments say what each
 * function and option does.
 *
 *     specbatch::Model target("qwen3-8b"), small("qwen3-0.6b");
 *     specbatch::Pool pool(target, specbatch::Draft::from_model(small));
 *     specbatch::Request request("Once upon a time", 100);
 *
 *     pool.submit(request);
 *     for (const specbatch::Event &event : pool.events())
 *         std::cout << event.text();
 *     for (specbatch::Result &result : pool.results())
 *         std::cout << result.text();
 *
 * Names. specbatch_pool_submit is Pool::submit, and so on. A struct such as PoolOptions has all
 * fields of specbatch_pool_options, those of later versions too. Where a field is a pointer there,
 * a member of the same name that owns its value stands before it here.
 *
 * Objects. Model, Draft, Pool, Result and TextStream can be moved and not copied. They may be
 * destroyed in any order, as each keeps what it needs. One that was moved from is empty: it may be
 * assigned to and destroyed, its functions throw error with SPECBATCH_E_INVALID, and getters give 0
 * or nothing. get() is the handle of specbatch.h, borrowed; a constructor takes such a handle over.
 * Views and string_views are borrowed as specbatch.h says of their pointers.
 *
 * Failures. A negative status becomes an error, which has specbatch_last_error as what().
 *
 * Callbacks. An exception never passes through the C functions. It is caught where it would enter
 * them and comes out of the call of this header under way on the same thread: the constructor of a
 * Model whose progress function has thrown, for example, or the step whose draft has. What the
 * callback did counts as its failure (NULL, E_CANCELLED), and what that leaves intact stays so: the
 * step may be repeated. If the call has succeeded nonetheless, its work is done all the same. Of
 * several exceptions the first comes out. Exceptions are dropped where there is no such call:
 * below a destructor, or on another thread.
 */
#ifndef SPECBATCH_HPP
#define SPECBATCH_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "specbatch.h"

namespace specbatch
{

/* A failure of the library. */
class SPECBATCH_API error : public std::runtime_error
{
  public:
    error(std::int32_t status, const std::string &message)
        : std::runtime_error(message), status_(status)
    {
    }
    /* SPECBATCH_E_* */
    std::int32_t status() const noexcept { return status_; }
    const char *name() const noexcept { return specbatch_status_name(status_); }
    /* Whether it has ended its pool. */
    bool is_fatal() const noexcept { return specbatch_status_is_fatal(status_) != 0; }

  private:
    std::int32_t status_;
};

/* Throws if a status, or a number that is a status when it is negative, says that a call failed. */
inline std::int32_t check(std::int32_t status)
{
    if (status < 0)
        throw error(status, specbatch_last_error());
    return status;
}

/* Elements that something else owns. This is not std::span where there is one: a program of some
 * files in C++17 and some in C++20 would have two definitions of the functions below. Each converts
 * to the other by itself. */
template <typename T>
class View
{
  public:
    using value_type = T;

    constexpr View() noexcept = default;
    constexpr View(const T *data, std::size_t size) noexcept : data_(data), size_(data ? size : 0)
    {
    }
    /* Of a vector, an array, a span and so on. */
    template <
        typename Container, typename Data = decltype(std::data(std::declval<const Container &>())),
        typename =
            std::enable_if_t<std::is_same_v<std::remove_cv_t<std::remove_pointer_t<Data>>, T>>>
    constexpr View(const Container &from) noexcept : View(std::data(from), std::size(from))
    {
    }
    constexpr const T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr const T *begin() const noexcept { return data_; }
    constexpr const T *end() const noexcept { return data_ + size_; }
    constexpr const T &operator[](std::size_t i) const { return data_[i]; }
    /* n elements from the one at `first` on, or as many as there are. */
    constexpr View part(std::size_t first, std::size_t n) const
    {
        first = first < size_ ? first : size_;
        return View(data_ + first, n < size_ - first ? n : size_ - first);
    }

  private:
    const T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* ---------------------------------------------------------- options and their functions */

/* These are called on any thread that is inside the library. */
using AllocFunction = std::function<void *(std::size_t size, std::size_t align)>;
using FreeFunction = std::function<void(void *block, std::size_t size)>;
using LogFunction = std::function<void(std::int32_t level, std::string_view line)>;
/* Returns whether to go on. */
using ProgressFunction = std::function<bool(std::uint64_t done, std::uint64_t total)>;

struct ModelOptions : specbatch_model_options {
    AllocFunction alloc;
    FreeFunction free;
    LogFunction log;
    ProgressFunction progress;
    ModelOptions() : specbatch_model_options SPECBATCH_MODEL_OPTIONS_INIT {}
};

struct PoolOptions : specbatch_pool_options {
    AllocFunction alloc;
    FreeFunction free;
    LogFunction log;
    PoolOptions() : specbatch_pool_options SPECBATCH_POOL_OPTIONS_INIT {}
};

struct NgramOptions : specbatch_ngram_options {
    NgramOptions() : specbatch_ngram_options SPECBATCH_NGRAM_OPTIONS_INIT {}
};

struct TableOptions : specbatch_table_options {
    TableOptions() : specbatch_table_options SPECBATCH_TABLE_OPTIONS_INIT {}
};

struct ChatOptions : specbatch_chat_options {
    ChatOptions() : specbatch_chat_options SPECBATCH_CHAT_OPTIONS_INIT {}
};

struct Message {
    std::string role, content;
};

namespace detail
{

/* A call of the library that is under way on this thread. It takes the exceptions of callbacks. A
 * handle could not take them: the functions of one model serve calls on many threads at once. */
class SPECBATCH_API Call
{
  public:
    Call() noexcept : outer(innermost) { innermost = this; }
    ~Call() { innermost = outer; }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    /* To be called when the library has returned. */
    void rethrow()
    {
        if (held)
            std::rethrow_exception(std::exchange(held, nullptr));
    }
    /* Runs a callback. Returns whether it has not thrown. */
    template <typename Callback>
    static bool back(Callback callback) noexcept
    {
        try {
            callback();
            return true;
        } catch (...) {
            if (innermost && !innermost->held)
                innermost->held = std::current_exception();
            return false;
        }
    }

  private:
    Call *outer;
    std::exception_ptr held;
    static inline thread_local Call *innermost = nullptr;
};

template <typename Function, typename... Arguments>
std::int32_t call(Function function, Arguments... arguments)
{
    Call under_way;
    const std::int32_t status = function(arguments...);
    under_way.rethrow();
    return check(status);
}

/* The functions that options had, and those of the objects that a handle refers to. A handle shares
 * them for as long as it lives. */
struct Kept {
    AllocFunction alloc;
    FreeFunction free;
    LogFunction log;
    ProgressFunction progress;
    std::vector<std::shared_ptr<Kept>> others;

    explicit Kept(std::vector<std::shared_ptr<Kept>> of) : others(std::move(of)) {}
    explicit Kept(const ModelOptions &options)
        : alloc(options.alloc), free(options.free), log(options.log), progress(options.progress)
    {
    }
    explicit Kept(const PoolOptions &options, std::vector<std::shared_ptr<Kept>> of = {})
        : alloc(options.alloc), free(options.free), log(options.log), others(std::move(of))
    {
    }
    static void *on_alloc(void *user, std::size_t size, std::size_t align) noexcept
    {
        void *block = nullptr;
        Call::back([&] { block = static_cast<Kept *>(user)->alloc(size, align); });
        return block;
    }
    static void on_free(void *user, void *block, std::size_t size) noexcept
    {
        Call::back([&] { static_cast<Kept *>(user)->free(block, size); });
    }
    static void on_log(void *user, std::int32_t level, const char *line) noexcept
    {
        Call::back([&] { static_cast<Kept *>(user)->log(level, line); });
    }
    static std::int32_t on_progress(void *user, std::uint64_t done, std::uint64_t total) noexcept
    {
        bool go_on = false;
        Call::back([&] { go_on = static_cast<Kept *>(user)->progress(done, total); });
        return go_on ? 0 : 1;
    }
};

/* The struct of specbatch.h, with those functions in it that C++ has given. */
template <typename Options>
Options hooked(Options options, Kept &kept)
{
    if (kept.alloc)
        options.alloc = Kept::on_alloc;
    if (kept.free)
        options.free = Kept::on_free;
    if (kept.alloc || kept.free)
        options.alloc_user = &kept;
    if (kept.log) {
        options.log = Kept::on_log;
        options.log_user = &kept;
    }
    return options;
}

inline specbatch_model_options for_model(const ModelOptions &from, Kept &kept)
{
    specbatch_model_options options = hooked<specbatch_model_options>(from, kept);
    if (kept.progress) {
        options.progress = Kept::on_progress;
        options.progress_user = &kept;
    }
    return options;
}

/* Frees a handle, and lets go of what it needed then: also when another is assigned to it. */
template <typename T, void (*function)(T *)>
struct Free {
    std::shared_ptr<Kept> kept;
    void operator()(T *handle) const noexcept { function(handle); }
};
template <typename T, void (*function)(T *)>
using Handle = std::unique_ptr<T, Free<T, function>>;

/* Calls a function that creates something, and takes what it has created. */
template <typename Owner, typename Create, typename... Arguments>
Owner make(std::shared_ptr<Kept> kept, Create create, Arguments... arguments)
{
    typename Owner::pointer made = nullptr;
    Call under_way;
    const std::int32_t status = create(&made, arguments...);
    Owner owner(made, {std::move(kept)});
    under_way.rethrow();
    check(status);
    return owner;
}

/* Calls write(all, &n), which fills a vector or string, until it has room enough. */
template <typename Container, typename Write>
Container filled(std::size_t guess, Write write)
{
    Container all;
    std::size_t n = guess;
    std::int32_t status = SPECBATCH_E_BUFFER;
    while (status == SPECBATCH_E_BUFFER) {
        all.resize(n);
        Call under_way;
        status = write(all, &n);
        under_way.rethrow();
    }
    check(status);
    all.resize(n);
    return all;
}

inline std::vector<specbatch_message> for_chat(const std::vector<Message> &messages)
{
    std::vector<specbatch_message> all;
    for (const Message &message : messages)
        all.push_back({message.role.c_str(), message.content.data(), message.content.size()});
    return all;
}

inline std::string chat_text(const specbatch_model *model, const std::vector<Message> &messages,
                             const ChatOptions &options)
{
    const auto all = for_chat(messages);
    return filled<std::string>(256, [&](std::string &text, std::size_t *n) {
        return specbatch_chat_text(model, &options, all.data(), sizeof(specbatch_message),
                                   all.size(), text.data(), text.size() + 1, n);
    });
}

} // namespace detail

/* --------------------------------------------------------------------- model */

class Model
{
  public:
    explicit Model(const std::string &path, const ModelOptions &options = {})
    {
        auto kept = std::make_shared<detail::Kept>(options);
        const specbatch_model_options c = detail::for_model(options, *kept);
        handle_ = detail::make<Owner>(kept, specbatch_model_open, path.c_str(), &c);
        kept->progress = nullptr;
    }
    explicit Model(specbatch_model *owned) noexcept : handle_(owned) {}
    /* One more owner of the same model. */
    Model share() const
    {
        Model other(nullptr);
        specbatch_model_retain(get());
        other.handle_ = Owner(get(), handle_.get_deleter());
        return other;
    }
    specbatch_model *get() const noexcept { return handle_.get(); }

    std::string_view arch() const { return specbatch_model_arch(get()); }
    std::string_view dtype() const { return specbatch_model_dtype(get()); }
    std::string_view fingerprint() const { return specbatch_model_fingerprint(get()); }
    std::string_view digest() const { return specbatch_model_digest(get()); }
    std::int32_t vocab_size() const { return specbatch_model_vocab_size(get()); }
    std::int32_t layers() const { return specbatch_model_layers(get()); }
    std::int32_t context() const { return specbatch_model_context(get()); }
    std::uint64_t bytes() const { return specbatch_model_bytes(get()); }
    bool has_tokenizer() const { return specbatch_model_has_tokenizer(get()) != 0; }
    View<std::int32_t> eos() const
    {
        std::size_t n = 0;
        const std::int32_t *ids = specbatch_model_eos(get(), &n);
        return {ids, n};
    }

    std::vector<std::int32_t> tokenize(std::string_view text, std::uint32_t flags = 0) const
    {
        const char *bytes = text.data() ? text.data() : "";
        return detail::filled<std::vector<std::int32_t>>(text.size() / 2 + 8, [&](auto &ids,
                                                                                  std::size_t *n) {
            return specbatch_tokenize(get(), bytes, text.size(), flags, ids.data(), ids.size(), n);
        });
    }
    std::string detokenize(View<std::int32_t> ids, std::uint32_t flags = 0) const
    {
        return detail::filled<std::string>(8 * ids.size(), [&](auto &text, std::size_t *n) {
            return specbatch_detokenize(get(), ids.data(), ids.size(), flags, text.data(),
                                        text.size() + 1, n);
        });
    }
    /* As the vocabulary's file spells it. */
    std::string token_text(std::int32_t id) const
    {
        return detail::filled<std::string>(32, [&](auto &text, std::size_t *n) {
            return specbatch_token_text(get(), id, text.data(), text.size() + 1, n);
        });
    }

    std::int32_t chat_format() const { return check(specbatch_model_chat_format(get())); }
    std::vector<std::int32_t> chat_tokens(const std::vector<Message> &messages,
                                          const ChatOptions &options = {}) const
    {
        const auto all = detail::for_chat(messages);
        return detail::filled<std::vector<std::int32_t>>(64, [&](auto &ids, std::size_t *n) {
            return specbatch_chat_tokens(get(), &options, all.data(), sizeof(specbatch_message),
                                         all.size(), ids.data(), ids.size(), n);
        });
    }
    std::string chat_text(const std::vector<Message> &messages,
                          const ChatOptions &options = {}) const
    {
        return detail::chat_text(get(), messages, options);
    }

  private:
    friend class Draft;
    friend class Pool;
    friend class TextStream;
    using Owner = detail::Handle<specbatch_model, specbatch_model_close>;
    Owner handle_;
};

inline void convert(const std::string &to, const std::string &from,
                    const ModelOptions &options = {})
{
    detail::Kept kept(options);
    const specbatch_model_options c = detail::for_model(options, kept);
    detail::call(specbatch_convert, to.c_str(), from.c_str(), &c);
}

/* Without a model: options have to name a format. */
inline std::string chat_text(const std::vector<Message> &messages, const ChatOptions &options)
{
    return detail::chat_text(nullptr, messages, options);
}

class TextStream
{
  public:
    explicit TextStream(const Model &model, std::uint32_t flags = 0)
        : handle_(detail::make<Owner>(model.handle_.get_deleter().kept,
                                      specbatch_text_stream_create, model.get(), flags))
    {
    }
    specbatch_text_stream *get() const noexcept { return handle_.get(); }
    std::string_view push(View<std::int32_t> ids)
    {
        const char *text = "";
        std::size_t length = 0;
        detail::call(specbatch_text_stream_push, get(), ids.data(), ids.size(), &text, &length);
        return {text, length};
    }
    std::string_view push(std::int32_t id) { return push(View<std::int32_t>(&id, 1)); }
    std::string_view finish()
    {
        const char *text = "";
        std::size_t length = 0;
        detail::call(specbatch_text_stream_finish, get(), &text, &length);
        return {text, length};
    }

  private:
    using Owner = detail::Handle<specbatch_text_stream, specbatch_text_stream_free>;
    Owner handle_;
};

/* ------------------------------------------- drafts and masks of the caller's own */

/* The rows of a round, each a Row that refers to what the library has of it. */
template <typename Row, typename Raw>
class Rows
{
  public:
    class iterator
    {
      public:
        explicit iterator(Raw *const *at) noexcept : at_(at) {}
        Row operator*() const noexcept { return Row(**at_); }
        iterator &operator++() noexcept
        {
            at_++;
            return *this;
        }
        bool operator!=(const iterator &other) const noexcept { return at_ != other.at_; }

      private:
        Raw *const *at_;
    };

    Rows(Raw *const *rows, std::size_t n) noexcept : rows_(rows), n_(n) {}
    std::size_t size() const noexcept { return n_; }
    Row operator[](std::size_t i) const { return Row(*rows_[i]); }
    iterator begin() const noexcept { return iterator(rows_); }
    iterator end() const noexcept { return iterator(rows_ + n_); }

  private:
    Raw *const *rows_;
    std::size_t n_;
};

/* What a draft sees of a request: specbatch_draft_row. */
class DraftRow
{
  public:
    explicit DraftRow(specbatch_draft_row &row) noexcept : row_(&row) {}
    std::uint64_t id() const noexcept { return row_->request_id; }
    void *user() const noexcept { return row_->request_user; }
    View<std::int32_t> tokens() const noexcept { return {row_->tokens, row_->n_tokens}; }
    /* Proposals wanted at most. */
    std::size_t wanted() const noexcept { return static_cast<std::size_t>(row_->k); }
    /* Adds a proposal behind those that there are. False: no more are wanted. */
    bool propose(std::int32_t id) const noexcept
    {
        if (row_->n_out >= row_->k)
            return false;
        row_->out[row_->n_out++] = id;
        return true;
    }

  private:
    specbatch_draft_row *row_;
};
using DraftRows = Rows<DraftRow, specbatch_draft_row>;

/* A draft of the caller's own: specbatch_draft_ops. */
class Proposer
{
  public:
    Proposer() = default;
    Proposer(const Proposer &) = delete;
    Proposer &operator=(const Proposer &) = delete;
    virtual ~Proposer() = default;
    virtual void propose(DraftRows rows) = 0;
    /* A request that propose has seen has ended. */
    virtual void retire(std::uint64_t /* id */, void * /* user */) {}
};

/* What a mask sees of a position: specbatch_mask_row. */
class MaskRow
{
  public:
    explicit MaskRow(specbatch_mask_row &row) noexcept : row_(&row) {}
    std::uint64_t id() const noexcept { return row_->request_id; }
    void *user() const noexcept { return row_->request_user; }
    View<std::int32_t> tokens() const noexcept { return {row_->tokens, row_->n_tokens}; }
    View<std::int32_t> prompt() const noexcept { return tokens().part(0, row_->n_prompt); }
    View<std::int32_t> answer() const noexcept
    {
        return tokens().part(row_->n_prompt, row_->n_answer);
    }
    View<std::int32_t> proposed() const noexcept
    {
        return tokens().part(row_->n_prompt + row_->n_answer, row_->n_tokens);
    }
    bool allows(std::int32_t id) const noexcept
    {
        return id >= 0 && word(id) < row_->n_words && (row_->allowed[word(id)] & bit(id)) != 0;
    }
    void forbid(std::int32_t id) const noexcept
    {
        if (allows(id))
            row_->allowed[word(id)] &= ~bit(id);
    }
    /* Forbids all others. */
    void allow_only(View<std::int32_t> ids) const
    {
        std::vector<std::int32_t> both;
        for (std::int32_t id : ids)
            if (allows(id))
                both.push_back(id);
        std::fill(row_->allowed, row_->allowed + row_->n_words, std::uint32_t{0});
        for (std::int32_t id : both)
            row_->allowed[word(id)] |= bit(id);
    }
    /* The bits themselves, row.words()[id / 32], for masks that are kept as such. */
    std::uint32_t *words() const noexcept { return row_->allowed; }
    std::size_t n_words() const noexcept { return row_->n_words; }

  private:
    static std::size_t word(std::int32_t id) noexcept { return static_cast<std::size_t>(id) / 32; }
    static std::uint32_t bit(std::int32_t id) noexcept
    {
        return std::uint32_t{1} << (static_cast<std::uint32_t>(id) % 32);
    }
    specbatch_mask_row *row_;
};
using MaskRows = Rows<MaskRow, specbatch_mask_row>;

/* What may be generated: specbatch_mask. One object may serve many requests, which are then asked
 * for together. */
class Mask
{
  public:
    Mask() = default;
    Mask(const Mask &) = delete;
    Mask &operator=(const Mask &) = delete;
    virtual ~Mask() = default;
    virtual void allow(MaskRows rows) = 0;
    /* One that calls a function. */
    static std::shared_ptr<Mask> from(std::function<void(MaskRows)> function);
};

namespace detail
{

struct FunctionProposer final : Proposer {
    std::function<void(DraftRows)> function;
    explicit FunctionProposer(std::function<void(DraftRows)> f) : function(std::move(f)) {}
    void propose(DraftRows rows) override { function(rows); }
};

struct FunctionMask final : Mask {
    std::function<void(MaskRows)> function;
    explicit FunctionMask(std::function<void(MaskRows)> f) : function(std::move(f)) {}
    void allow(MaskRows rows) override { function(rows); }
};

inline std::int32_t on_propose(void *user, specbatch_draft_row *const *rows, std::size_t n) noexcept
{
    return Call::back([&] { static_cast<Proposer *>(user)->propose(DraftRows(rows, n)); }) ? 0 : 1;
}

inline void on_retire(void *user, std::uint64_t id, void *request_user) noexcept
{
    Call::back([&] { static_cast<Proposer *>(user)->retire(id, request_user); });
}

inline void on_release(void *user) noexcept
{
    delete static_cast<Proposer *>(user);
}

inline std::int32_t on_allow(void *user, specbatch_mask_row *const *rows, std::size_t n) noexcept
{
    return Call::back([&] { static_cast<Mask *>(user)->allow(MaskRows(rows, n)); }) ? 0 : 1;
}

} // namespace detail

inline std::shared_ptr<Mask> Mask::from(std::function<void(MaskRows)> function)
{
    return std::make_shared<detail::FunctionMask>(std::move(function));
}

class Draft
{
  public:
    explicit Draft(specbatch_draft *owned) noexcept : handle_(owned) {}
    static Draft from_model(const Model &model)
    {
        return made(model.handle_.get_deleter().kept, specbatch_draft_from_model, model.get());
    }
    static Draft from_ngrams(const NgramOptions &options = {})
    {
        return made(nullptr, specbatch_draft_from_ngrams, &options);
    }
    static Draft from_table(const std::string &path)
    {
        return made(nullptr, specbatch_draft_from_table, path.c_str());
    }
    /* The draft owns the proposer, and destroys it when no pool uses it any more. */
    static Draft from(std::unique_ptr<Proposer> proposer)
    {
        specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
        if (proposer)
            ops.propose = detail::on_propose;
        ops.retire = detail::on_retire;
        ops.release = detail::on_release;
        ops.user = proposer.get();
        Draft draft = made(nullptr, specbatch_draft_from_ops, &ops);
        static_cast<void>(proposer.release());
        return draft;
    }
    static Draft from(std::function<void(DraftRows)> function)
    {
        return from(std::make_unique<detail::FunctionProposer>(std::move(function)));
    }
    /* Asked in turn: Draft::from_list({&ngrams, &model}). */
    static Draft from_list(const std::vector<const Draft *> &drafts)
    {
        std::vector<specbatch_draft *> handles;
        std::vector<std::shared_ptr<detail::Kept>> others;
        for (const Draft *draft : drafts) {
            handles.push_back(draft ? draft->get() : nullptr);
            others.push_back(draft ? draft->handle_.get_deleter().kept : nullptr);
        }
        return made(std::make_shared<detail::Kept>(std::move(others)), specbatch_draft_from_list,
                    handles.data(), handles.size());
    }
    /* One more owner of the same draft. */
    Draft share() const
    {
        Draft other(nullptr);
        specbatch_draft_retain(get());
        other.handle_ = Owner(get(), handle_.get_deleter());
        return other;
    }
    specbatch_draft *get() const noexcept { return handle_.get(); }

  private:
    friend class Pool;
    using Owner = detail::Handle<specbatch_draft, specbatch_draft_release>;
    explicit Draft(Owner handle) noexcept : handle_(std::move(handle)) {}
    template <typename... Arguments>
    static Draft made(std::shared_ptr<detail::Kept> kept, Arguments... arguments)
    {
        return Draft(detail::make<Owner>(std::move(kept), arguments...));
    }
    Owner handle_;
};

/* Writes the file for Draft::from_table. */
inline void make_table(const std::string &to, const Model &model, View<std::int32_t> ids,
                       const TableOptions &options = {})
{
    detail::call(specbatch_table_make, to.c_str(), model.get(), ids.data(), ids.size(), &options);
}

/* ------------------------------------------------------------------ requests */

struct Sampling : specbatch_sampling {
    std::map<std::int32_t, float> bias; /* added to logits, by token id */
    Sampling() : specbatch_sampling SPECBATCH_SAMPLING_INIT {}
};

struct Answers : specbatch_answers {
    explicit Answers(std::int32_t how_many, std::int32_t of = 0)
        : specbatch_answers SPECBATCH_ANSWERS_INIT
    {
        n = how_many;
        best_of = of;
    }
};

/* A request with everything that it points to; give exactly one of ids and text. It may be changed
 * and submitted again. */
struct Request : specbatch_request {
    std::vector<std::int32_t> ids;
    std::optional<std::string> text;
    std::vector<std::int32_t> stop_ids;
    std::vector<std::string> stops;
    std::optional<Sampling> sampling;
    std::optional<Answers> answers;
    std::shared_ptr<Mask> mask;

    Request() : specbatch_request SPECBATCH_REQUEST_INIT {}
    Request(std::string prompt, std::int32_t n) : Request()
    {
        text = std::move(prompt);
        max_new = n;
    }
    Request(std::vector<std::int32_t> prompt, std::int32_t n) : Request()
    {
        ids = std::move(prompt);
        max_new = n;
    }
    Request(std::initializer_list<std::int32_t> prompt, std::int32_t n)
        : Request(std::vector<std::int32_t>(prompt), n)
    {
    }
};

namespace detail
{

/* The struct of specbatch.h for a request, and what that points to. */
class Plain
{
  public:
    explicit Plain(const Request &from) : request_(from)
    {
        if (!from.ids.empty()) {
            request_.ids = from.ids.data();
            request_.n_ids = from.ids.size();
        }
        if (from.text) {
            request_.text = from.text->c_str();
            request_.text_length = from.text->size();
        }
        if (!from.stop_ids.empty()) {
            request_.stop_ids = from.stop_ids.data();
            request_.n_stop_ids = from.stop_ids.size();
        }
        if (from.answers)
            request_.answers = &*from.answers;
        if (from.mask) {
            mask_.allow = on_allow;
            mask_.user = from.mask.get();
            request_.mask = &mask_;
        }
        set_stops(from);
        set_sampling(from);
    }
    Plain(const Plain &) = delete;
    Plain &operator=(const Plain &) = delete;
    const specbatch_request *get() const noexcept { return &request_; }

  private:
    void set_stops(const Request &from)
    {
        for (const std::string &string : from.stops) {
            strings_.push_back(string.c_str());
            lengths_.push_back(string.size());
        }
        if (strings_.empty())
            return;
        stops_.strings = strings_.data();
        stops_.lengths = lengths_.data();
        stops_.n_strings = strings_.size();
        request_.stops = &stops_;
    }
    void set_sampling(const Request &from)
    {
        if (!from.sampling)
            return;
        sampling_ = *from.sampling;
        for (const auto &[id, bias] : from.sampling->bias) {
            bias_ids_.push_back(id);
            bias_.push_back(bias);
        }
        if (!bias_.empty()) {
            sampling_.bias_ids = bias_ids_.data();
            sampling_.bias = bias_.data();
            sampling_.n_bias = bias_.size();
        }
        request_.sampling = &sampling_;
    }

    specbatch_request request_;
    specbatch_stops stops_ = SPECBATCH_STOPS_INIT;
    specbatch_sampling sampling_ = SPECBATCH_SAMPLING_INIT;
    specbatch_mask mask_ = SPECBATCH_MASK_INIT;
    std::vector<const char *> strings_;
    std::vector<std::size_t> lengths_;
    std::vector<std::int32_t> bias_ids_;
    std::vector<float> bias_;
};

} // namespace detail

/* -------------------------------------------------------- events and results */

/* What a request has got since its last event: specbatch_event. */
class Event
{
  public:
    std::uint64_t id() const noexcept { return event_.id; }
    void *user() const noexcept { return event_.user; }
    View<std::int32_t> ids() const noexcept { return {event_.ids, event_.n_ids}; }
    /* "" also where the model has no tokenizer. */
    std::string_view text() const noexcept
    {
        return event_.text ? std::string_view(event_.text, event_.text_length) : std::string_view();
    }
    /* 0 while the request runs; in its last event SPECBATCH_FINISH_*. */
    std::int32_t finish() const noexcept { return event_.finish; }
    bool is_last() const noexcept { return event_.finish != 0; }
    std::int32_t status() const noexcept { return event_.status; }

  private:
    friend class Pool;
    specbatch_event event_ = SPECBATCH_EVENT_INIT;
};

/* The most probable tokens at each position, n at each. */
struct Alternatives {
    std::size_t n = 0;
    View<std::int32_t> all_ids;
    View<float> all_logprobs;
    View<std::int32_t> ids(std::size_t position) const { return all_ids.part(position * n, n); }
    View<float> logprobs(std::size_t position) const { return all_logprobs.part(position * n, n); }
};

class Result
{
  public:
    Result() noexcept = default;
    explicit Result(specbatch_result *owned) noexcept : handle_(owned) {}
    specbatch_result *get() const noexcept { return handle_.get(); }

    std::uint64_t id() const { return specbatch_result_id(get()); }
    void *user() const { return specbatch_result_user(get()); }
    std::int32_t status() const { return specbatch_result_status(get()); }
    std::int32_t finish() const { return specbatch_result_finish(get()); }
    std::int32_t answer() const { return specbatch_result_answer(get()); }
    std::uint64_t rounds() const { return specbatch_result_rounds(get()); }
    std::uint64_t drafted() const { return specbatch_result_drafted(get()); }
    std::uint64_t accepted() const { return specbatch_result_accepted(get()); }
    std::uint64_t time_queued_ns() const { return specbatch_result_time_queued_ns(get()); }
    std::uint64_t time_first_token_ns() const
    {
        return specbatch_result_time_first_token_ns(get());
    }
    std::uint64_t time_total_ns() const { return specbatch_result_time_total_ns(get()); }
    std::size_t prompt_length() const { return specbatch_result_prompt_length(get()); }
    std::string_view fingerprint() const
    {
        const char *line = specbatch_result_fingerprint(get());
        return line ? line : "";
    }
    /* "" also where the model has no tokenizer. */
    std::string_view text() const
    {
        std::size_t length = 0;
        const char *text = specbatch_result_text(get(), &length);
        return text ? std::string_view(text, length) : std::string_view();
    }
    View<std::int32_t> tokens() const { return view(specbatch_result_tokens); }
    View<std::int32_t> prompt() const { return view(specbatch_result_prompt); }
    View<float> logprobs() const { return view(specbatch_result_logprobs); }
    View<float> prompt_logprobs() const { return view(specbatch_result_prompt_logprobs); }
    /* By the index of the generated token. */
    Alternatives top() const
    {
        return alternatives(specbatch_result_top_ids, specbatch_result_top_logprobs,
                            tokens().size());
    }
    /* By the index in prompt_logprobs. */
    Alternatives prompt_top() const
    {
        return alternatives(specbatch_result_prompt_top_ids, specbatch_result_prompt_top_logprobs,
                            prompt_logprobs().size());
    }

  private:
    friend class Pool;
    using Owner = detail::Handle<specbatch_result, specbatch_result_free>;
    template <typename T>
    using Getter = const T *(*)(const specbatch_result *, std::size_t *);
    template <typename T>
    View<T> view(Getter<T> getter) const
    {
        std::size_t n = 0;
        const T *data = getter(get(), &n);
        return {data, n};
    }
    Alternatives alternatives(Getter<std::int32_t> get_ids, Getter<float> get_logprobs,
                              std::size_t positions) const
    {
        const View<std::int32_t> first = view(get_ids);
        const std::size_t all = first.size() * positions;
        return {first.size(), {first.data(), all}, {view(get_logprobs).data(), all}};
    }
    Owner handle_;
};

/* ---------------------------------------------------------------------- pool */

using RequestState = specbatch_request_state;

class Pool
{
  public:
    template <typename Item>
    class Feed;

    explicit Pool(const Model &target, const PoolOptions &options = {})
        : Pool(target, Draft(nullptr), options)
    {
    }
    Pool(const Model &target, const Draft &draft, const PoolOptions &options = {})
    {
        std::vector<std::shared_ptr<detail::Kept>> others = {target.handle_.get_deleter().kept,
                                                             draft.handle_.get_deleter().kept};
        auto kept = std::make_shared<detail::Kept>(options, std::move(others));
        const auto c = detail::hooked<specbatch_pool_options>(options, *kept);
        handle_ = detail::make<Owner>(kept, specbatch_pool_create, target.get(), draft.get(), &c);
    }
    explicit Pool(specbatch_pool *owned) noexcept : handle_(owned) {}
    specbatch_pool *get() const noexcept { return handle_.get(); }

    /* What a pool would take. */
    static std::uint64_t bytes(const Model &target, const Draft &draft,
                               const PoolOptions &options = {})
    {
        std::uint64_t bytes = 0;
        detail::call(specbatch_pool_bytes, &bytes, target.get(), draft.get(), &options);
        return bytes;
    }
    static std::uint64_t bytes(const Model &target, const PoolOptions &options = {})
    {
        return bytes(target, Draft(nullptr), options);
    }

    /* Returns the request's number. The pool keeps the mask as long as the request may ask it. */
    std::uint64_t submit(const Request &request)
    {
        const detail::Plain plain(request);
        std::uint64_t id = 0;
        auto masked = masks_.end();
        if (request.mask) // beforehand, as nothing may fail once it is submitted
            masked = masks_.insert({UINT64_MAX, Masked{request.mask, 0, 1}}).first;
        detail::Call under_way;
        const std::int32_t status = specbatch_pool_submit(get(), plain.get(), &id);
        if (masked != masks_.end())
            number(masked, status, id, request.answers);
        under_way.rethrow();
        check(status);
        return id;
    }
    void cancel(std::uint64_t id) { detail::call(specbatch_pool_cancel, get(), id); }
    /* Returns how many requests are queued or unfinished. */
    std::size_t step()
    {
        std::size_t active = 0;
        detail::call(specbatch_pool_step, get(), &active);
        return active;
    }
    void run() { detail::call(specbatch_pool_run, get()); }
    /* On any thread, and in signal handlers. */
    void interrupt() const noexcept { specbatch_pool_interrupt(get()); }

    /* Takes the next event, or the next result, out of the pool. False: there is none now. */
    bool next_event(Event &event)
    {
        detail::Call under_way;
        const std::int32_t status = specbatch_pool_next_event(get(), &event.event_);
        under_way.rethrow();
        return status != SPECBATCH_E_EMPTY && check(status) == SPECBATCH_OK;
    }
    bool collect(Result &result);
    std::optional<Result> collect()
    {
        Result result;
        return collect(result) ? std::optional<Result>(std::move(result)) : std::nullopt;
    }
    /* Ranges that step the pool until it has no request left. What is submitted meanwhile is run
     * too. An item is there until the next one is. The pool may not be moved before their end,
     * and must have a name: a loop over a temporary pool's range would begin when it is gone. */
    Feed<Event> events() &;
    Feed<Event> events() && = delete;
    Feed<Result> results() &;
    Feed<Result> results() && = delete;
    /* The same of what is there now, without a step. */
    Feed<Event> events_now() &;
    Feed<Event> events_now() && = delete;
    Feed<Result> results_now() &;
    Feed<Result> results_now() && = delete;
    /* The tokens since the last poll. */
    std::vector<std::int32_t> poll(std::uint64_t id)
    {
        std::size_t n = 0;
        detail::call(specbatch_pool_poll, get(), id, nullptr, std::size_t{0}, &n);
        std::vector<std::int32_t> ids(n);
        if (n > 0)
            detail::call(specbatch_pool_poll, get(), id, ids.data(), ids.size(), &n);
        ids.resize(n);
        return ids;
    }
    RequestState state(std::uint64_t id) const
    {
        RequestState state = SPECBATCH_REQUEST_STATE_INIT;
        detail::call(specbatch_pool_state, get(), id, &state);
        return state;
    }

    std::uint64_t pin(View<std::int32_t> ids)
    {
        std::uint64_t pin = 0;
        detail::call(specbatch_pool_pin, get(), ids.data(), ids.size(), &pin);
        return pin;
    }
    void unpin(std::uint64_t pin) { detail::call(specbatch_pool_unpin, get(), pin); }
    /* Returns for how many of the tokens the file has keys and values. */
    std::size_t save_session(View<std::int32_t> ids, const std::string &path)
    {
        std::size_t kept = 0;
        detail::call(specbatch_pool_save_session, get(), ids.data(), ids.size(), path.c_str(),
                     &kept);
        return kept;
    }
    /* Returns the tokens of the session. */
    std::vector<std::int32_t> load_session(const std::string &path)
    {
        return detail::filled<std::vector<std::int32_t>>(256, [&](auto &ids, std::size_t *n) {
            return specbatch_pool_load_session(get(), path.c_str(), ids.data(), ids.size(), n);
        });
    }
    std::uint64_t stat(const char *name) const
    {
        std::uint64_t value = 0;
        detail::call(specbatch_pool_stat, get(), name, &value);
        return value;
    }

  private:
    using Owner = detail::Handle<specbatch_pool, specbatch_pool_free>;
    /* The mask of the requests from the number that is its key up to `end`, of which so many are
     * not collected yet. */
    struct Masked {
        std::shared_ptr<Mask> mask;
        std::uint64_t end;
        std::int32_t left;
    };
    using Masks = std::map<std::uint64_t, Masked>;

    void number(Masks::iterator masked, std::int32_t status, std::uint64_t id,
                const std::optional<Answers> &answers) noexcept
    {
        auto node = masks_.extract(masked);
        if (status != SPECBATCH_OK)
            return;
        node.key() = id;
        node.mapped().left = answers ? answers->n : 1;
        node.mapped().end = id + static_cast<std::uint64_t>(
                                     answers ? std::max(answers->n, answers->best_of) : 1);
        masks_.insert(std::move(node));
    }
    void forget_mask(std::uint64_t id) noexcept
    {
        auto masked = masks_.upper_bound(id);
        if (masked == masks_.begin() || id >= (--masked)->second.end)
            return;
        if (--masked->second.left == 0)
            masks_.erase(masked);
    }
    bool take(Event &event) { return next_event(event); }
    bool take(Result &result) { return collect(result); }

    Masks masks_;
    Owner handle_;
};

inline bool Pool::collect(Result &result)
{
    specbatch_result *taken = nullptr;
    detail::Call under_way;
    const std::int32_t status = specbatch_pool_collect(get(), &taken);
    if (taken) {
        result.handle_ = Result::Owner(taken, {handle_.get_deleter().kept});
        forget_mask(result.id());
    }
    under_way.rethrow();
    return status != SPECBATCH_E_EMPTY && check(status) == SPECBATCH_OK;
}

/* A range that takes events or results out of a pool, each once. */
template <typename Item>
class Pool::Feed
{
  public:
    struct End {
    };
    class iterator
    {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Item;
        using difference_type = std::ptrdiff_t;
        using pointer = Item *;
        using reference = Item &;

        explicit iterator(Feed *feed) : feed_(feed) {}
        Item &operator*() const { return feed_->item_; }
        Item *operator->() const { return &feed_->item_; }
        iterator &operator++()
        {
            feed_->advance();
            return *this;
        }
        void operator++(int) { feed_->advance(); }
        bool operator==(End) const { return !feed_->there_; }
        bool operator!=(End) const { return feed_->there_; }

      private:
        Feed *feed_;
    };

    Feed(Pool &pool, bool steps) : pool_(&pool), steps_(steps) {}
    iterator begin()
    {
        advance();
        return iterator(this);
    }
    End end() const { return {}; }

  private:
    /* Idle is known only from a step behind the last item: the caller may have submitted more. */
    void advance()
    {
        bool idle = !steps_;
        there_ = pool_->take(item_);
        while (!there_ && !idle) {
            idle = pool_->step() == 0;
            there_ = pool_->take(item_);
        }
    }

    Pool *pool_;
    bool steps_;
    bool there_ = false;
    Item item_;
};

inline Pool::Feed<Event> Pool::events() &
{
    return Feed<Event>(*this, true);
}
inline Pool::Feed<Result> Pool::results() &
{
    return Feed<Result>(*this, true);
}
inline Pool::Feed<Event> Pool::events_now() &
{
    return Feed<Event>(*this, false);
}
inline Pool::Feed<Result> Pool::results_now() &
{
    return Feed<Result>(*this, false);
}

inline specbatch_audit_report audit(const Model &target, const Request &request,
                                    const Result &result, const PoolOptions &options = {})
{
    detail::Kept kept(options);
    const auto c = detail::hooked<specbatch_pool_options>(options, kept);
    const detail::Plain plain(request);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    detail::call(specbatch_audit, target.get(), &c, plain.get(), result.get(), &report);
    return report;
}

/* --------------------------------------------------------- numbers and names */

inline std::int32_t version() noexcept
{
    return specbatch_version();
}
inline const char *version_string() noexcept
{
    return specbatch_version_string();
}
inline std::int32_t abi_version() noexcept
{
    return specbatch_abi_version();
}
inline bool has(const char *feature) noexcept
{
    return specbatch_has(feature) != 0;
}

/* Names of numbers; NULL where specbatch.h says so. */
inline const char *policy_name(std::int32_t policy) noexcept
{
    return specbatch_policy_name(policy);
}
inline const char *chat_name(std::int32_t format) noexcept
{
    return specbatch_chat_name(format);
}
inline const char *finish_name(std::int32_t finish) noexcept
{
    return specbatch_finish_name(finish);
}
inline const char *stat_name(std::int32_t index) noexcept
{
    return specbatch_stat_name(index);
}

/* Numbers of names, and how many there are. */
inline std::int32_t policy_by_name(const char *name)
{
    return check(specbatch_policy_by_name(name));
}
inline std::int32_t chat_by_name(const char *name)
{
    return check(specbatch_chat_by_name(name));
}
inline std::int32_t policy_count() noexcept
{
    return specbatch_policy_count();
}
inline std::int32_t chat_count() noexcept
{
    return specbatch_chat_count();
}
inline std::int32_t stat_count() noexcept
{
    return specbatch_stat_count();
}

} // namespace specbatch

#endif

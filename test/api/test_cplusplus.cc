/*
 * specbatch.hpp: what it gives is what the C functions give, bit for bit; exceptions of every kind
 * of callback come out of the call that ran it and of no other; objects may be moved, and destroyed
 * in any order, with every byte given back. test/api/check_cplusplus.sh compiles and runs it.
 */
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <thread>
#if __cplusplus >= 202002L
#include <ranges>
#include <span>
#endif

#include "specbatch.hpp"

using namespace specbatch;

namespace
{

const char target_path[] = "test/data/models/qwen3_untied_f32_sharded";
const char draft_path[] = "test/data/models/qwen3_untied_f32_sharded.draft";
const char text_path[] = "test/data/models/emoji";
const std::vector<std::int32_t> prompt = {5, 17, 300};

int failures;
bool failed;

void check_that(bool condition, const char *what, int line)
{
    if (condition)
        return;
    std::printf("     line %d: %s\n", line, what);
    failed = true;
}
#define CHECK(condition) check_that((condition), #condition, __LINE__)

// What a function throws: the status of an error, or 0 and the text of another exception.
template <typename Function>
std::pair<std::int32_t, std::string> thrown(Function function)
{
    try {
        function();
    } catch (const error &e) {
        return {e.status(), e.what()};
    } catch (const std::exception &e) {
        return {0, e.what()};
    }
    return {SPECBATCH_OK, "nothing"};
}
#define THROWS(code, call) check_that(thrown([&] { call; }).first == (code), #call, __LINE__)
#define THROWS_TEXT(text, call) check_that(thrown([&] { call; }).second == (text), #call, __LINE__)

struct Oops : std::runtime_error {
    using std::runtime_error::runtime_error;
};

PoolOptions small_pool()
{
    PoolOptions options;
    options.max_len = 64;
    options.n_threads = 2;
    options.flags = SPECBATCH_POOL_FIXED_K;
    return options;
}

// Memory that counts what is out, and the functions that are alive.
struct Counted {
    std::shared_ptr<long> blocks = std::make_shared<long>(0);
    template <typename Options>
    void put_into(Options &options) const
    {
        options.alloc = [blocks = blocks](std::size_t size, std::size_t align) {
            ++*blocks;
            return std::aligned_alloc(align, (size + align - 1) / align * align);
        };
        options.free = [blocks = blocks](void *block, std::size_t) {
            --*blocks;
            std::free(block);
        };
    }
    bool all_is_given_back() const
    {
        return *blocks == 0 && blocks.use_count() == 1;
    }
};

std::vector<std::int32_t> copied(View<std::int32_t> view)
{
    return {view.begin(), view.end()};
}

std::vector<std::int32_t> plain_tokens(const Model &target, const Request &request)
{
    Pool pool(target, small_pool());
    pool.submit(request);
    pool.run();
    return copied(pool.collect().value().tokens());
}

/* ------------------------------------------------------------ the same as in C */

struct CResult {
    std::vector<std::int32_t> tokens, top_ids;
    std::vector<float> logprobs, top_logprobs;
};

// A sampled request with a draft model, by the C functions alone.
CResult in_c()
{
    static const std::int32_t banned[] = {7, 9}, stop_ids[] = {11};
    static const float bias[] = {-INFINITY, 5.0f};
    specbatch_model *target = nullptr, *small = nullptr;
    specbatch_draft *draft = nullptr;
    specbatch_pool *pool = nullptr;
    specbatch_result *result = nullptr;
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    options.max_len = 64;
    options.flags = SPECBATCH_POOL_FIXED_K;
    sampling.seed = 3;
    sampling.temperature = 0.9f;
    sampling.bias_ids = banned;
    sampling.bias = bias;
    sampling.n_bias = 2;
    request.ids = prompt.data();
    request.n_ids = prompt.size();
    request.max_new = 30;
    request.flags = SPECBATCH_REQUEST_LOGPROBS;
    request.top_logprobs = 2;
    request.stop_ids = stop_ids;
    request.n_stop_ids = 1;
    request.sampling = &sampling;
    check(specbatch_model_open(&target, target_path, nullptr));
    check(specbatch_model_open(&small, draft_path, nullptr));
    check(specbatch_draft_from_model(&draft, small));
    check(specbatch_pool_create(&pool, target, draft, &options));
    check(specbatch_pool_submit(pool, &request, nullptr));
    check(specbatch_pool_run(pool));
    check(specbatch_pool_collect(pool, &result));
    std::size_t n = 0, n_top = 0;
    const std::int32_t *tokens = specbatch_result_tokens(result, &n);
    const float *logprobs = specbatch_result_logprobs(result, nullptr);
    const std::int32_t *top_ids = specbatch_result_top_ids(result, &n_top);
    const float *top_logprobs = specbatch_result_top_logprobs(result, nullptr);
    CResult all = {{tokens, tokens + n},
                   {top_ids, top_ids + n * n_top},
                   {logprobs, logprobs + n},
                   {top_logprobs, top_logprobs + n * n_top}};
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    specbatch_draft_release(draft);
    specbatch_model_close(small);
    specbatch_model_close(target);
    return all;
}

bool same_bits(View<float> got, const std::vector<float> &want)
{
    return got.size() == want.size() &&
           std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) == 0;
}

void results_are_those_of_c()
{
    const CResult want = in_c();
    const Model target(target_path), small(draft_path);
    Request request(prompt, 30);
    request.flags = SPECBATCH_REQUEST_LOGPROBS;
    request.top_logprobs = 2;
    request.stop_ids = {11};
    request.sampling.emplace();
    request.sampling->seed = 3;
    request.sampling->temperature = 0.9f;
    request.sampling->bias = {{9, 5.0f}, {7, -INFINITY}};
    Pool pool(target, Draft::from_model(small), small_pool());
    CHECK(pool.submit(request) == 1);
    pool.run();
    const Result result = pool.collect().value();
    CHECK(std::count(want.tokens.begin(), want.tokens.end(), 9) > 0);
    CHECK(want.tokens.size() > 3 && copied(result.tokens()) == want.tokens);
    CHECK(same_bits(result.logprobs(), want.logprobs));
    CHECK(result.top().n == 2 && copied(result.top().all_ids) == want.top_ids);
    CHECK(same_bits(result.top().all_logprobs, want.top_logprobs));
    CHECK(result.top().ids(1)[0] == want.top_ids[2]);
    CHECK(result.top().logprobs(1).size() == 2);
    CHECK(result.drafted() > 0 && copied(result.prompt()) == prompt && result.id() == 1);
    CHECK(audit(target, request, result).equal == 1);
    request.ids[0] = 6;
    THROWS(SPECBATCH_E_INVALID, audit(target, request, result));
    CHECK(!pool.collect());
}

void prompts_are_scored_and_tables_propose()
{
    const Model target(target_path);
    Request request(prompt, 8);
    request.flags = SPECBATCH_REQUEST_PROMPT_LOGPROBS;
    request.top_logprobs = 2;
    Pool pool(target, small_pool());
    pool.submit(request);
    pool.run();
    const Result result = pool.collect().value();
    const std::size_t n = prompt.size() - 1;
    std::size_t n_top = 0;
    const float *logprobs = specbatch_result_prompt_logprobs(result.get(), nullptr);
    const std::int32_t *ids = specbatch_result_prompt_top_ids(result.get(), &n_top);
    CHECK(same_bits(result.prompt_logprobs(), {logprobs, logprobs + n}));
    CHECK(n_top == 2 && result.prompt_top().n == 2);
    CHECK(copied(result.prompt_top().all_ids) == std::vector<std::int32_t>(ids, ids + 2 * n));
    CHECK(result.prompt_top().logprobs(n - 1).size() == 2);
    CHECK(result.prompt_top().logprobs(n).empty());
    CHECK(result.prompt_length() == prompt.size() && result.tokens().size() == 8);
    CHECK(result.time_queued_ns() <= result.time_first_token_ns());
    CHECK(result.time_first_token_ns() <= result.time_total_ns());

    // A table of the answer, twice, proposes it.
    const std::string file = std::getenv("SESSION_FILE") + std::string(".table");
    std::vector<std::int32_t> text;
    for (int time = 0; time < 2; time++) {
        text.insert(text.end(), prompt.begin(), prompt.end());
        text.insert(text.end(), result.tokens().begin(), result.tokens().end());
    }
    make_table(file, target, text);
    THROWS(SPECBATCH_E_INVALID, make_table(file, target, {}));
    Pool quick(target, Draft::from_table(file), small_pool());
    quick.submit(Request(prompt, 8));
    quick.run();
    const Result again = quick.collect().value();
    CHECK(copied(again.tokens()) == copied(result.tokens()) && again.accepted() > 0);
}

void every_field_of_a_request_arrives()
{
    const Model target(text_path);
    Request request("smile", 20);
    request.stops = {"nowhere", "\xf0\x9f\x98\x82"}; // of the answer " 😀, 😂 & 🥳!"
    request.answers.emplace(2, 3);
    request.sampling.emplace();
    request.sampling->seed = 1;
    Pool pool(target, small_pool());
    std::set<std::string> texts;
    const std::uint64_t id = pool.submit(request);
    CHECK(pool.state(id).state == SPECBATCH_STATE_QUEUED);
    for (const Result &result : pool.results()) {
        CHECK(result.finish() == SPECBATCH_FINISH_STOP);
        CHECK(result.answer() >= 0 && result.answer() < 3 && result.id() >= id);
        texts.insert(std::string(result.text()));
    }
    CHECK(texts == std::set<std::string>{" \xf0\x9f\x98\x80, "});
    request.text = std::string("smi\0le", 6);
    request.stops.clear();
    request.answers.reset();
    pool.submit(request);
    pool.run();
    CHECK(copied(pool.collect().value().prompt()) == target.tokenize({"smi\0le", 6}));
    request.ids = prompt; // beside the text
    THROWS(SPECBATCH_E_INVALID, pool.submit(request));
    THROWS(SPECBATCH_E_INVALID, pool.submit(Request(std::vector<std::int32_t>(), 5)));
    request = Request(prompt, 5);
    request.specbatch_request::flags = 1u << 31;
    THROWS(SPECBATCH_E_OPTIONS, pool.submit(request));
}

void models_and_text_are_those_of_c()
{
    const Model model(text_path);
    const std::string smile = "smile \xf0\x9f\x98\x80!";
    const std::vector<std::int32_t> ids = model.tokenize(smile);
    TextStream stream(model);
    std::string text;
    CHECK(model.detokenize(ids) == smile && !ids.empty());
    for (std::int32_t id : ids)
        text += stream.push(id);
    text += stream.finish();
    CHECK(text == smile && !model.token_text(ids[0]).empty());
    CHECK(model.tokenize({}).empty() && model.detokenize({}).empty());
    CHECK(model.tokenize(std::string(5000, 'a')).size() > 8); // more than was guessed
    CHECK(model.arch() == specbatch_model_arch(model.get()) && model.has_tokenizer());
    CHECK(model.digest().size() == 32 && model.vocab_size() > 0 && model.layers() > 0);
    CHECK(model.context() > 0 && model.bytes() > 0 && !model.dtype().empty());
    CHECK(!model.fingerprint().empty() && !model.eos().empty());
    THROWS(SPECBATCH_E_TOKEN, model.token_text(1 << 30));
    THROWS(SPECBATCH_E_NOT_FOUND, model.chat_format());
    ChatOptions chat;
    chat.format = chat_by_name("raw");
    CHECK(model.chat_text({{"user", "smi"}, {"user", "le"}}, chat) == "smile");
    CHECK(chat_text({{"user", "smile"}}, chat) == "smile");
    CHECK(model.chat_tokens({{"user", "smile"}}, chat) == model.tokenize("smile"));
    chat.format = SPECBATCH_CHAT_LLAMA3_2;
    chat.date = 20261129;
    CHECK(chat_text({{"user", "smile"}}, chat).find("Today Date: 29 Nov 2026\n") !=
          std::string::npos);
    CHECK(std::strcmp(policy_name(policy_by_name("exspec")), "exspec") == 0);
    THROWS(SPECBATCH_E_NOT_FOUND, policy_by_name("none such"));
    CHECK(version() == SPECBATCH_VERSION_NUMBER && abi_version() == SPECBATCH_SOVERSION);
    CHECK(std::strcmp(chat_name(SPECBATCH_CHAT_AUTO), "auto") == 0 && stat_count() > 30);
    CHECK(std::strcmp(version_string(), specbatch_version_string()) == 0);
    CHECK(has("cpu") && !has("none such") && chat_count() > 5 && policy_count() == 5);
    const auto refusal = thrown([&] { Model("no/such/folder"); });
    CHECK(refusal.first == SPECBATCH_E_IO);
    CHECK(refusal.second.find("no/such/folder") != std::string::npos);
    CHECK(std::strcmp(error(SPECBATCH_E_IO, "").name(), "SPECBATCH_E_IO") == 0);
    CHECK(error(SPECBATCH_E_DEVICE, "").is_fatal() && !error(SPECBATCH_E_IO, "").is_fatal());
}

/* ------------------------------------------------------------- streams and pools */

void events_bring_every_text_and_run_what_is_submitted_meanwhile()
{
    const Model target(text_path);
    Pool pool(target, Draft::from_ngrams(), small_pool());
    std::map<std::uint64_t, std::string> texts;
    int ended = 0;
    for (const char *text : {"smile", "flag"})
        pool.submit(Request(text, 20));
    for (const Event &event : pool.events()) {
        texts[event.id()] += event.text();
        CHECK(event.status() == SPECBATCH_OK && event.user() == nullptr);
        if (event.is_last() && ++ended == 2) // nothing runs when it is submitted
            CHECK(pool.submit(Request("family:", 20)) == 3);
    }
    CHECK(ended == 3 && texts.size() == 3);
    for (const Event &event : pool.events_now())
        CHECK(event.id() == 0); // there is none
    int collected = 0;
    for (const Result &result : pool.results_now()) {
        CHECK(texts[result.id()] == result.text() && !result.text().empty());
        collected++;
    }
    CHECK(collected == 3);
    CHECK(pool.submit(Request("smile", 20)) == 4);
    for (const Result &result : pool.results_now())
        CHECK(result.id() == 0);
    for (const Result &result : pool.results())
        CHECK(result.id() == 4);
}

void pools_do_what_the_c_functions_do()
{
    const Model target(target_path);
    PoolOptions options = small_pool();
    options.prefix_bytes = 1 << 20;
    Pool pool(target, options);
    const std::vector<std::int32_t> long_prompt(33, 5);
    const std::uint64_t pin = pool.pin(long_prompt);
    const std::uint64_t id = pool.submit(Request(long_prompt, 20));
    CHECK(pool.poll(id).empty());
    while (pool.state(id).n_generated < 3)
        CHECK(pool.step() == 1);
    const std::vector<std::int32_t> first = pool.poll(id);
    CHECK(first.size() >= 3 && pool.poll(id).empty());
    pool.interrupt();
    THROWS(SPECBATCH_E_INTERRUPTED, pool.step());
    pool.cancel(id);
    THROWS(SPECBATCH_E_NOT_FOUND, pool.cancel(id + 1));
    pool.run();
    const Result result = pool.collect().value();
    CHECK(result.finish() == SPECBATCH_FINISH_CANCELLED);
    CHECK(copied(result.tokens().part(0, first.size())) == first);
    CHECK(result.tokens().part(1000, 5).empty());
    CHECK(pool.stat(stat_name(0)) <= UINT64_MAX);
    THROWS(SPECBATCH_E_NOT_FOUND, pool.stat("none such"));
    CHECK(Pool::bytes(target, options) > 0);

    const char *file = std::getenv("SESSION_FILE");
    CHECK(file && pool.save_session(long_prompt, file) == 32);
    Pool another(target, options);
    CHECK(file && another.load_session(file) == long_prompt);
    pool.unpin(pin);
    THROWS(SPECBATCH_E_NOT_FOUND, pool.unpin(pin));
}

/* ------------------------------------------------ drafts and masks of one's own */

// Proposes what it knows, or something wrong, and throws when it is told to.
struct Knowing final : Proposer {
    struct Seen {
        int proposed = 0, retired = 0, destroyed = 0;
        bool throws = false;
    };
    Seen &seen;
    std::vector<std::int32_t> known;
    Knowing(Seen &s, std::vector<std::int32_t> tokens) : seen(s), known(std::move(tokens))
    {
    }
    ~Knowing() override
    {
        seen.destroyed++;
    }
    void propose(DraftRows rows) override
    {
        if (seen.throws)
            throw Oops("no proposals today");
        for (DraftRow row : rows) {
            const std::size_t n = row.tokens().size() - prompt.size();
            for (std::size_t i = n; i < known.size() && row.propose(known[i]); i++)
                seen.proposed++;
        }
        CHECK(rows.size() == 1 && rows[0].id() == 1 && rows[0].wanted() <= 5);
    }
    void retire(std::uint64_t id, void *user) override
    {
        CHECK(id == 1 && user == &seen);
        seen.retired++;
    }
};

void a_class_proposes_and_its_exceptions_come_back()
{
    const Model target(target_path);
    Request request(prompt, 20);
    const std::vector<std::int32_t> want = plain_tokens(target, request);
    Knowing::Seen seen;
    request.user = &seen;
    {
        Pool pool(target, Draft::from(std::make_unique<Knowing>(seen, want)), small_pool());
        pool.submit(request);
        while (seen.proposed == 0)
            pool.step();
        seen.throws = true;
        THROWS_TEXT("no proposals today", pool.step());
        THROWS_TEXT("no proposals today", pool.run());
        seen.throws = false;
        pool.run();
        const Result result = pool.collect().value();
        CHECK(copied(result.tokens()) == want && result.accepted() > 5);
        CHECK(seen.retired == 1 && seen.destroyed == 0);
    }
    CHECK(seen.destroyed == 1);
    THROWS(SPECBATCH_E_INVALID, Draft::from(std::unique_ptr<Proposer>()));
}

void functions_propose_and_lists_ask_in_turn()
{
    const Model target(target_path), small(draft_path);
    const std::vector<std::int32_t> want = plain_tokens(target, Request(prompt, 20));
    int asked = 0;
    const Draft silent = Draft::from([&](DraftRows rows) { asked += rows.size() > 0; });
    const Draft model = Draft::from_model(small);
    Pool pool(target, Draft::from_list({&silent, &model}), small_pool());
    pool.submit(Request(prompt, 20));
    pool.run();
    const Result result = pool.collect().value();
    CHECK(copied(result.tokens()) == want && asked > 0 && result.drafted() > 0);
    THROWS(SPECBATCH_E_INVALID, Draft::from_list({}));
    THROWS(SPECBATCH_E_INVALID, Draft::from_list({nullptr}));
    THROWS(SPECBATCH_E_IO, Draft::from_table("no/such/table"));

    // Each pool's exception comes out of its own step, also on two threads at once.
    const Draft wrong = Draft::from([](DraftRows rows) {
        THROWS(SPECBATCH_E_IO, Draft::from_table("no/such/table")); // a call within a call
        throw Oops(rows[0].user() ? "the second" : "the first");
    });
    Pool first(target, wrong, small_pool()), second(target, wrong, small_pool());
    Request request(prompt, 20);
    first.submit(request);
    request.user = &request;
    second.submit(request);
    std::string message;
    std::thread other([&] { message = thrown([&] { second.run(); }).second; });
    THROWS_TEXT("the first", first.run());
    other.join();
    CHECK(message == "the second");
}

void masks_allow_and_their_exceptions_come_back()
{
    const Model target(target_path);
    PoolOptions options = small_pool();
    Pool pool(target, options);
    bool throws = true;
    Request request(prompt, 20);
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.mask = Mask::from([&](MaskRows rows) {
        if (throws)
            throw Oops("no grammar");
        for (MaskRow row : rows) {
            const auto place = static_cast<std::int32_t>(row.answer().size() +
                                                         row.proposed().size());
            CHECK(copied(row.prompt()) == prompt && row.tokens().size() >= prompt.size());
            CHECK(row.allows(20 + place) && !row.allows(-1) && !row.allows(1 << 30));
            row.forbid(99);
            row.allow_only(std::array<std::int32_t, 3>{20 + place, 99, 1 << 30});
            CHECK(row.n_words() > 3 && (row.words()[0] & 1) == 0);
        }
    });
    const std::weak_ptr<Mask> alive = request.mask;
    pool.submit(request);
    Request free_of_it(prompt, 1);
    pool.submit(free_of_it);
    request = free_of_it;
    CHECK(!alive.expired()); // the pool has it
    THROWS_TEXT("no grammar", pool.run());
    throws = false;
    pool.run();
    std::vector<std::int32_t> want;
    for (std::int32_t id = 20; id < 40; id++)
        want.push_back(id);
    for (const Result &result : pool.results_now()) { // the shorter one, which has no mask, first
        CHECK(alive.expired() == (result.id() == 1));
        if (result.id() == 1)
            CHECK(copied(result.tokens()) == want);
    }
    CHECK(alive.expired());

    request.mask = Mask::from([](MaskRows) {});
    request.answers.emplace(2, 3);
    const std::weak_ptr<Mask> shared = request.mask;
    pool.submit(request);
    request.mask.reset();
    pool.run();
    pool.collect();
    CHECK(!shared.expired()); // the second answer is not collected
    pool.collect();
    CHECK(shared.expired());
    request.max_new = -1;
    request.mask = Mask::from([](MaskRows) {});
    THROWS(SPECBATCH_E_INVALID, pool.submit(request));
    CHECK(request.mask.use_count() == 1);
}

/* ------------------------------------------- progress, log, memory; lifetimes */

void exceptions_come_out_of_whatever_ran_the_callback()
{
    ModelOptions options;
    options.progress = [](std::uint64_t, std::uint64_t) -> bool { throw Oops("no progress"); };
    THROWS_TEXT("no progress", Model(target_path, options));
    options.progress = [](std::uint64_t, std::uint64_t) { return false; };
    THROWS(SPECBATCH_E_CANCELLED, Model(target_path, options));
    std::uint64_t all = 0;
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
        CHECK(done <= total);
        all = total;
        return true;
    };
    const Model target(target_path, options);
    CHECK(all > 0);

    // An allocation that throws is one that fails: the object is as before.
    const Counted counted;
    bool throws = false;
    PoolOptions with = small_pool();
    counted.put_into(with);
    with.alloc = [&, alloc = with.alloc](std::size_t size, std::size_t align) {
        if (throws)
            throw std::bad_alloc();
        return alloc(size, align);
    };
    Pool pool(target, with);
    throws = true;
    THROWS_TEXT(std::bad_alloc().what(), pool.submit(Request(prompt, 5)));
    THROWS_TEXT(std::bad_alloc().what(), Pool(target, with));
    throws = false;
    CHECK(pool.submit(Request({5, 17, 300}, 5)) == 1);
    CHECK(pool.step() == 1);

    // Freeing that throws is below a destructor, which drops it.
    bool loud = false;
    int freed = 0;
    {
        ModelOptions freeing;
        freeing.alloc = [](std::size_t size, std::size_t align) {
            return std::aligned_alloc(align, (size + align - 1) / align * align);
        };
        freeing.free = [&](void *block, std::size_t) {
            std::free(block);
            freed += loud;
            if (loud)
                throw Oops("freed");
        };
        const Model model(target_path, freeing);
        loud = true;
    }
    CHECK(freed > 0);

    // Of several exceptions the first comes out.
    ModelOptions both;
    bool loading = false;
    both.alloc = [](std::size_t size, std::size_t align) {
        return std::aligned_alloc(align, (size + align - 1) / align * align);
    };
    both.free = [&](void *block, std::size_t) {
        std::free(block);
        freed += loading;
        if (loading)
            throw Oops("freed");
    };
    both.progress = [&](std::uint64_t, std::uint64_t) -> bool {
        loading = true;
        throw Oops("loaded");
    };
    freed = 0;
    THROWS_TEXT("loaded", Model(target_path, both));
    CHECK(freed > 0);
}

// A log function that throws stops nothing, so the file is there.
void a_log_that_throws_does_not_stop_the_work()
{
    const std::string folder = std::getenv("WITHOUT_EOS") ? std::getenv("WITHOUT_EOS") : "";
    ModelOptions options;
    int lines = 0;
    options.log = [&](std::int32_t level, std::string_view line) {
        CHECK(level == SPECBATCH_LOG_WARN && line.find("eos_token_id") != line.npos);
        lines++;
        throw Oops("no log");
    };
    THROWS_TEXT("no log", Model(folder, options));
    THROWS_TEXT("no log", convert(folder + "/made.gguf", folder, options));
    CHECK(lines == 2);
    CHECK(Model(folder + "/made.gguf").vocab_size() > 0);
}

void objects_are_destroyed_in_any_order()
{
    // Each order in which model, draft, pool, result and stream can go.
    std::array<int, 5> order = {0, 1, 2, 3, 4};
    do {
        const Counted of_model, of_pool;
        {
            ModelOptions options;
            of_model.put_into(options);
            PoolOptions pool_options = small_pool();
            of_pool.put_into(pool_options);
            pool_options.n_threads = 1;
            std::optional<Model> model(std::in_place, text_path, options);
            std::optional<Draft> draft(Draft::from_model(*model));
            std::optional<Pool> pool(std::in_place, *model, *draft, pool_options);
            std::optional<TextStream> stream(std::in_place, *model);
            pool->submit(Request("smile", 2));
            pool->submit(Request("flag", 2));
            pool->run();
            std::optional<Result> result(pool->collect());
            options = {};
            pool_options = {};
            for (int which : order) {
                switch (which) {
                case 0:
                    model.reset();
                    break;
                case 1:
                    draft.reset();
                    break;
                case 2:
                    pool.reset();
                    break;
                case 3:
                    CHECK(result->tokens().size() == 2);
                    result.reset();
                    break;
                default:
                    stream->push(1);
                    stream.reset();
                }
            }
            CHECK(*of_model.blocks == 0 && *of_pool.blocks == 0);
        }
        CHECK(of_model.all_is_given_back() && of_pool.all_is_given_back());
    } while (std::next_permutation(order.begin(), order.end()));
}

template <typename T>
constexpr bool is_moved_only = std::is_nothrow_move_constructible_v<T>
                                   &&std::is_nothrow_move_assignable_v<T> &&
                               !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(is_moved_only<Model> && is_moved_only<Draft> && is_moved_only<Result>);
static_assert(is_moved_only<TextStream> && std::is_move_assignable_v<Pool> &&
              !std::is_copy_constructible_v<Pool>);

/* Whether a range may be made of a P: of a pool that has a name, and of no other. */
template <typename P, typename = void>
constexpr bool has_events = false;
template <typename P>
constexpr bool has_events<P, std::void_t<decltype(std::declval<P>().events())>> = true;
template <typename P, typename = void>
constexpr bool has_results = false;
template <typename P>
constexpr bool has_results<P, std::void_t<decltype(std::declval<P>().results())>> = true;
template <typename P, typename = void>
constexpr bool has_events_now = false;
template <typename P>
constexpr bool has_events_now<P, std::void_t<decltype(std::declval<P>().events_now())>> = true;
template <typename P, typename = void>
constexpr bool has_results_now = false;
template <typename P>
constexpr bool has_results_now<P, std::void_t<decltype(std::declval<P>().results_now())>> = true;
static_assert(has_events<Pool &> && !has_events<Pool>);
static_assert(has_results<Pool &> && !has_results<Pool>);
static_assert(has_events_now<Pool &> && !has_events_now<Pool>);
static_assert(has_results_now<Pool &> && !has_results_now<Pool>);
#if __cplusplus >= 202002L
static_assert(std::ranges::input_range<Pool::Feed<Event>>);
static_assert(std::is_convertible_v<View<float>, std::span<const float>>);
static_assert(std::is_convertible_v<std::span<const float>, View<float>>);
#endif

void objects_move_and_leave_empty_ones()
{
    const Counted counted;
    {
        ModelOptions options;
        counted.put_into(options);
        Model model(text_path, options), other(target_path);
        PoolOptions pool_options = small_pool();
        counted.put_into(pool_options);
        Pool pool(model, pool_options);
        Pool moved = std::move(pool);
        THROWS(SPECBATCH_E_INVALID, pool.submit(Request("smile", 2)));
        THROWS(SPECBATCH_E_INVALID, pool.step());
        THROWS(SPECBATCH_E_INVALID, pool.collect());
        pool.interrupt();
        moved.submit(Request("smile", 2));
        moved.run();
        Result result = moved.collect().value(), none;
        pool = Pool(other);      // into the empty one
        moved = std::move(pool); // over a pool, whose result stays
        CHECK(result.tokens().size() == 2);
        none = std::move(result);
        CHECK(none.tokens().size() == 2 && result.tokens().empty() && result.text().empty());
        CHECK(result.fingerprint().empty() && result.id() == 0 && result.top().ids(3).empty());
        Model shared = model.share();
        model = std::move(other); // the memory functions are still `shared`'s
        CHECK(shared.tokenize("smile").size() > 0 && other.get() == nullptr);
        CHECK(other.vocab_size() == 0 && other.arch().empty() && other.eos().empty());
        THROWS(SPECBATCH_E_INVALID, Pool(other, small_pool()));
        THROWS(SPECBATCH_E_INVALID, other.tokenize("smile"));
        std::optional<Model> gone(std::in_place, text_path, options);
        const long holders = counted.blocks.use_count();
        const Model heir = gone->share();
        gone.reset();
        CHECK(counted.blocks.use_count() == holders && heir.tokenize("smile").size() > 0);
        Draft draft = Draft::from_ngrams(), twin = draft.share();
        draft = std::move(twin);
        CHECK(draft.get() && !twin.get());
    }
    CHECK(counted.all_is_given_back());
}

const struct {
    const char *name;
    void (*run)();
} tests[] = {
#define TEST(name)  \
    {               \
#name, name \
    }
    TEST(results_are_those_of_c),
    TEST(prompts_are_scored_and_tables_propose),
    TEST(every_field_of_a_request_arrives),
    TEST(models_and_text_are_those_of_c),
    TEST(events_bring_every_text_and_run_what_is_submitted_meanwhile),
    TEST(pools_do_what_the_c_functions_do),
    TEST(a_class_proposes_and_its_exceptions_come_back),
    TEST(functions_propose_and_lists_ask_in_turn),
    TEST(masks_allow_and_their_exceptions_come_back),
    TEST(exceptions_come_out_of_whatever_ran_the_callback),
    TEST(a_log_that_throws_does_not_stop_the_work),
    TEST(objects_are_destroyed_in_any_order),
    TEST(objects_move_and_leave_empty_ones),
};

} // namespace

int main()
{
    for (const auto &test : tests) {
        failed = false;
        try {
            test.run();
        } catch (const std::exception &e) {
            check_that(false, e.what(), 0);
        }
        std::printf("%s cplusplus_%s\n", failed ? "FAIL" : "ok  ", test.name);
        failures += failed;
    }
    return failures != 0;
}

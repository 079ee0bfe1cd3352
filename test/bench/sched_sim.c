/*
 * The scheduler at scale: the real pool and policies run over a backend that computes nothing
 * (support/null_backend.h), with up to B = 4096 rows and 100,000 requests.
 *
 *   sched_sim [--quick] [FILE.csv]        --quick: to B = 64 only
 *
 * Some results are simulated: how many rows are in groups, what is realigned, the speed-up over
 * plain decoding at the same B, and how long requests queue. The cost model is that of Qwen3-8B
 * with a 0.6B draft in bf16 on a device that is bound by memory up to 156 tokens a pass, the ratio
 * of an A100. It leaves out what attention reads, and each proposal is right independently of the
 * others.
 *
 *      time        1 is one read of the target's 16.4 GB
 *      c_verify    1 a target pass                     times max(1, tokens / 156)
 *      c_draft     0.073 a draft pass (1.2 GB)         times max(1, tokens / 156)
 *      c_realign   2 / 16.4e9 a byte, which is read and written
 *      a column    147,456 bytes of the target's cache, 114,688 of the draft's
 *      acceptance  0.8 a proposal, K = 5
 *
 * Every policy gets its requests twice: with the queue kept full, which finds the rate that the
 * policy can carry, and then as a Poisson process of 0.9 of that rate. Prompts have mixed lengths;
 * exspec runs with prompts of one length too. Lengths, arrivals and acceptance are drawn from
 * separate random streams, so that at a batch size every policy has the same requests.
 *
 * Other results are real: how long the scheduling of a round takes on this machine. That is the
 * time of a whole step (admission, choosing rows and chunks, planning realignment, committing,
 * retiring) less what drafting and verifying report. What those report is the time of building the
 * passes, which is shown beside it, as is the time that submitting and collecting a request takes.
 * Rounds during which another program took the processor are left out. "adaptive" is ragged with
 * adaptive K, and is there for these times alone: adaptive K goes by the real clock, on which
 * passes that compute nothing take no time.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "port.h"
#include "pool/pool.h"
#include "specbatch.h"
#include "support/drafts.h"
#include "support/null_backend.h"

enum {
    DRAFT_LEN = 5,
    MIN_PROMPT = 16,
    MAX_PROMPT = 112,
    MIN_NEW = 16,
    MAX_NEW = 256,
    MAX_REQUESTS = 100000
};

static const struct null_costs costs = {.c_verify = 1.0,
                                        .c_draft = 0.073,
                                        .ridge = 156.0,
                                        .c_realign = 2.0 / 16.4e9,
                                        .target_column = 147456.0,
                                        .draft_column = 114688.0,
                                        .acceptance = 0.8};

struct sim {
    struct null_clock clock;
    struct specbatch_model target, draft;
    specbatch_pool *pool;
    struct load {
        int32_t policy, batch;
        uint32_t flags;   /* of the pool */
        const char *name; /* in the CSV file; NULL: the policy's name */
        int32_t equal;    /* 1: all prompts have the same length */
        double rate;      /* requests that arrive in a unit of time; 0: the queue is kept full */
    } load;
    int32_t n_requests, n_submitted, n_admitted;
    uint64_t lengths, arrivals; /* states of random streams */
    double next_arrival;
    double *arrived, *waited; /* [n_requests] */
    double latency;           /* sum over requests, from arrival to collection */
    double queued;            /* requests in the queue, integrated over time */
    double *sched_us, *build_us;
    size_t n_times, capacity;
    uint64_t event_ns;
};

static void need(int32_t rc)
{
    if (rc != SPECBATCH_OK) {
        fprintf(stderr, "sched_sim: %s\n", specbatch_last_error());
        exit(1);
    }
}

static void *memory(void *block, size_t bytes)
{
    if ((block = realloc(block, bytes)) == NULL) {
        fprintf(stderr, "sched_sim: out of memory\n");
        exit(1);
    }
    return block;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, size_t n, double q)
{
    qsort(values, n, sizeof *values, compare);
    return n ? values[(size_t)(q * (double)(n - 1))] : 0.0;
}

static double stat(const struct sim *sim, const char *name)
{
    uint64_t value;

    need(specbatch_pool_stat(sim->pool, name, &value));
    return (double)value;
}

static long preempted(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

static void open_pool(struct sim *sim)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    const int32_t chunk = 16 * sim->load.batch;

    options.policy = sim->load.policy;
    options.batch = sim->load.batch;
    options.draft_len = DRAFT_LEN;
    options.flags = sim->load.flags;
    options.max_len = MAX_PROMPT + MAX_NEW;
    options.prefill_chunk = chunk < 128 ? 128 : chunk > 8192 ? 8192 : chunk;
    options.n_threads = 1;
    options.queue_max = MAX_REQUESTS;
    options.cache_columns = UINT64_MAX; /* so that exspec's window always is as large as it says */
    need(create_with_model(&sim->pool, &sim->target, &sim->draft, &options));
}

static int32_t between(struct sim *sim, int32_t low, int32_t high)
{
    return low + (int32_t)(null_uniform(&sim->lengths) * (double)(high - low + 1));
}

static void submit(struct sim *sim, double when)
{
    static const int32_t zeros[MAX_PROMPT];
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    const int32_t n_prompt = between(sim, MIN_PROMPT, MAX_PROMPT);

    request.ids = zeros;
    request.n_ids = (size_t)(sim->load.equal ? (MIN_PROMPT + MAX_PROMPT) / 2 : n_prompt);
    request.max_new = between(sim, MIN_NEW, MAX_NEW);
    sim->arrived[sim->n_submitted++] = when;
    need(specbatch_pool_submit(sim->pool, &request, NULL));
}

/* Submits the requests that have arrived by now. When the pool has nothing to do, the clock is set
 * to the arrival of the next one. */
static void arrive(struct sim *sim)
{
    const uint64_t began = sb_port_now_ns();
    const size_t full = 2 * (size_t)sim->pool->sched.limits.n_slots;

    if (sim->load.rate == 0.0)
        while (sim->n_submitted < sim->n_requests && sim->pool->queue.n < full)
            submit(sim, sim->clock.now);
    if (sim->load.rate > 0.0 && sim->pool->n_active == 0 && sim->clock.now < sim->next_arrival)
        sim->clock.now = sim->next_arrival;
    while (sim->load.rate > 0.0 && sim->n_submitted < sim->n_requests &&
           sim->next_arrival <= sim->clock.now) {
        submit(sim, sim->next_arrival);
        sim->next_arrival -= log(1.0 - null_uniform(&sim->arrivals)) / sim->load.rate;
    }
    sim->event_ns += sb_port_now_ns() - began;
}

static int32_t collect(struct sim *sim)
{
    const uint64_t began = sb_port_now_ns();
    specbatch_result *result;
    int32_t n = 0;

    for (; specbatch_pool_collect(sim->pool, &result) == SPECBATCH_OK; n++) {
        sim->latency += sim->clock.now - sim->arrived[specbatch_result_id(result) - 1];
        specbatch_result_free(result);
    }
    sim->event_ns += sb_port_now_ns() - began;
    return n;
}

static void keep_times(struct sim *sim, double sched_us, double build_us)
{
    if (sim->n_times == sim->capacity) {
        sim->capacity = sim->capacity ? 2 * sim->capacity : 1024;
        sim->sched_us = memory(sim->sched_us, sim->capacity * sizeof *sim->sched_us);
        sim->build_us = memory(sim->build_us, sim->capacity * sizeof *sim->build_us);
    }
    sim->build_us[sim->n_times] = build_us;
    sim->sched_us[sim->n_times++] = sched_us;
}

static void step(struct sim *sim)
{
    const double built = stat(sim, "draft_ns") + stat(sim, "verify_ns"), clock = sim->clock.now;
    const long switches = preempted();
    const uint64_t began = sb_port_now_ns();
    double us, build_us;

    need(specbatch_pool_step(sim->pool, NULL));
    us = (double)(sb_port_now_ns() - began) * 1e-3;
    build_us = (stat(sim, "draft_ns") + stat(sim, "verify_ns") - built) * 1e-3;
    sim->queued += (double)sim->pool->queue.n * (sim->clock.now - clock);
    /* The queue is in order of arrival, so the requests that have left it are the next ones. */
    for (; sim->n_admitted < sim->n_submitted - (int32_t)sim->pool->queue.n; sim->n_admitted++)
        sim->waited[sim->n_admitted] = clock - sim->arrived[sim->n_admitted];
    if (preempted() == switches)
        keep_times(sim, us - build_us, build_us);
}

static void write_line(FILE *csv, struct sim *sim, double plain)
{
    const double rounds = stat(sim, "rounds"), decode = stat(sim, "decode_rounds"),
                 rows = stat(sim, "decode_rows");
    const double per_time = sim->n_requests / sim->clock.now;
    const size_t n = (size_t)sim->n_requests;

    fprintf(csv, "%s,%" PRId32 ",%" PRId32 ",%s,%s,%" PRId32 ",%.0f,%.2f",
            sim->load.name ? sim->load.name : specbatch_policy_name(sim->load.policy),
            sim->load.batch, sim->pool->sched.limits.n_slots, sim->load.equal ? "equal" : "mixed",
            sim->load.rate > 0.0 ? "0.9" : "full", sim->n_requests, rounds, rows / decode);
    fprintf(csv, ",%.6f,%.6f,%.4f,%.2f,%.2f,%.3f", stat(sim, "group_rounds") / decode,
            stat(sim, "group_rows") / rows, sim->clock.moved * costs.c_realign / sim->clock.now,
            stat(sim, "realigned_rows") / rounds, 1e-6 * sim->clock.moved / rounds,
            plain > 0.0 ? per_time / plain : 1.0);
    fprintf(csv, ",%.1f,%.2f,%.2f,%.1f", sim->queued / sim->clock.now,
            quantile(sim->waited, n, 0.5), quantile(sim->waited, n, 0.99),
            sim->latency / sim->n_requests);
    fprintf(csv, ",%.1f,%.1f,%.1f,%.1f,%.2f\n", quantile(sim->sched_us, sim->n_times, 0.5),
            quantile(sim->sched_us, sim->n_times, 0.99), quantile(sim->build_us, sim->n_times, 0.5),
            quantile(sim->build_us, sim->n_times, 0.99),
            1e-3 * (double)sim->event_ns / sim->n_requests);
    fflush(csv);
}

/* Runs all requests, writes a line and returns how many requests were served in a unit of time.
 * `plain`: what plain decoding served, or 0 where that is not known yet. */
static double simulate(FILE *csv, const struct load *load, double plain)
{
    struct sim sim = {.clock = {costs, 0.0, 0.0, 1}, .load = *load, .lengths = 2, .arrivals = 3};
    const int32_t wanted = 40 * load->batch;

    sim.n_requests = wanted < 1000 ? 1000 : wanted > MAX_REQUESTS ? MAX_REQUESTS : wanted;
    sim.arrived = memory(NULL, (size_t)sim.n_requests * sizeof *sim.arrived);
    sim.waited = memory(NULL, (size_t)sim.n_requests * sizeof *sim.waited);
    null_model(&sim.target, &sim.clock, MAX_PROMPT + MAX_NEW);
    null_model(&sim.draft, &sim.clock, MAX_PROMPT + MAX_NEW);
    open_pool(&sim);
    for (int32_t n_done = 0; n_done < sim.n_requests; n_done += collect(&sim)) {
        arrive(&sim);
        step(&sim);
    }
    write_line(csv, &sim, plain);
    specbatch_pool_free(sim.pool);
    free(sim.arrived);
    free(sim.waited);
    free(sim.sched_us);
    free(sim.build_us);
    return sim.n_requests / sim.clock.now;
}

/* Runs every policy at one batch size. Plain comes first, since the others are compared with it. */
static void compare_policies(FILE *csv, int32_t batch)
{
    enum { FIXED = SPECBATCH_POOL_FIXED_K };
    const struct load loads[] = {{.policy = SPECBATCH_POLICY_PLAIN, .flags = FIXED},
                                 {.policy = SPECBATCH_POLICY_EQSPEC, .flags = FIXED},
                                 {.policy = SPECBATCH_POLICY_EQSPEC,
                                  .flags = FIXED | SPECBATCH_POOL_EQSPEC_REPLACE,
                                  .name = "eqspec-replace"},
                                 {.policy = SPECBATCH_POLICY_EXSPEC, .flags = FIXED},
                                 {.policy = SPECBATCH_POLICY_RAGGED, .flags = FIXED}};
    double plain = 0.0;

    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        struct load load = loads[i];
        double full;
        load.batch = batch;
        full = simulate(csv, &load, plain);
        plain = i == 0 ? full : plain;
        load.rate = 0.9 * full;
        simulate(csv, &load, plain);
    }
    simulate(csv,
             &(struct load){
                 .policy = SPECBATCH_POLICY_EXSPEC, .batch = batch, .equal = 1, .flags = FIXED},
             plain);
    simulate(csv,
             &(struct load){.policy = SPECBATCH_POLICY_RAGGED, .batch = batch, .name = "adaptive"},
             plain);
}

int main(int argc, char **argv)
{
    static const int32_t batches[] = {1, 2, 4, 8, 16, 32, 64, 512, 4096};
    const int quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    FILE *csv = argc > 1 + quick ? fopen(argv[1 + quick], "w") : stdout;

    if (!csv) {
        fprintf(stderr, "sched_sim: %s: cannot write\n", argv[1 + quick]);
        return 1;
    }
    fprintf(csv, "policy,batch,window,prompts,load,requests,rounds,rows,group_rounds,group_rows,"
                 "realign_share,"
                 "realigned_rows,realign_mb,speedup,queue,wait_p50,wait_p99,latency,sched_us,sched_"
                 "p99_us,build_us,"
                 "build_p99_us,event_us\n");
    for (size_t i = 0; i < sizeof batches / sizeof *batches && (!quick || batches[i] <= 64); i++)
        compare_policies(csv, batches[i]);
    return csv != stdout && fclose(csv) != 0;
}

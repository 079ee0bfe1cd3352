# Measurements: the benches, the paper's evaluation, and other systems beside this library.
# test/rules.mk includes this file.
#
## Measurements
#   make bench BENCH_TARGET=DIR BENCH_DRAFT=DIR
#                                   measure these checkpoints instead of two with random weights
#   make bench-memory MEMORY_ARGS="--part speed --rounds 15"
#                                   one part of it (test/bench/bench_memory --help)
#   make bench-gaps GAPS_ARGS="--model DIR --chunks 128,32"
#                                   others (test/bench/bench_gaps --help)
#   make perplexity MODEL=PATH TEXT=FILE PERPLEXITY_ARGS="--weights q4"
#                                   others (test/bench/bench_perplexity --help)
#   make paper QUICK=1              try the programs and the report in build/paper-quick
#   make paper FULL=1               with all 480 prompts, where ../shared has them
#   make paper CAPTIONS=FILE        with the sentences of Figure 5c (test/data/prompts/README.md)
#   make peers PAPER_CODE=DIR       with a checkout of eBay/spec_dec, the paper's own code
#   make peers PEERS_ARGS="--limit 24 --max-new 64 --batches 1,8"
#                                   a smaller job (test/bench/peers/peers.py --help)
#   make peers-speed PEERS_4B=1     also Qwen3-4B's shapes (8 GB, and as much for each peer's form)
#   make peers-speed SPEED_ARGS="--systems ours:auto,llama.cpp:stored --rounds 5"
#                                   others, in other classes (test/bench/peers/speed.py --help)
BENCHES       := $(patsubst %.c,$(B)/%,$(sort $(wildcard test/bench/*.c)))
BENCH_SUPPORT := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard test/bench/support/*.c)))

# Benches run prompts through the examples' support; one of them is of the library with faults.
COMPILE_BENCH = $(COMPILE_TEST) -Itest/bench
$(B)/test/bench/support/%.o: test/bench/support/%.c $(B)/flags
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(COMPILE_BENCH) -c $< -o $@
$(B)/bench.a: $(BENCH_SUPPORT) $(EXAMPLE_SUPPORT)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/test/bench/%: test/bench/%.c $(B)/bench.a $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE_BENCH) $< $(B)/bench.a $(B)/internal.a $(LDFLAGS) $(LIBRARIES) -o $@
$(B)/test/bench/paper_faults: test/bench/paper_faults.c $(B)/bench.a $(B)/faults.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE_BENCH) -DSB_FAULTS $< $(B)/bench.a $(B)/faults.a $(LDFLAGS) $(LIBRARIES) -o $@

# Checkpoints of random weights: one of Qwen3-0.6B's shapes (1.2 GB), and a small draft for it.
BENCH_TARGET ?= build/bench/target
BENCH_DRAFT  ?= build/bench/draft
build/bench/target: | $(B)/test/bench/make_checkpoint
	$(Q)mkdir -p $(@D) && $| $@ --arch qwen3 --hidden 1024 --inter 3072 --layers 28 --heads 16 \
	    --kv-heads 8 --head-dim 128 --vocab 151936 --context 2048 --tied --dtype bf16
build/bench/draft: | $(B)/test/bench/make_checkpoint
	$(Q)mkdir -p $(@D) && $| $@ --arch qwen3 --hidden 256 --inter 768 --layers 4 --heads 4 \
	    --kv-heads 2 --head-dim 64 --vocab 151936 --context 2048 --tied --dtype bf16
build/bench/qwen3-4b: | $(B)/test/bench/make_checkpoint
	$(Q)mkdir -p $(@D) && $| $@ --arch qwen3 --hidden 2560 --inter 9728 --layers 36 --heads 32 \
	    --kv-heads 8 --head-dim 128 --vocab 151936 --context 2048 --tied --dtype bf16

# Of this one bench_memory reads config.json alone, so the 16 GB of holes beside it are removed.
build/bench/qwen3-8b: | $(B)/test/bench/make_checkpoint
	$(Q)mkdir -p $(@D) && $| $@ --arch qwen3 --hidden 4096 --inter 12288 --layers 36 --heads 32 \
	    --kv-heads 8 --head-dim 128 --vocab 151936 --context 4096 --dtype bf16 --sparse && \
	    rm $@/model.safetensors

QUICK_ARG      := $(if $(QUICK),--quick)
PAPER_DIR      := build/paper$(if $(QUICK),-quick)
PAPER_PROMPTS  := $(if $(FULL),../shared/data/prompts/spec_bench.jsonl,$(strip \
                  test/data/prompts/spec_bench_60.jsonl))
CAPTIONS       ?= $(wildcard ../shared/data/prompts/multi30k_test2016.txt)
PAPER_ARGS      = --out $(PAPER_DIR) --prompts $(PAPER_PROMPTS) $(QUICK_ARG)
# What AUTO chooses differs between machines, so F32 is measured first, and these two beside it.
PAPER_CLASSES  := auto bf16
PAPER_PROGRAMS := $(addprefix $(B)/test/bench/,sched_sim paper_faults paper pairs make_checkpoint)
PEERS_VENV     := build/peers-venv
MEMORY_MODELS   = $(BENCH_TARGET) $(BENCH_DRAFT) build/bench/qwen3-8b
MODEL          ?= examples/demo/target
TEXT           ?= ../shared/models/demo/validation.txt
# The shell looks, since setup-peers may have been made just before.
PEERS_PYTHON   := $$(ls $(PEERS_VENV)/bin/python 2>/dev/null || echo '$(PYTHON)')
SPEED_4B       := $(if $(PEERS_4B),build/bench/qwen3-4b)
SPEED_MODELS    = qwen3-0.6b=$(BENCH_TARGET)$(addprefix $(comma)qwen3-4b=,$(SPEED_4B))
# With `make setup-paper paper` the one waits for the other; so with the peers.
SETUP_FIRST    := $(filter setup-paper setup-peers,$(MAKECMDGOALS))

.PHONY: bench bench-gaps bench-memory perplexity paper paper-report setup-paper
.PHONY: peers peers-speed setup-peers
bench: $(BENCHES) $(BENCH_TARGET) $(BENCH_DRAFT) ## build and run the benches (minutes)
	$(Q)$(B)/test/bench/bench_kernels
	$(Q)$(B)/test/bench/bench_tokenizer
	$(Q)$(B)/test/bench/bench_speculation --target $(BENCH_TARGET) --draft $(BENCH_DRAFT)
bench-memory: $(B)/test/bench/bench_memory $(MEMORY_MODELS) ## what takes memory (minutes, 12 GB)
	$(Q)$(B)/test/bench/bench_memory --target $(BENCH_TARGET) --draft $(BENCH_DRAFT) $(MEMORY_ARGS)
bench-gaps: $(B)/test/bench/bench_gaps ## how long rows wait while long prompts arrive
	$(Q)$< $(GAPS_ARGS)
perplexity: $(B)/test/bench/bench_perplexity ## how well MODEL=PATH predicts TEXT=FILE
	$(Q)$< --model $(MODEL) --text $(TEXT) $(PERPLEXITY_ARGS)
paper: $(PAPER_PROGRAMS) | $(SETUP_FIRST) ## the paper's tables and figures, into docs/results.md
	@command -v gnuplot >/dev/null || \
	    { echo "paper: gnuplot is missing; make setup-paper installs it"; exit 1; }
	$(Q)mkdir -p $(PAPER_DIR) && \
	    rm -rf $(filter-out $(PAPER_DIR)/peers%,$(wildcard $(PAPER_DIR)/*))
	@echo 'make paper$(if $(FULL), FULL=1)$(if $(QUICK), QUICK=1)' >$(PAPER_DIR)/command.txt
	$(Q)$(B)/test/bench/sched_sim $(QUICK_ARG) $(PAPER_DIR)/sched.csv
	$(Q)$(B)/test/bench/paper_faults $(PAPER_ARGS)
	$(Q)$(B)/test/bench/paper $(PAPER_ARGS) $(if $(CAPTIONS),--captions $(CAPTIONS))
	$(Q)for class in $(PAPER_CLASSES); do mkdir -p $(PAPER_DIR)/$$class && \
	    $(B)/test/bench/paper $(PAPER_ARGS) --out $(PAPER_DIR)/$$class --compute $$class \
	        --part grid || exit 1; done
	$(Q)sh test/bench/pairs.sh $(B)/test/bench --out $(PAPER_DIR) $(QUICK_ARG)
	$(Q)$(report)
# The CSV files that are there are drawn and reported once more. A quick run leaves docs/ alone.
report = sh test/bench/paper/draw.sh $(PAPER_DIR) && \
         sh test/bench/paper/report.sh $(PAPER_DIR) >$(PAPER_DIR)/results.md$(if $(QUICK),, && \
         mkdir -p docs/figures && cp $(PAPER_DIR)/results.md docs/ && \
         for f in $$(sed -n 's|.*(figures/\(.*\)\.svg).*|\1|p' docs/results.md); do \
             cp $(PAPER_DIR)/$$f.svg docs/figures/; done)
paper-report:           ## draw and write the report again, from the measurements that are there
	$(Q)$(report)
setup-paper:            ## install gnuplot, which draws the figures (apt-get)
	@sh test/bench/paper/setup_paper.sh
peers: $(B)/examples/generate peers-speed | $(SETUP_FIRST) ## others beside this library (minutes)
	$(Q)mkdir -p $(PAPER_DIR)
	$(Q)$(PEERS_PYTHON) test/bench/peers/peers.py --build $(B) --out $(PAPER_DIR) $(QUICK_ARG) \
	    $(if $(PAPER_CODE),--paper-code $(PAPER_CODE)) $(PEERS_ARGS); status=$$?; \
	if [ -e $(PAPER_DIR)/machine.txt ]; then $(report); \
	else echo "peers: $(PAPER_DIR)/peers.csv is written; make paper makes a report of it"; fi; \
	exit $$status
peers-speed: $(SHARED) $(BENCH_TARGET) $(BENCH_DRAFT) $(SPEED_4B) | $(SETUP_FIRST) ## speed only
	$(Q)mkdir -p $(PAPER_DIR)
	$(Q)$(PEERS_PYTHON) test/bench/peers/speed.py --build $(B) --out $(PAPER_DIR) $(QUICK_ARG) \
	    --models $(SPEED_MODELS) --draft $(BENCH_DRAFT) $(SPEED_ARGS)
setup-peers:            ## install these systems into build/peers-venv (pip; gigabytes)
	@PYTHON='$(PYTHON)' sh test/bench/peers/setup_peers.sh $(PEERS_VENV)

include test/bench/gpu_time/rules.mk

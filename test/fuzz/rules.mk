# Whatever reads a file or a caller's struct, and sequences of calls, on any bytes. test/rules.mk
# includes this file. test/fuzz/fuzz_NAME.c becomes one of two programs. That of `make check` has a
# main() that replays files, and runs on test/fuzz/corpus/NAME. That of `make fuzz` is linked with
# clang's libFuzzer, in build/fuzz: test/fuzz/run_fuzz.sh sets FUZZER for it.
#
## Fuzzing
#   make fuzz MINUTES=60 TARGETS="api config"
#                                   these targets, an hour each
MINUTES        ?= 10
FUZZ_TARGETS   := $(patsubst test/fuzz/fuzz_%.c,%,$(sort $(wildcard test/fuzz/fuzz_*.c)))
FUZZ_PROGRAMS  := $(FUZZ_TARGETS:%=$(B)/test/fuzz/%)
FUZZ_SOURCES   := $(sort $(wildcard test/fuzz/support/*.c))
FUZZ_SUPPORT   := $(patsubst %.c,$(B)/%.o,$(filter-out $(if $(FUZZER),%/replay_corpus.c), \
                  $(FUZZ_SOURCES)))
# The comparisons in kernels are of loop counters. libFuzzer learns nothing from them, and calls
# would take twice as long.
ifneq ($(FUZZER),)
$(B)/kernels/%: override CFLAGS := $(filter-out -fsanitize=fuzzer-no-link,$(CFLAGS))
endif

$(B)/test/fuzz/support/%.o: test/fuzz/support/%.c $(B)/flags
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(COMPILE_TEST) -c $< -o $@
# What the examples read is their support's, which reads JSON by yajl.
$(B)/test/fuzz/prompts: FUZZED = $(B)/examples.a
$(B)/test/fuzz/prompts: $(B)/examples.a
# The objects come first, so that exact_alloc.o takes the place of the archive's allocator.
$(FUZZ_PROGRAMS): $(B)/test/fuzz/%: test/fuzz/fuzz_%.c $(FUZZ_SUPPORT) $(B)/internal.a
	@mkdir -p $(@D); echo "  FUZZ $<"
	$(Q)$(COMPILE_TEST) $< $(FUZZ_SUPPORT) $(FUZZED) $(B)/internal.a \
	    $(if $(FUZZER),-fsanitize=fuzzer) $(LDFLAGS) $(LIBRARIES) -o $@

.PHONY: fuzz
fuzz:                       ## look for inputs that break it, ten minutes for each target
	$(Q)$(FOR_SCRIPTS) TARGETS='$(or $(TARGETS),$(FUZZ_TARGETS))' \
	    sh test/fuzz/run_fuzz.sh '$(MINUTES)'

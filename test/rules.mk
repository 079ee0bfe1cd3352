# How the tests of the library are built and run. The Makefile includes this file, which includes
# those of the test folders that hold more than one program for each test_*.c.
#
## Tests
#   make check TESTS=sched          run only the tests in test/sched
#   make check TESTS="test_stream check_abi"
#                                   run only this program and this script
#   make check JOBS=1               run one test at a time, not one for each processor
#   make check RELEASE=1            with the parts of scripts that take long
#
# A test is a program test/FOLDER/test_NAME.c or a script test/FOLDER/check_NAME.sh. A new program
# in one of these folders, and a new script in any folder, are run without a change here.
PROGRAM_FOLDERS := ground text model cpu sched api contract
TEST_PROGRAMS   := $(patsubst %.c,$(B)/%,$(sort $(wildcard $(PROGRAM_FOLDERS:%=test/%/test_*.c))))
TEST_SUPPORT    := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard test/support/*.c)))

# Tests link the library's objects instead of the library, so that they reach what it hides.
COMPILE_TEST = $(COMPILE) $(LIBRARY_FLAGS) -I. -Itest $(USER_FLAGS) $(EXACT_FLAGS)
$(B)/test/support/%.o: test/support/%.c $(B)/flags
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(COMPILE_TEST) -c $< -o $@
$(B)/internal.a: $(OBJECTS) $(TEST_SUPPORT)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/test/%: test/%.c $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE_TEST) $< $(B)/internal.a $(LDFLAGS) $(LIBRARIES) -o $@

# This is the library a second time, with the deliberate faults of src/fault.h compiled in: only
# the sources that have one are compiled again. Those of the kernels are in headers, which those
# named here include. They are run too briefly for more than -O1, which is compiled soonest.
FAULTY_SOURCES := $(shell grep -l SB_FAULT $(SOURCES) /dev/null)
FAULTY_KERNELS := $(addprefix kernels/cpu/,attend_blocks.c gemm.c gemm_int8.c gemm_tiles.c \
                  select.c)
FAULTY_OBJECTS := $(FAULTY_SOURCES:%.c=$(B)/faults/%.o) \
                  $(foreach level,$(SIMD_LEVELS),$(FAULTY_KERNELS:%.c=$(B)/faults/%.$(level).o))
SOUND_OBJECTS  := $(filter-out $(FAULTY_OBJECTS:$(B)/faults/%=$(B)/%),$(OBJECTS))
$(B)/faults/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -DSB_FAULTS $(LIBRARY_FLAGS) $(USER_FLAGS) $(EXACT_FLAGS) -c $< -o $@
define faulty_level_rule
$(B)/faults/kernels/%.$(1).o: kernels/%.c $(B)/flags
	@mkdir -p $$(@D)
	$(Q)$$(COMPILE) -DSB_FAULTS $(LIBRARY_FLAGS) $(SIMD_$(1)) -I. $$(USER_FLAGS) -O1 $(EXACT_FLAGS) \
	    -c $$< -o $$@
endef
$(foreach level,$(SIMD_LEVELS),$(eval $(call faulty_level_rule,$(level))))
$(B)/faults.a: $(FAULTY_OBJECTS) $(SOUND_OBJECTS) $(TEST_SUPPORT)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
MUTATIONS := $(addprefix $(B)/test/contract/,test_mutations test_request_mutations)
$(MUTATIONS): $(B)/test/%: test/%.c $(B)/faults.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE_TEST) -DSB_FAULTS $< $(B)/faults.a $(LDFLAGS) $(LIBRARIES) -o $@

include test/cudasim/rules.mk test/cuda/rules.mk test/bench/rules.mk test/fuzz/rules.mk

# What the scripts of a folder run. A whole `make check` builds all of it, and the benches too, so
# that they keep compiling.
SCRIPT_FOLDERS   := additions api bench contract cpu cuda cudasim fuzz lint package python text
NEEDED_additions := $(B)/internal.a
NEEDED_api       := all
NEEDED_bench     := $(BENCHES) $(if $(SAN),,$(GPU_TIME))
NEEDED_contract  := $(B)/internal.a
NEEDED_cpu       := $(B)/test/cpu/print_samples
NEEDED_cuda      := all $(addprefix $(B)/test/,cuda/test_module bench/make_checkpoint) \
                    $(if $(SAN),,$(SIM_BENCH_GPU))
NEEDED_cudasim   := $(if $(SAN),,$(SIM_TESTS))
NEEDED_fuzz      := $(FUZZ_PROGRAMS)
NEEDED_lint      := $(B)/internal.a
NEEDED_package   := all $(B)/test/package/print_bits
NEEDED_python    := lib
NEEDED_text      := $(addprefix $(B)/test/text/,tokenize test_unicode)

# A word of TESTS is a folder, a name, or both as in sched/test_adapt. It chooses programs, and it
# chooses folders for their scripts: its own, or that of the script with this name.
named_programs = $(foreach word,$(TESTS),$(filter $(B)/test/$(word)/% %/$(word),$(TEST_PROGRAMS)))
named_scripts  = $(foreach word,$(TESTS:%.sh=%),$(wildcard test/$(word).sh test/*/$(word).sh))
named_folders  = $(TESTS) $(patsubst test/%/,%,$(dir $(named_scripts)))
CHOSEN_PROGRAMS := $(if $(TESTS),$(sort $(named_programs)),$(TEST_PROGRAMS))
CHOSEN_FOLDERS  := $(if $(TESTS),$(filter $(named_folders),$(SCRIPT_FOLDERS)),$(SCRIPT_FOLDERS))
NEEDED          := $(foreach folder,$(CHOSEN_FOLDERS),$(NEEDED_$(folder)))

# This is a variable because of make's own name in it: a recipe with that name in its text would be
# run even by `make -n`.
FOR_SCRIPTS = B='$(B)' CC='$(CC)' CXX='$(CXX)' SAN='$(SAN)' MAKE='$(MAKE)' PYTHON='$(PYTHON)' \
              TESTS='$(TESTS)'

.PHONY: check lint abi-baseline setup-tokenizers
check: $(CHOSEN_PROGRAMS) $(NEEDED) ## build and run every test, or those of TESTS
	$(Q)$(FOR_SCRIPTS) sh test/run.sh $(CHOSEN_PROGRAMS)
lint:                       ## rules for the sources that a compiler does not check
	@sh test/lint/check_lint.sh
abi-baseline:               ## write what check_abi_gate.sh compares the public header with
	@CC='$(CC)' PYTHON='$(PYTHON)' sh test/api/write_abi.sh
setup-tokenizers:           ## install what test/text/check_*.sh compare with (pip)
	@PYTHON='$(PYTHON)' sh test/text/setup_tokenizers.sh build/tokenizers-venv

# The CUDA kernels and the CUDA backend on the host, on a simulated device. test/rules.mk includes
# this file. The simulator is not built with the user's sanitizers: kernels report to its own
# checker through the calls of -fsanitize=thread,alignment, so no program has both this simulator
# and the real one.
SIM_SOURCES := $(sort $(wildcard test/cudasim/*.cpp))
SIM_OBJECTS := $(SIM_SOURCES:%.cpp=$(B)/cudasim/%.o)
SIM_INCLUDE := -Itest/cudasim -Isrc -Iinclude -I.
SIM_EXACT   := -fno-fast-math -ffp-contract=off $(if $(X86),-mfma)
SIM_FLAGS   := -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -Wno-psabi $(if $(DEV),-Werror) \
               -pthread $(SIM_INCLUDE)
# Kernels inline what the host's compiler finds worth it. With all that nvcc inlines, those of
# attention alone take four minutes to compile, three times as long, and run no faster.
SIM_KERNEL  := $(SIM_FLAGS) -D__forceinline__=inline -g1
# The simulator with the kernels; and with kernels whose loads and stores are watched (cudasim.h).
SIM         := $(B)/cudasim.a
SIM_CHECKED := $(B)/cudasim-checked.a

$(B)/cudasim/test/cudasim/%.o: test/cudasim/%.cpp $(B)/flags
	@mkdir -p $(@D); echo "  CXX  $<"
	$(Q)$(CXX) $(SIM_FLAGS) $(DEPENDENCIES) -O3 -g $(SIM_EXACT) -c $< -o $@
$(B)/cudasim/%.plain.o: %.cu $(B)/flags
	@mkdir -p $(@D); echo "  SIM  $<"
	$(Q)$(CXX) $(SIM_KERNEL) $(DEPENDENCIES) -O2 $(SIM_EXACT) -x c++ -c $< -o $@
$(B)/cudasim/%.checked.o: %.cu $(B)/flags
	@mkdir -p $(@D); echo "  SIM  $< (checked)"
	$(Q)$(CXX) $(SIM_KERNEL) $(DEPENDENCIES) -O1 $(SIM_EXACT) \
	    -fsanitize=thread,alignment -x c++ -c $< -o $@
$(SIM): $(SIM_OBJECTS) $(CUDA_KERNELS:%.cu=$(B)/cudasim/%.plain.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(SIM_CHECKED): $(SIM_OBJECTS) $(CUDA_KERNELS:%.cu=$(B)/cudasim/%.checked.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# What the programs in test/cuda share, here and on a GPU.
CUDA_TEST_SUPPORT := $(B)/test/cuda/logits.o $(B)/test/cuda/kept_prompts.o
$(CUDA_TEST_SUPPORT): $(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(COMPILE_TEST) -c $< -o $@

# Programs that compare the kernels with the CPU's, and one that tests the simulator itself.
# faults.cu has wrong kernels, which it must notice.
CUDA_KERNEL_TESTS := test_cuda_kernels test_cuda_sample test_cuda_attention test_cuda_mma \
                     test_cuda_attend_mma test_cuda_quant test_cuda_draft test_cuda_mix
SIM_FAULTS        := $(B)/cudasim/test/cudasim/faults.checked.o
SIM_KERNEL_TESTS  := $(CUDA_KERNEL_TESTS:%=$(B)/test/cuda/%) \
                     $(addprefix $(B)/test/cudasim/,test_cudasim test_sim_faults test_counts)
SIM_CALLED        := $(addprefix $(B)/cudasim/src/backend/cuda/,quant_pack.o mix_run.o)
$(SIM_KERNEL_TESTS): $(B)/test/%: test/%.c $(SIM_FAULTS) $(SIM_CHECKED) $(SIM_CALLED) \
                     $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE) $(LIBRARY_FLAGS) $(SIM_INCLUDE) -Itest $(USER_FLAGS) $(EXACT_FLAGS) \
	    -c $< -o $@.o
	$(Q)$(CXX) $@.o $(filter %.checked.o %_pack.o %_run.o %.a,$^) $(LDFLAGS) $(LIBRARIES) -o $@
TEST_PROGRAMS += $(if $(SAN),,$(SIM_KERNEL_TESTS))

# Programs with the whole backend linked in, which runs as the module would on a GPU. cuBLASLt and
# cuDNN are the simulator's.
SIM_UNUSED  := $(addprefix src/backend/cuda/,module.c cublaslt.c cudnn.c sdpa_absent.c)
SIM_BACKEND := $(patsubst %.c,$(B)/cudasim/%.o,$(filter-out $(SIM_UNUSED),$(CUDA_SOURCES)) \
               test/cuda/loader.c)
SIM_CUDNN   := $(B)/cudasim/test/cuda/with_cudnn.o
SIM_LIBRARY := $(B)/cudasim/src/backend/cuda/library.o
SIM_PARTS   := $(SIM_BACKEND) $(SIM) $(CUDA_TEST_SUPPORT)
$(SIM_BACKEND) $(SIM_CUDNN): $(B)/cudasim/%.o: %.c $(B)/flags
	@mkdir -p $(@D); echo "  SIM  $<"
	$(Q)$(COMPILE) $(LIBRARY_FLAGS) $(SIM_INCLUDE) $(USER_FLAGS) $(EXACT_FLAGS) -c $< -o $@
# test/cuda/loader.c defines sb_cuda_load in place of the library's own loader, which is taken out.
define without_loader
	$(Q)rm -rf $@ $@.d && cp $< $@ && $(AR) d $@ cuda_loader.o
endef
$(B)/cudasim/internal.a: $(B)/internal.a
	$(without_loader)
$(B)/cudasim/faults.a: $(B)/faults.a
	$(without_loader)

# compile_sim,MORE_FLAGS: compiles the first prerequisite and links it with the simulated backend.
compile_sim = $(COMPILE_TEST) $(1) -Itest/cudasim -c $< -o $@.o && \
              $(CXX) $@.o $(SIM_BACKEND) $(CUDA_TEST_SUPPORT) \
              $(filter %with_cudnn.o %.faulty.o %fault_now.o %internal.a %faults.a,$^) $(SIM) \
              $(LDFLAGS) $(LIBRARIES) -o $@
SIM_BENCH_GPU := $(B)/cudasim/bench_gpu
SIM_TESTS     := $(addprefix $(B)/cudasim/,test_backend test_creation test_devices \
                 test_draft_steps test_products test_prefill test_goldens test_contract \
                 test_requests test_mutations test_session test_weight_memory \
                 test_quant_weights experiments experiment_launch experiment_prefill) \
                 $(SIM_BENCH_GPU)
$(B)/cudasim/test_%: test/cuda/test_%.c $(SIM_PARTS) $(B)/cudasim/internal.a
	@mkdir -p $(@D); echo "  TEST $< (simulated device)"
	$(Q)$(compile_sim)
$(B)/cudasim/test_contract: test/contract/test_contract.c $(SIM_PARTS) $(B)/cudasim/internal.a
	@echo "  TEST $< (simulated device)"
	$(Q)$(compile_sim)
$(B)/cudasim/test_requests: test/contract/test_requests.c $(SIM_PARTS) $(B)/cudasim/internal.a
	@echo "  TEST $< (simulated device)"
	$(Q)$(compile_sim)
$(B)/cudasim/test_session: test/api/test_session.c $(SIM_PARTS) $(B)/cudasim/internal.a
	@echo "  TEST $< (simulated device)"
	$(Q)$(compile_sim)
# The kernels that have deliberate faults, which hide those in $(SIM). What is shared with mixtures
# has those of cuda_fault.h too, of which none is in force here.
SIM_FAULT_NOW       := $(B)/cudasim/test/cudasim/fault_now.o
SIM_FAULTY          := $(B)/cudasim/kernels/cuda/gemm_quant_reference.faulty.o
SIM_FAULTY_PRODUCTS := $(B)/cudasim/kernels/cuda/gemm_mma.faulty.o
$(SIM_FAULTY) $(SIM_FAULTY_PRODUCTS): $(B)/cudasim/%.faulty.o: %.cu $(B)/flags
	@mkdir -p $(@D); echo "  SIM  $< (with faults)"
	$(Q)$(CXX) $(SIM_KERNEL) $(DEPENDENCIES) -O2 $(SIM_EXACT) -DSB_FAULTS -x c++ -c $< -o $@
$(B)/cudasim/test_mutations: test/contract/test_mutations.c $(SIM_PARTS) $(SIM_FAULTY) \
                             $(SIM_FAULT_NOW) $(B)/cudasim/faults.a
	@echo "  TEST $< (simulated device)"
	$(Q)$(call compile_sim,-DSB_FAULTS)
SIM_TESTS += $(B)/cudasim/test_span_mutations
$(B)/cudasim/test_span_mutations: test/cuda/test_span_mutations.c $(SIM_PARTS) $(B)/cudasim/faults.a
	@mkdir -p $(@D); echo "  TEST $< (simulated device)"
	$(Q)$(call compile_sim,-DSB_FAULTS)
# Programs with the faults of kernels/cuda/cuda_fault.h, which check_kernel_mutations.sh switches
# on: the tests of kernels, and that of the choice of products.
SIM_FAULTY_KERNELS := $(patsubst %,$(B)/cudasim/kernels/cuda/%.mutated.o,attend_mma draft_gemm \
                      embed experts_mma gemm_mma gemm_quant gemm_reference gemm_wgmma mix norm \
                      rope select)
SIM_FAULTY_STEPS   := $(B)/cudasim/kernels/cuda/draft_step.mutated.o
SIM_FAULTY_PLAN    := $(B)/cudasim/mutated/src/backend/cuda/gemm_plan.o
SIM_MUTATED        := $(addprefix $(B)/cudasim/mutated/,test_cuda_kernels test_cuda_attention \
                      test_cuda_mma test_cuda_attend_mma test_cuda_quant test_cuda_draft \
                      test_cuda_mix test_cuda_sample)
SIM_TESTS += $(SIM_MUTATED) $(addprefix $(B)/cudasim/mutated/,test_products test_draft_steps)
$(SIM_FAULTY_KERNELS) $(SIM_FAULTY_STEPS): $(B)/cudasim/%.mutated.o: %.cu $(B)/flags
	@mkdir -p $(@D); echo "  SIM  $< (checked, with faults)"
	$(Q)$(CXX) $(SIM_KERNEL) $(DEPENDENCIES) -O1 $(SIM_EXACT) \
	    -fsanitize=thread,alignment -DSB_FAULTS -x c++ -c $< -o $@
$(SIM_FAULTY_PLAN): $(B)/cudasim/mutated/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -DSB_FAULTS $(LIBRARY_FLAGS) $(SIM_INCLUDE) $(USER_FLAGS) $(EXACT_FLAGS) \
	    -c $< -o $@
$(SIM_FAULT_NOW): $(B)/cudasim/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(COMPILE_TEST) -DSB_FAULTS -c $< -o $@
$(SIM_MUTATED): $(B)/cudasim/mutated/%: $(B)/test/cuda/% $(SIM_FAULT_NOW) $(SIM_FAULTY_KERNELS) \
                $(SIM_CHECKED) $(SIM_CALLED) $(B)/internal.a
	@mkdir -p $(@D)
	$(Q)$(CXX) $<.o $(filter %.o %.a,$^) $(LDFLAGS) $(LIBRARIES) -o $@
$(B)/cudasim/mutated/test_products: $(B)/cudasim/test_products $(SIM_FAULT_NOW) $(SIM_FAULTY_PLAN) \
                $(SIM_FAULTY_PRODUCTS) $(SIM_PARTS) $(B)/cudasim/internal.a
	@mkdir -p $(@D)
	$(Q)$(CXX) $<.o $(SIM_FAULT_NOW) $(SIM_FAULTY_PLAN) $(SIM_FAULTY_PRODUCTS) \
	    $(filter-out %/gemm_plan.o,$(SIM_BACKEND)) $(CUDA_TEST_SUPPORT) $(B)/cudasim/internal.a \
	    $(SIM) $(LDFLAGS) $(LIBRARIES) -o $@
$(B)/cudasim/mutated/test_draft_steps: $(B)/cudasim/test_draft_steps $(SIM_FAULT_NOW) \
                $(SIM_FAULTY_STEPS) $(SIM_BACKEND) $(SIM_CHECKED) $(B)/cudasim/internal.a
	@mkdir -p $(@D)
	$(Q)$(CXX) $<.o $(SIM_FAULT_NOW) $(SIM_FAULTY_STEPS) $(SIM_BACKEND) $(CUDA_TEST_SUPPORT) \
	    $(B)/cudasim/internal.a $(SIM_CHECKED) $(LDFLAGS) $(LIBRARIES) -o $@
$(SIM_BENCH_GPU): test/bench/bench_gpu.c $(SIM_PARTS) $(B)/cudasim/internal.a
	@mkdir -p $(@D); echo "  TEST $< (simulated device)"
	$(Q)$(compile_sim)
$(B)/cudasim/experiment_prefill: test/cuda/experiment_prefill.c $(SIM_CUDNN) $(SIM_PARTS) \
                                 $(B)/cudasim/internal.a
	@mkdir -p $(@D); echo "  TEST $< (simulated device)"
	$(Q)$(compile_sim)
# These two call the kernels themselves and need nothing else of the backend than library.c.
$(B)/cudasim/experiments $(B)/cudasim/experiment_launch: $(B)/cudasim/%: test/cuda/%.c \
                                 $(SIM_LIBRARY) $(SIM) $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $< (simulated device)"
	$(Q)$(COMPILE_TEST) $(SIM_INCLUDE) -c $< -o $@.o
	$(Q)$(CXX) $@.o $(SIM_LIBRARY) $(SIM) $(B)/internal.a $(LDFLAGS) $(LIBRARIES) -o $@

.PHONY: check-cudasim
check-cudasim: $(SIM_TESTS) $(SIM_KERNEL_TESTS) ## the CUDA code alone, on a simulated device
	$(Q)for t in $(SIM_KERNEL_TESTS); do $$t || exit 1; done
	$(Q)B=$(B) sh test/cudasim/check_cudasim.sh
	$(Q)B=$(B) sh test/cudasim/check_kernel_mutations.sh

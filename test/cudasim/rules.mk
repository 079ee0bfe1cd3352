# The CUDA sources on the host: the real .cu files and the simulator. Included by the Makefile, which sets B, Q, CXX ...
#   $(CUDASIM_A)           kernels, plain
#   $(CUDASIM_CHECKED_A)   kernels whose loads and stores are watched (see cudasim.h); the tests of kernels link it
CXX      ?= g++
SIM_SRC  := $(sort $(wildcard test/cudasim/*.cpp))
SIM_CU   := $(sort $(wildcard kernels/cuda/*.cu))
SIM_OBJ  := $(SIM_SRC:%.cpp=$(B)/cudasim/%.o)
SIM_INC  := -Itest/cudasim -Isrc -Iinclude -I.
SIM_FP   := -fno-fast-math -ffp-contract=off $(if $(X86),-mfma)
SIM_CXX  := -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -Werror -pthread $(SIM_INC)
CUDASIM_A         := $(B)/cudasim.a
CUDASIM_CHECKED_A := $(B)/cudasim-checked.a

$(B)/cudasim/test/cudasim/%.o: test/cudasim/%.cpp $(B)/flags
	@mkdir -p $(@D); echo "  CXX  $<"
	$(Q)$(CXX) $(SIM_CXX) $(DEPS) $(SB_SAN) -O2 -g $(SIM_FP) -c $< -o $@
$(B)/cudasim/%.plain.o: %.cu $(B)/flags
	@mkdir -p $(@D); echo "  SIM  $<"
	$(Q)$(CXX) $(SIM_CXX) $(DEPS) -O2 -g $(SIM_FP) -x c++ -c $< -o $@
$(B)/cudasim/%.checked.o: %.cu $(B)/flags
	@mkdir -p $(@D); echo "  SIM  $< (checked)"
	$(Q)$(CXX) $(SIM_CXX) $(DEPS) -O1 -g $(SIM_FP) -fsanitize=thread -x c++ -c $< -o $@
$(CUDASIM_A): $(SIM_OBJ) $(SIM_CU:%.cu=$(B)/cudasim/%.plain.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(CUDASIM_CHECKED_A): $(SIM_OBJ) $(SIM_CU:%.cu=$(B)/cudasim/%.checked.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# The kernels against the CPU's. faults.cu: kernels that are wrong, which the simulator must notice.
$(B)/test/test_cuda_kernels: test/test_cuda_kernels.c $(B)/cudasim/test/cudasim/faults.checked.o \
                             $(CUDASIM_CHECKED_A) $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE) $(SB_LIB) $(SIM_INC) -Itest $(USER) $(SB_FP) -c $< -o $@.o
	$(Q)$(CXX) $(SB_SAN) $@.o $(filter %.o %.a,$^) $(LDFLAGS) $(SB_LIBS) -o $@

#!/bin/sh
# Mutations of the kernels: their tests are worth no more than the mistakes that they catch. A line
# of the table is a fault of kernels/cuda/cuda_fault.h, where it is, and the test that has to notice
# it: a test program that is linked with the faulty kernels (rules.mk), and one of its tests, which
# has to fail, unless the simulator notices it and the program ends. `make check` runs the same
# tests without faults. Lines of NONE are tests that have to pass with the faulty kernels while no
# fault is in force.
#
# NO_THREAD_WAITS is noticed by the simulator alone, whatever a test computes. So is
# ONE_WARP_DOES_NOT_WAIT, where a kernel reads what the one just before it writes.
. "$(dirname "$0")/../lib.sh"
if [ ! -x "$B/cudasim/mutated/test_cuda_mma" ]; then
    echo "SKIP kernel_mutations: not built (make check-cudasim; a sanitized build has none)"
    exit
fi

while read -r fault place program test; do
    SB_TEST_CUDA_FAULT=$fault "$B/cudasim/mutated/$program" "$test" >"$tmp/log" 2>&1
    if [ "$fault" = NONE ]; then
        grep -q "^ok   $test\$" "$tmp/log" || cp "$tmp/log" "$tmp/out"
        verdict "no_mutation_of_$place"
    elif grep -Eq "^(FAIL $test\$|cudasim: )" "$tmp/log"; then
        sed -n '1s/^ */     caught: /p' "$tmp/log" | cut -c 1-120
        verdict "mutation_of_${place}_$fault"
    else
        cp "$tmp/log" "$tmp/out"
        verdict "mutation_of_${place}_$fault" "$program: $test did not notice it"
    fi
done <<END
NONE gemm_mma test_cuda_mma test_gemm_bad_row
GATE_AND_UP_SWAPPED gemm_mma test_cuda_mma test_gated
SILU_ROUNDED gemm_mma test_cuda_mma test_gated
STEPS_EXCHANGED gemm_mma test_cuda_mma test_gemm_every_shape
NO_THREAD_WAITS gemm_mma test_cuda_mma test_gemm_bad_row
NONE gemm_wgmma test_cuda_mma test_gated_wgmma
STEPS_EXCHANGED gemm_wgmma test_cuda_mma test_wgmma_every_shape
READERS_NOT_AWAITED gemm_wgmma test_cuda_mma test_gated_wgmma
STAGE_NOT_AWAITED gemm_wgmma test_cuda_mma test_gated_wgmma
RELEASED_TOO_EARLY gemm_wgmma test_cuda_mma test_gated_wgmma
SUMS_NOT_AWAITED gemm_wgmma test_cuda_mma test_gated_wgmma
NO_THREAD_WAITS gemm_wgmma test_cuda_mma test_gated_wgmma
NONE attend_mma test_cuda_attend_mma test_attend_merge_order
MERGE_DESCENDING attend_merge test_cuda_attend_mma test_attend_merge_order
MERGE_WITHOUT_LAST attend_merge test_cuda_attend_mma test_attend_merge_order
COUNTER_KEPT attend_merge test_cuda_attend_mma test_attend_merge_order
NO_THREAD_WAITS attend_mma test_cuda_attend_mma test_attend_extremes
WINDOW_TOO_LONG attend_tile test_cuda_attend_mma test_windows_alone
SPLIT_BEFORE_WINDOW_MERGED attend_tile test_cuda_attend_mma test_windows_passes
NONE attend_tile test_cuda_attend_mma test_windows_spoiled
VALUES_BEFORE_WINDOW_TRUSTED attend_tile test_cuda_attend_mma test_windows_spoiled
NONE rope test_cuda_attention test_attend_extremes
ONE_WARP_DOES_NOT_WAIT attend_mma test_cuda_attention test_attend_bf16
BLOCKS_NOT_AWAITED attend_merge test_cuda_attention test_attend_bf16
K_NORM_FOR_Q rope_head test_cuda_attention test_attend_bf16
MADE_FOR_ONE_SPLIT attend_turn test_cuda_attention test_attend_bf16
MORE_LEFT_OUT attend_turn test_cuda_attention test_attend_bf16
QUERIES_OF_FIRST_TEAM attend_tile test_cuda_attention test_attend_bf16
NONE attend_tile test_cuda_attention test_attend_capped
FEW_SCORES_NOT_CAPPED attend_tile test_cuda_attention test_attend_capped
NONE norm test_cuda_kernels test_norms_in_turn
NO_THREAD_WAITS norm test_cuda_kernels test_norms_in_turn
ONE_WARP_DOES_NOT_WAIT norm test_cuda_kernels test_norms_in_turn
ELEMENT_PAST_THE_ROW norm test_cuda_kernels test_norms_in_turn
NORM_IN_OTHER_ORDER norm test_cuda_kernels test_norm
NO_THREAD_WAITS select test_cuda_kernels test_select_in_parts
ONE_WARP_DOES_NOT_WAIT select test_cuda_kernels test_select_in_parts
NONE sample test_cuda_sample test_rows_in_parts
NO_THREAD_WAITS sample test_cuda_sample test_special_values
ONE_WARP_DOES_NOT_WAIT sample test_cuda_sample test_rows_in_parts
NONE row_parts test_cuda_sample test_many_rows_in_parts
NO_THREAD_WAITS row_parts test_cuda_sample test_many_rows_in_parts
CHOICE_LEFT_OUT row_parts test_cuda_sample test_many_rows_in_parts
CANDIDATE_LEFT_OUT row_parts test_cuda_sample test_many_rows_in_parts
MASS_LEFT_OUT row_parts test_cuda_sample test_many_rows_in_parts
CANDIDATES_KEPT row_parts test_cuda_sample test_many_rows_in_parts
NONE embed test_cuda_kernels test_embed_what_is_selected
NO_THREAD_WAITS embed test_cuda_kernels test_embed
EMBEDDING_NOT_SCALED embed test_cuda_kernels test_embed
ONE_WARP_DOES_NOT_WAIT embed test_cuda_kernels test_embed_what_is_selected
NONE draft_gemm test_cuda_draft test_split_product_of_a_bad_row
PART_LEFT_OUT draft_gemm test_cuda_draft test_split_products
COUNTER_KEPT draft_gemm test_cuda_draft test_split_products
NONE draft_step test_draft_steps test_steps_of_two_rows
NO_BARRIER_BEHIND_ATTENTION draft_step test_draft_steps test_steps_of_two_rows
STAGE_COPIED_TOO_EARLY draft_tile test_draft_steps test_steps_of_two_rows
NONE draft_stream test_draft_steps test_steps_a_step_ahead
KEYS_NOT_HELD_BACK draft_stream test_draft_steps test_steps_a_step_ahead
NORM_WEIGHTS_NOT_AWAITED draft_block test_draft_steps test_steps_of_two_rows
ROWS_NOT_AWAITED draft_norm test_draft_steps test_steps_of_two_rows
PART_LEFT_OUT draft_attend test_draft_steps test_steps_of_two_rows
COUNTER_KEPT draft_attend test_draft_steps test_steps_of_two_rows
RESIDUAL_TWICE draft_step test_draft_steps test_steps_of_two_rows
POSITION_NOT_ADVANCED draft_block test_draft_steps test_steps_of_two_rows
NONE gemm_quant test_cuda_quant test_the_16_bit_class
SCALE_OF_OTHER_BLOCK gemm_quant test_cuda_quant test_the_16_bit_class
NONE experts_mma test_cuda_mix test_mix_bf16
EXPERT_OF_FIRST_TILE experts_mma test_cuda_mix test_mix_bf16
ROW_OF_FIRST_PLACE experts_mma test_cuda_mix test_mix_bf16
NONE mix test_cuda_mix test_mix_f32
EXPERTS_DESCENDING mix test_cuda_mix test_mix_f32
NO_THREAD_WAITS mix test_cuda_mix test_mix_f32
ONE_WARP_DOES_NOT_WAIT mix test_cuda_mix test_mix_f32
EXPERT_OF_FIRST_TILE gemm_reference test_cuda_mix test_mix_f32
ROW_OF_FIRST_PLACE gemm_reference test_cuda_mix test_mix_f32
NONE gemm_quant test_cuda_mix test_mix_16_bit_quantised
ROW_OF_FIRST_PLACE gemm_quant test_cuda_mix test_mix_16_bit_quantised
NONE gemm_plan test_products test_a_file_decides_over_no_bits
PLAN_WITHOUT_TEST gemm_plan test_products test_a_file_decides_over_no_bits
NONE products_by_mma test_products test_every_shape_of_block
STEPS_EXCHANGED products_by_mma test_products test_every_shape_of_block
END
exit $failed

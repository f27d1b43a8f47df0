//! The engine compared with the decoder's definition, with itself on other shapes, and with PyTorch's values for the optimizer.

mod checks;
#[cfg(feature = "cuda-emulator")]
mod cuda;
#[path = "../device/mod.rs"]
mod device;
#[cfg(feature = "cuda-emulator")]
mod exact;
#[cfg(feature = "cuda-emulator")]
mod faults;
mod generation;
mod gradient;
#[cfg(feature = "cuda-emulator")]
mod graphs;
#[path = "../levels/mod.rs"]
mod levels;
mod lora;
mod optimizer;
mod reference;
mod teams;

#[test]
fn what_does_not_depend_on_batches_threads_and_resumes_does_not_with_products_of_any_kind() {
    if device::on_cpu() {
        for products in ["bf16x3", "bf16"] {
            levels::pass_with_products(
                products,
                &["", "plain"],
                &[
                    "recorded_logp_and_entropy_equal_scored_ones_to_rounding",
                    "a_sample_does_not_depend_on_its_batch_threads_order_or_cache_bound",
                    "samples_are_drawn_with_the_current_weights_also_after_these_change",
                    "samples_taken_out_for_want_of_room_are_drawn_again_alike",
                    "a_prefix_tree_has_the_gradient_of_its_separate_sequences",
                    "random_forests_score_as_their_paths_alone",
                    "gradient_does_not_depend_on_chunks_threads_checkpointing_or_calls_and_repeats_bit_for_bit",
                    "training_resumed_from_saved_state_equals_uninterrupted_training_bit_for_bit",
                    "training_resumed_from_a_saved_adapter_equals_uninterrupted_training_bit_for_bit",
                    "training_lowers_the_loss_on_what_it_is_trained_on",
                ],
            );
            // Large, and therefore only on fast devices.
            let teams = [
                "a_team_computes_what_two_threads_compute_bit_for_bit",
                "one_family_on_all_threads_gives_what_one_thread_gives_bit_for_bit",
            ];
            if fgrpo_nn::ProductFormat::Bf16.unit().is_some() {
                levels::pass_with_products(products, &[""], &teams);
            }
        }
    }
}

#[test]
fn every_instruction_set_passes_all_other_tests() {
    if device::on_cpu() {
        levels::pass_all_other_tests("every_instruction_set_passes_all_other_tests");
    }
}

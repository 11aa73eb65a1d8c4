"""Keys that affect neither memory nor time in any framework: learning rates, seeds, data, logging, checkpoint files."""

from __future__ import annotations

from functools import cache

from napkin.options.launches import CHANGES_NOTHING, others

WORDS = """name description debug run_name exp_name experiment_name project project_name with_tracking
    use_slow_tokenizer add_bos group entity user_name
    work_group workspace tags note notes version dump_folder job_id comment main_training_function same_network
    lr lrs peak_lr base_lr max_lr min_lr finetune_lr scheduler lr_scheduler sched betas eps epsilon beta_1
    beta_2 weight_decay
    warmup warmup_steps warmup_iters
    num_warmup_steps lr_warmup_steps lr_warmup_init min_lr_factor min_decay_lr decay_lr decay_ratio
    decay_type decoupled_lr decoupled_min_lr decay_norm_and_bias decay_embeddings cosine_min_lr_ratio
    override_opt_param_scheduler opt_param_scheduler max_grad_norm max_grad_norm_ratio clip_grad_norm max_norm
    gradient_clip_val gradient_clipping clip_grad grad_clip algorithms adam_beta1 adam_beta2 adam_eps
    adam_epsilon adam_b1 adam_b2 adam_weight_decay eps_root label_smoothing_factor neftune_noise_alpha
    init_method init_method_std init_std init_fn init_cutoff_factor init_device init_config initializer_range
    output_layer_init_method use_scaled_init_method init_seed init_weights
    seed data_seed shuffle_seed shuffle random_seed rng full_determinism use_deterministic_algorithms
    data datasets dataset dataset_name dataset_path dataset_type dataset_config dataset_mixture dataset_split
    dataset_train_split dataset_test_split dataset_text_field dataset_num_proc dataset_val data_path data_paths
    data_stages data_impl data_files train_files val_files train_loader_seed data_loader datamodule tokenizer
    tokenizer_name tokenizer_path tokenizer_type tokenizer_model tokenizer_dir tokenizer_config special_tokens
    hf_path hf_data_files eval_data pretraining_dataset template chat_template system_prompt
    columns split pin_memory drop_last persistent_workers prefetch_factor num_workers num_loading_workers
    dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor remove_unused_columns train_split
    mock_data reset_position_ids reset_attention_mask eod_mask_loss train_on_inputs train_on_prompt mask_history
    eval evaluation evaluators eval_loader eval_interval eval_steps eval_iters eval_first eval_strategy
    evaluation_strategy eval_only_steps eval_batch_size device_eval_batch_size per_device_eval_batch_size
    eval_subset_num_batches do_eval do_train do_predict predict_with_generate val_set_size val_size test_size
    val_check_interval limit_val_batches limit_test_batches validation lighteval test_freq val_before_train
    batch_size_val run_val_every_n_steps evals_per_epoch eval_dataset eval_table_size eval_on_start eval_max_new_tokens
    eval_sample_packing include_for_metrics metric_for_best_model greater_is_better load_best_model_at_end
    log logs logger loggers logging logging_steps logging_dir logging_first_step logging_strategy log_level
    log_interval log_freq log_every_n_steps log_period log_to_console log_peak_memory_stats log_with log_level_replica
    log_config print_config metrics metrics_logging metric_logger metrics_log_interval profiler profiling
    nsys_profile wandb tensorboard tb enable_tensorboard enable_wandb disable_wandb comet mlflow swanlab neptune
    report_to progress_bar console_log_interval speed_monitor callbacks exp_manager plot_loss tracker
    include_tokens_per_second include_num_input_tokens_seen steps_per_print wall_clock_breakdown dump_state
    exp_dir explicit_log_dir out_dir output_dir output_path local_dir save_folder
    remote_save_folder base_output_directory dirpath cache_dir trust_remote_code use_auth_token token hf_token
    hf_access_token revision model_revision use_fast_tokenizer tokenizer_cfg hub hub_model_id hub_strategy hub_token
    push_to_hub hub_private_repo low_cpu_mem_usage use_safetensors safetensors
    save save_strategy save_steps save_freq save_interval save_total_limit save_overwrite save_only_model
    save_interval_unsharded save_num_checkpoints_to_keep save_num_unsharded_checkpoints_to_keep saves_per_epoch
    save_safetensors save_first_step save_adapter_weights_only save_every_steps load load_path load_checkpoint
    resume resume_from_checkpoint auto_resume resume_mode checkpoint checkpoints checkpointer
    checkpoint_dir checkpoint_path checkpoint_interval checkpoint_factor checkpoint_period checkpointing_steps
    checkpoint_files enable_checkpointing enable_checkpoint async_checkpointing async_save always_save_checkpoint
    s3_checkpointing s3_upload keep_last_n_checkpoints output_checkpoint overwrite_output_dir overwrite_cache
    dataset_prepared_path lora_model_dir strict hdf5_output_dir
    auto_continue_train no_load_optim no_load_rng no_save_optim no_save_rng disable_last_saving ckpt_format
    multi_gpu num_machines ddp_find_unused_parameters
    general project_run benchmark_csv_path ddp_timeout dist_timeout timeout nccl_timeout machine_rank main_process_ip
    main_process_port rdzv_backend rdzv_endpoint tpu_env tpu_use_cluster tpu_use_sudo tpu_name tpu_zone use_cpu
    compute_environment dynamo_config_debug num_cpu_threads_per_process enable_cpu_affinity deepspeed_multinode_launcher
    deepspeed_hostfile distributed_backend hostfile launcher master_addr master_port node_rank rank local_rank
    eos_token pad_token average_tokens_across_devices
    loss_scale loss_scale_window initial_scale_power hysteresis min_loss_scale initial_loss_scale
    rope_theta rope_base rotary_base rotary_emb_base_seed rotary_percent rope_scaling_factor rope_max_timescale
    rms_norm_eps layer_norm_eps norm_eps layernorm_epsilon norm_epsilon normalization_layer_epsilon
    rms_norm_epsilon lora_alpha lora_scaling use_rslora lora_bias bos_token_id eos_token_id pad_token_id
    time_limit dry_run gen1_gc_interval manual_gc gc_interval gc_freq environment auto_find_port
    loss_watchdog_threshold loss_watchdog_patience early_stopping_patience disable_tqdm preprocessing_num_workers
    num_proc wandb_mode sweep print_trainable_parameters ignore_sanity_checks consumed_train_samples kl_loss_coef
    kl_loss_type entropy_coeff clip_ratio logit_softcap temperature top_p top_k_sampling gamma lam cliprange
    reward_weights scale_rewards delta missing_eos_penalty whiten_rewards kl_coef init_coef target_kl
    simpo_gamma length_column_name dataset_kwargs filter_overlong_prompts truncation truncation_side
    exit_duration_in_mins exit_interval deterministic deterministic_mode empty_unused_memory_freq job
    train_data_path valid_data_path test_data_path lr_decay_steps lr_decay_iters lr_decay_style
    stderr_sink_level sink_level file_sink_level log_avg_skip_iterations log_avg_reset_interval"""
"""Names of keys and blocks with one meaning in every framework, in addition to those in options.launches."""
BEGINS = [
    "wandb_",
    "mlflow_",
    "comet_",
    "hub_",
    "swanlab_",
    "neptune_",
    "tensorboard_",
    "save_",
    "ray_",
    "eval_",
    "log_",
    "logging_",
    "dataset_",
    "tokenizer_",
    "lr_",
    "hf_hub_",
    "profile_",
    "tb_",
    "warmup_",
    "rope_",
    "checkpoint_path",
    "enable_profil",
    "ckpt_",
    "wandb-",
    "resume_",
    "data_cache",
    "val_",
    "test_",
    "seed_",
    "early_stop",
    "load_",
    "rdzv_",
    "tpu_",
    "nccl_",
    "generate_",
    "generation_",
    "push_",
]
"""Prefixes of such names."""
SIZED = ("_layer", "_layers", "_modules", "_dtype")
"""Ends of names that select parts of a model or number formats, whatever they begin with: warmup_layers."""


@cache
def _words() -> frozenset[str]:
    shared = {name.replace("-", "_") for names in CHANGES_NOTHING.values() for name in others(names)}
    return frozenset((*WORDS.split(), *shared))


def is_harmless(key: str) -> bool:
    """Return whether a key or an enclosing block affects neither memory nor time in any framework."""
    return any(
        part in _words() or (part.startswith(tuple(BEGINS)) and not part.endswith(SIZED)) for part in key.split(".")
    )


def is_word(key: str) -> bool:
    """Return whether the name of a key is one of those that change nothing, rather than its block or its beginning."""
    return key.rpartition(".")[2] in _words()

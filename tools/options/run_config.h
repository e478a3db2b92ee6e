// Every value of a training run, resolved and checked. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/optim/optimizer_spec.h"
#include "tools/options/listen_address.h"
#include "tools/options/option_table.h"
#include "tools/options/value_text.h"

namespace tools {

struct RunConfig {
  // run
  std::string model, dataset, data_dir, stage;
  std::int64_t epochs = 1, steps = 0 /* > 0 wins over epochs */, limit = 0, synthetic_size = 10'000,
               synthetic_classes = 10;
  std::array<std::int64_t, 3> synthetic_shape{28, 28, 1};  // height, width, channels
  std::int64_t synthetic_context = 0;                      // > 0: texts of so many tokens instead
  std::int64_t context = 64, text_stride = 0 /* the context */,
               vocabulary_size = 0 /* of the files */;
  int token_bits = 0 /* as the files say */;
  std::int64_t image_size = 224, image_cache_mb = 1024;
  std::string annotations, label_column, csv_header, columns, ignore_columns, separator,
      csv_decimal, csv_missing;
  bool regression = false;  // --task
  std::string loss;         // of a regression: mse, mae
  double test_share = 0.2;
  // compute
  std::string device, dtype, buffers;  // device: auto, cpu, cuda, cuda:N
  std::string bind;                    // none, core, numa
  std::vector<std::string>
      devices;  // "cpu:0" or "cuda:0", ..., all of one kind; empty: one, chosen by `device`
  std::string amp, loss_scale;  // off, tf32, bf16, O1, O2; off, dynamic or a number above 0
  std::string conv;             // auto, direct
  bool cuda_graph = true, pin_memory = true, non_blocking = true;
  int threads = 0 /* auto */;
  bool sync_bn = false, deterministic = false;
  // group
  std::string backend, local_stage, init_method, interface_name, port_rule, job_id;
  std::optional<int> rank, world_size, local_rank;
  int streams = 1;
  int spawn = 0;                        // 0 = this process is one rank
  int least_ranks = 0, most_ranks = 0;  // of an elastic job; 0: ranks neither come nor go
  bool elastic_batch_scales = false;
  double rdzv_timeout_s = 300, timeout_s = 600, heartbeat_s = 1, stall_after_s = 10;
  bool stall_abort = false;
  // sync
  std::string sync;
  std::int64_t sync_every = 1, sync_warmup = 0;
  struct SyncPhase {
    std::int64_t from, every;
  };
  std::vector<SyncPhase>
      sync_schedule;  // ascending; where there is one, sync_every and sync_warmup play no part
  std::string sync_island;    // rank, host
  std::string average_state;  // none, momentum, all
  bool average_buffers = false;
  double outer_lr = 0.7, outer_momentum = 0.9, slowmo_alpha = 1, slowmo_beta = 0.5;
  bool outer_nesterov = true;
  std::string compress;  // none, bf16, topk, powersgd
  double topk_ratio = 0.01;
  int powersgd_rank = 4;
  double bucket_cap_mb = 25;
  bool delay_allreduce = false;
  bool shard_optimizer = false;
  bool sum_losses = false;        // --reduction
  bool canonical = false;         // --reduction-order
  int reduction_shards = 8;       // of canonical
  std::int64_t verify_every = 0;  // 0 = never
  std::string on_desync;          // abort, warn, repair
  // batch
  std::int64_t batch_size = 0, batch_size_per_device = 0;  // exactly one of them is > 0
  std::string normalize;                                   // auto, unit, standard
  std::vector<std::string> augment;  // of resized-crop, crop, flip, cutout; each once
  int crop_padding = 4, cutout_size = 16;
  std::int64_t grad_accum = 1;
  std::string uneven, shard;
  bool shuffle = true, check_sampler = false;
  std::string sampler;
  std::uint64_t seed = 0;
  int workers = 1, prefetch = 2;
  // optimizer
  std::string optimizer, lr_scale, lr_schedule;
  double lr = 0, clip_grad = 0, label_smoothing = 0, dropout = 0, lr_gamma = 0.1, lr_min = 0;
  engine::OptimizerSettings optimizer_settings;  // of the optimizer chosen, lr among them
  std::int64_t lr_warmup_steps = 0;
  std::vector<std::string> freeze;                          // patterns of names
  std::vector<std::pair<std::string, double>> rate_groups;  // pattern, factor; the first one counts
  std::vector<std::int64_t>
      lr_step_epochs;  // ascending; the step schedule multiplies by lr_gamma at each
  // state
  std::string save_dir, resume /* auto, none or a path */, init_from, map_location;
  Interval save_every;
  int keep_last = 0;
  bool save_rank_models = false, save_async = false, overwrite = false;
  std::vector<std::string> allowed_changes;     // option names, or "data"
  std::vector<std::string> allowed_mismatches;  // patterns of names
  std::string init_coding;                      // all, inputs, none
  std::string model_definition;  // of a model from a file: its text; not an option's value
  std::string keep_best;         // none, auto, loss, accuracy, top5, perplexity, r2
  std::int64_t early_stop = 0;   // 0 = never
  double early_stop_delta = 0;
  double ema = 0;                 // decay; 0 = no average
  std::int64_t average_last = 0;  // epochs; 0 = no average
  // report
  Interval eval_every;
  std::string on_nonfinite;                 // abort, skip, continue
  std::optional<std::int64_t> log_every{};  // as engine::TrainerOptions has it
  std::int64_t log_gpu = 0;
  std::string metrics, progress /* auto, rich, never */, flight_dir;
  bool quiet = false, verbose = false, log_json = false;
  std::string log_file;
  bool log_all_ranks = false;
  std::vector<int> log_ranks{0};
  bool tensorboard = false;  // in the run's folder
  std::string tensorboard_dir;
  std::int64_t histograms = 0;                            // steps between two; 0 = never
  std::int64_t tensorboard_samples = 0;                   // shown with each evaluation
  std::optional<ListenAddress> prometheus{};              // where to serve metrics
  std::string trace;                                      // "": none
  std::int64_t trace_first = 1, trace_last = kMostCount;  // steps, counted from 1
  // preempt
  std::vector<int> preempt_signals;
  bool requeue = false;

  // Text (canonical) and source of every option. An option that plays no part in this run (momentum
  // with adamw, epochs beside steps) is unset here and has the source "not used".
  ConfigValues origin;
};

// Types, ranges, and what does not go together. Missing entries count as defaults. Throws
// ConfigError naming option, value, source and what was expected. Where two options exclude each
// other the one from the stronger source holds; both from equally strong sources are an error. So
// is an explicit option that needs another choice (--sync-every without --sync params), unless that
// choice was made by a stronger source.
RunConfig resolve_run_config(const ConfigValues& values);

// All values that are set, as TOML in tables by group, for checkpoints; apply_config_file reads it
// back. Give it RunConfig::origin.
std::string to_toml(const ConfigValues& values);
// The same as a file for --config, in which a $ of a value stands for itself.
std::string to_config_file(const ConfigValues& values);
// The options that must agree on all ranks (OptionSpec::agreement), as "--name" and value, in the
// order of the table. A long value is cut and has a digest. Give it RunConfig::origin.
std::vector<std::pair<std::string, std::string>> agreed_settings(const ConfigValues& values);

}  // namespace tools

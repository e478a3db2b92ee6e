// A training run as typed values: the options of a TrainSession, with or without a command line.
// The defaults here are those of the options (option_spec.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/policies/sync_schedule.h"
#include "engine/averaging/stale/stale_options.h"
#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/dtype.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/loss/regression_loss.h"
#include "engine/ops/optim_step/step_numbers.h"
#include "engine/optim/learning_rate.h"
#include "engine/optim/optimizer_spec.h"
#include "engine/train/trainer.h"
#include "io/checkpoint/device_map.h"
#include "io/data/loader/batch_loader.h"
#include "io/data/order/sampler.h"
#include "io/data/sources/dataset_registry.h"
#include "tools/options/table/device_request.h"
#include "tools/options/table/resume.h"

namespace tools {

struct DataSummary;  // session_data.h, as the next
struct LoadedData;

// The ranks' shares of a step.
struct ShareOptions {
  bool automatic = false;                  // by measured speed; else
  std::vector<std::int64_t> weights = {};  // one for each rank; empty: equal shares
  bool are_equal() const { return !automatic && weights.empty(); }
};

struct DataOptions {
  io::DatasetOptions set;
  std::shared_ptr<LoadedData> given = {};  // this rank's data, in memory; replaces `set`
  std::string stage = {};  // a folder of this host to copy the files to; "": read them in place
  std::optional<io::Normalization> normalization = {};  // none: by the number of channels
  io::Augmentation augmentation = {};                   // only for training
  int workers = 1, prefetch = 2;

  std::string order = "shuffle";   // order of an epoch: make_epoch_order()
  io::SamplerOptions sampling;     // the session sets size, order, rank and world size
  std::int64_t batch_of_rank = 0;  // > 0: size of a micro-batch, replaces sampling.global_batch
  ShareOptions shares = {};
  ShareOptions local_steps = {};  // the same of the steps between averagings
  int max_ranks = 0;              // for an elastic job; 0: the number of ranks is fixed
  bool batch_scales = false;      // with the ranks of an elastic job; else that of max_ranks
  bool check_sampler = false;
};

struct ModelRequest {
  std::string name;             // or the path of a TOML layer list
  std::string definition = {};  // that list's text; "": it is read from the file
  double label_smoothing = 0, dropout = 0;
  engine::ops::RegressionLoss loss = engine::ops::RegressionLoss::kSquared;  // for a regression
  io::Task task = io::Task::kClassification;
  bool synchronized_statistics = false;  // batch statistics over all ranks
  std::vector<std::string> frozen = {};  // patterns of the names of parameters that are not trained

  std::optional<engine::ops::RegressionLoss> regression_loss() const;  // none for classes
};

// Lower precision than that of the parameters.
struct Precision {
  std::optional<engine::DType> half = {};  // storage of activations, if it differs
  engine::Products products = engine::Products::kF32;
  bool operator==(const Precision&) const = default;
};

struct ComputeOptions {
  DeviceRequest device;                       // the session sets the ranks' places
  engine::DType dtype = engine::DType::kF32;  // type of parameters
  Precision precision = {};
  engine::Convolutions convolutions = engine::Convolutions::kAuto;
  engine::LossScaleRule loss_scale = {};
  bool graph = true, pinned = true, non_blocking = true;
  DataOnDevice data_on_device = DataOnDevice::kAuto;
  int threads = 0;  // 0: this rank's share of the cores
  Bind bind = Bind::kNone;
  bool deterministic = false;
  std::int64_t micro_batches = 1;
  MemoryRequest memory = {};
};

struct AveragingOptions {
  enum class Method {
    kNone,
    kGradients,
    kParameters,
    kPostLocal,
    kSlowMo,
    kDiloco,
    kStreaming,
    kGossip,
    kAuto
  };
  enum class Compression { kNone, kBf16, kTopK, kPowerSgd, kInt8, kInt4, kSparse };
  // Optimizer states that are also averaged: moments with every N-th averaging, 0: never; or all
  // states with every averaging.
  struct States {
    std::int64_t first = 0, second = 0;
    bool all = false;
  };

  Method method = Method::kGradients;
  std::string name = "grad";
  // Applies to gradients if `of_gradients()`, else to the changes of parameters.
  Compression compression = Compression::kNone;
  double topk_ratio = 0.01;
  int powersgd_rank = 4;
  struct Sparse {
    double ratio = 0.02;
    int bits = 2;
    std::int64_t warmup = 100;  // gradients
    double momentum = 0;        // gradients
    double decay = 0.95;        // parameters
  };
  Sparse sparse = {};
  // Gradients.
  bool canonical = false;
  int shards = 8;  // for the canonical order
  engine::BucketOptions buckets = {};
  bool shard_optimizer = false;
  // Parameters: averaged every `every` steps, in the first `warmup` every step; or by `phases`.
  std::int64_t every = 1, warmup = 0;
  std::vector<engine::SyncPhase> phases = {};
  engine::OuterOptions diloco{std::nullopt, std::nullopt, /*nesterov=*/true,
                              /*over_inner_rate=*/false};
  engine::SlowMoOptions slowmo = {};
  engine::StaleOptions stale = {};
  States states = {};
  struct Streaming {
    std::int64_t fragments = 0;  // of the parameters; 0: chosen by their sizes
    std::int64_t overlap = 0;    // steps during which an exchange may be in flight
    double mixing = 0.5;         // weight of the result; the rest is the local fragment
  };
  Streaming streaming = {};
  bool running_statistics = false, host_islands = false;

  bool of_gradients() const { return method == Method::kGradients; }
  bool of_parameters() const { return method != Method::kNone && !of_gradients(); }
};

struct UpdateOptions {
  const engine::OptimizerSpec* optimizer = engine::find_optimizer("sgd");  // never null
  engine::OptimizerSettings settings = engine::default_settings(*optimizer);
  enum class RateScale { kNone, kLinear, kSquareRoot };
  RateScale scale = RateScale::kNone;  // scale of the rate, by the number of ranks
  // True: also with the batch of an elastic job; linearly, unless `scale` is set.
  bool with_batch = false;
  engine::LearningRate rate = {};  // the session sets milestones and total steps
  std::vector<std::int64_t> milestone_epochs = {};
  double clip_grad = 0;
  bool sum_losses = false;  // instead of their mean
  double ema = 0;           // decay of a moving average of the parameters; 0: none
  // Patterns of names and factors of the rate of such parameters; the first match counts.
  std::vector<std::pair<std::string, double>> rate_groups = {};
  std::vector<std::string> no_decay = {};  // norms, biases, embeddings, or patterns of names
};

// The parts of the coding that are taken from the checkpoint of --init-from.
enum class InitCoding {
  kAll,
  kInputs,  // samples, but not the classes or the target: the last layer is new
  kNone
};

struct KeepingOptions {
  std::string directory = {};  // "": nothing is saved
  int keep_last = 3;
  bool background = false, only_planned = false;  // the plan counts memory, but nothing is saved
  Resume resume = {};
  std::string init_from = {};
  std::vector<std::string> allowed_mismatches = {};  // patterns of names that may be missing
  InitCoding init_coding = InitCoding::kAll;
  bool other_coding = false;  // options that affect the coding may differ from the checkpoint's
  io::DeviceMap placement = io::DeviceMap::parse("auto");
  bool other_optimizer = false;    // may have written the checkpoint; its state then starts over
  std::string configuration = {};  // TOML for checkpoints
  std::string run_id = {};         // stored in checkpoints; --resume auto accepts only this run's
  // Called with the checkpoint that is about to be loaded, and a summary of the current data.
  std::function<void(const io::Checkpoint&, const std::string& path, const DataSummary& data)>
      admit = {};
  std::function<std::string()> before_write = {};  // same as in engine::CheckpointManagerOptions
  std::function<bool()> take_folder = {};          // likewise
};

// The choice and the use of the best evaluation.
struct BestOptions {
  struct Keep {
    enum class When { kNever, kWhereItChangesNothing, kAlways };
    When when = When::kNever;
    // The default is accuracy, perplexity for text, the loss for a regression.
    std::optional<engine::Measure> measure = {};
    bool operator==(const Keep&) const = default;
  };
  Keep keep = {};
  std::int64_t patience = 0;  // same as in engine::BestModelOptions
  double min_delta = 0;
};

struct SessionOptions {
  DataOptions data;
  ModelRequest model;
  ComputeOptions compute = {};
  AveragingOptions averaging = {};
  UpdateOptions update = {};
  KeepingOptions keeping = {};
  BestOptions best = {};
  std::int64_t average_last = 0;  // number of epochs at the end; 0: their weights are not averaged
  std::string asked_backend = "auto";  // the group may have chosen another
  std::uint64_t seed = 0;
  std::int64_t epochs = 1, steps = 0;       // steps > 0: replaces epochs
  std::optional<std::int64_t> log_every{};  // same as in engine::TrainerOptions
  engine::Every evaluate = {}, save = {};
  engine::BufferMode buffers = engine::BufferMode::kLocal;
  std::int64_t verify_every = 0;  // 0: never
  engine::OnDesync on_desync = engine::OnDesync::kAbort;
  engine::OnNonFinite on_nonfinite = engine::OnNonFinite::kAbort;
};

}  // namespace tools

// A training run as typed values: what a TrainSession is made of, with or without a command line.
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
#include "io/data/sources/dataset.h"
#include "tools/options/table/device_request.h"
#include "tools/options/table/resume.h"

namespace tools {

struct LoadedData;  // session_data.h

struct DataOptions {
  io::DatasetOptions set;
  // This rank's, in memory already, instead of `set`.
  std::shared_ptr<LoadedData> given = {};
  std::string stage = {};  // a folder of this host to copy the files to; "": read where they lie
  std::optional<io::Normalization> normalization = {};  // none: by the number of channels
  io::Augmentation augmentation = {};                   // for training only
  int workers = 1, prefetch = 2;

  std::string order = "shuffle";   // of an epoch: make_epoch_order()
  io::SamplerOptions sampling;     // size, order, rank and world size are the session's
  std::int64_t batch_of_rank = 0;  // > 0: of a micro-batch, instead of sampling.global_batch
  int max_ranks = 0;               // of an elastic job; 0: ranks neither come nor go
  bool batch_scales = false;       // with the ranks of an elastic job; else it is that of max_ranks
  bool check_sampler = false;
};

struct ModelOptions {
  std::string name;             // or the path of a TOML layer list
  std::string definition = {};  // that list's text; "": it is read from the file
  double label_smoothing = 0, dropout = 0;
  engine::ops::RegressionLoss loss = engine::ops::RegressionLoss::kSquared;  // of a regression
  bool regression = false;               // predicts numbers, not classes
  bool synchronized_statistics = false;  // batch statistics over all ranks
  std::vector<std::string> frozen = {};  // patterns of the names of parameters that are not trained

  std::optional<engine::ops::RegressionLoss> regression_loss() const {
    return regression ? std::optional(loss) : std::nullopt;
  }
};

// Lower precision than that of the parameters.
struct Precision {
  std::optional<engine::DType> half = {};  // storage of activations, if it is another
  engine::Products products = engine::Products::kF32;
  bool operator==(const Precision&) const = default;
};

struct ComputeOptions {
  DeviceRequest device;                       // the ranks' places are the session's
  engine::DType dtype = engine::DType::kF32;  // of parameters
  Precision precision = {};
  engine::Convolutions convolutions = engine::Convolutions::kAuto;
  engine::LossScaleRule loss_scale = {};
  bool graph = true, pinned = true, non_blocking = true;
  int threads = 0;  // 0: this rank's share of the cores
  Bind bind = Bind::kNone;
  bool deterministic = false;
  std::int64_t micro_batches = 1;
};

struct AveragingOptions {
  enum class Method { kNone, kGradients, kParameters, kPostLocal, kSlowMo, kDiloco };
  enum class Compression { kNone, kBf16, kTopK, kPowerSgd };
  enum class States { kNone, kMomentum, kAll };

  Method method = Method::kGradients;
  std::string name = "grad";
  // Gradients.
  bool canonical = false;
  int shards = 8;  // of the canonical order
  Compression compression = Compression::kNone;
  double topk_ratio = 0.01;
  int powersgd_rank = 4;
  engine::BucketOptions buckets = {};
  bool shard_optimizer = false;
  // Parameters: every `every` steps, in the first `warmup` steps every step; or as `phases` say.
  std::int64_t every = 1, warmup = 0;
  std::vector<engine::SyncPhase> phases = {};
  engine::OuterOptions diloco{0.7, 0.9, /*nesterov=*/true, /*over_inner_rate=*/false};
  engine::OuterOptions slowmo{1, 0.5, /*nesterov=*/false, /*over_inner_rate=*/true};
  States states = States::kNone;  // of the optimizer, averaged along
  bool running_statistics = false;
  bool host_islands = false;

  bool of_parameters() const { return method != Method::kNone && method != Method::kGradients; }
};

struct UpdateOptions {
  const engine::OptimizerSpec* optimizer = engine::find_optimizer("sgd");  // never null
  engine::OptimizerSettings settings = engine::default_settings(*optimizer);
  enum class RateScale { kNone, kLinear, kSquareRoot };
  RateScale scale = RateScale::kNone;  // of the rate, by the number of ranks
  bool with_batch =
      false;  // with the batch of an elastic job, too: linearly, if not as `scale` says
  engine::LearningRate rate = {};  // milestones and total steps are the session's
  std::vector<std::int64_t> milestone_epochs = {};
  double clip_grad = 0;
  bool sum_losses = false;  // instead of their mean
  double ema = 0;           // decay of a moving average of the parameters; 0: there is none
  // Patterns of names and what the rate of such parameters is multiplied by; the first one counts.
  std::vector<std::pair<std::string, double>> rate_groups = {};
};

struct DataSummary {
  io::DataDigest digest;             // of the training samples and labels
  std::int64_t train = 0, test = 0;  // samples
};

// What stays coded as the snapshot of --init-from states.
enum class InitCoding {
  kAll,
  kInputs,  // samples, but not the classes or the target: the last layer is new
  kNone
};

struct KeepingOptions {
  std::string directory = {};  // "": nothing is kept
  int keep_last = 3;
  bool background = false;
  Resume resume = {};
  std::string init_from = {};
  std::vector<std::string> allowed_mismatches = {};  // patterns of the names that it may lack
  InitCoding init_coding = InitCoding::kAll;
  bool other_coding = false;  // options that shape the coding may differ from the snapshot's
  io::DeviceMap placement = io::DeviceMap::parse("auto");
  bool other_optimizer = false;    // may have written the snapshot; its state then starts anew
  std::string configuration = {};  // TOML for snapshots
  std::string run_id = {};         // for snapshots, and of those that --resume auto takes
  // Told the snapshot that is about to be loaded, and what today's data are.
  std::function<void(const io::Checkpoint&, const std::string& path, const DataSummary& data)>
      admit = {};
  std::function<std::string()> before_write = {};  // as engine::KeeperOptions have it
};

// Which evaluation is the best, and what follows from it.
struct BestOptions {
  struct Keep {
    enum class When { kNever, kWhereItChangesNothing, kAlways };
    When when = When::kNever;
    // None: accuracy, for text perplexity, of a regression the loss.
    std::optional<engine::Measure> measure = {};
    bool operator==(const Keep&) const = default;
  };
  Keep keep = {};
  std::int64_t patience = 0;  // as engine::BestModelOptions have them
  double min_delta = 0;
};

struct SessionOptions {
  DataOptions data;
  ModelOptions model;
  ComputeOptions compute = {};
  AveragingOptions averaging = {};
  UpdateOptions update = {};
  KeepingOptions keeping = {};
  BestOptions best = {};
  std::int64_t average_last = 0;  // of the epochs at the end; 0: their weights are not averaged
  std::string asked_backend = "auto";  // the group may have chosen another
  std::uint64_t seed = 0;
  std::int64_t epochs = 1, steps = 0;       // steps > 0: these
  std::optional<std::int64_t> log_every{};  // as engine::TrainerOptions has it
  engine::Every evaluate = {}, save = {};
  engine::BufferMode buffers = engine::BufferMode::kLocal;
  std::int64_t verify_every = 0;  // 0: never
  engine::OnDesync on_desync = engine::OnDesync::kAbort;
  engine::OnNonFinite on_nonfinite = engine::OnNonFinite::kAbort;
};

}  // namespace tools

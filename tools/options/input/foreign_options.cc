// Lists the options of other programs.
#include "tools/options/input/foreign_options.h"

#include <algorithm>

namespace tools {
namespace {

constexpr std::string_view kEvaluationBatch =
    "evaluation takes 64 samples at a time, however many a step of training takes";

constexpr ForeignOption kForeign[] = {
    {"accelerator", "--device"},
    {"accum-grad-batches", "--grad-accum"},
    {"accumulate-grad-batches", "--grad-accum"},
    {"arch", "--model"},
    {"architecture", "--model"},
    {"beta1", "--adam-beta1, or --lion-beta1"},
    {"beta2", "--adam-beta2, or --lion-beta2"},
    {"bf16", "--amp bf16"},
    {"checkpoint-dir", "--save-dir"},
    {"ckpt-path", "--resume"},
    {"csv-separator", "--separator"},
    {"data", "--data-dir"},
    {"data-path", "--data-dir"},
    {"dataset-path", "--data-dir"},
    {"decimal", "--csv-decimal"},
    {"default-root-dir", "--save-dir"},
    {"delimiter", "--separator"},
    {"dist-backend", "--backend"},
    {"dist-url", "--init-method"},
    {"eval-batch-size", "", "", kEvaluationBatch},
    {"eval-steps", "--eval-every Ns, as --eval-every 500s"},
    {"eval-strategy", "--eval-every, in epochs (1e) or steps (500s)"},
    {"evaluation-strategy", "--eval-every, in epochs (1e) or steps (500s)"},
    {"fast-dev-run", "--steps, as --steps 5, or --dry-run to see the plan alone"},
    {"fp16", "--amp O1"},
    {"gamma", "--lr-gamma, with --lr-schedule step"},
    {"gpu", "--gpu-devices"},
    {"gpus", "--gpu-devices"},
    {"gradient-accumulation-steps", "--grad-accum"},
    {"gradient-clip-val", "--clip-grad"},
    {"grad-clip", "--clip-grad"},
    {"init-lr", "--lr"},
    {"initial-lr", "--lr"},
    {"learning-rate", "--lr"},
    {"load-best-model-at-end", "", "",
     "--keep-best keeps the best checkpoint, and engine eval, predict and export take it"},
    {"log-dir", "--save-dir for all that a run writes, or --tensorboard-dir", "--log-dir"},
    {"log-interval", "--log-every"},
    {"logdir", "--save-dir"},
    {"logger", "--tensorboard, --metrics or --prometheus"},
    {"logging-dir", "--tensorboard-dir"},
    {"logging-steps", "--log-every"},
    {"lr-scheduler", "--lr-schedule"},
    {"lr-scheduler-type", "--lr-schedule"},
    {"lr-step-size", "--lr-milestones, with --lr-schedule step"},
    {"master-addr", "--init-method tcp://ADDR:PORT", "--master-addr"},
    {"master-port", "--init-method tcp://ADDR:PORT", "--master-port"},
    {"max-epochs", "--epochs"},
    {"max-grad-norm", "--clip-grad"},
    {"max-restarts", "", "--max-restarts"},
    {"max-steps", "--steps"},
    {"milestones", "--lr-milestones, with --lr-schedule step"},
    {"model-ema", "--ema"},
    {"nnodes", "--world-size", "--nnodes"},
    {"na-values", "--csv-missing"},
    {"no-cuda", "--device cpu"},
    {"node-rank", "--rank", "--node-rank"},
    {"nproc-per-node", "--spawn", "--nproc-per-node"},
    {"num-epochs", "--epochs"},
    {"num-nodes", "--world-size", "--nnodes"},
    {"num-train-epochs", "--epochs"},
    {"num-workers", "--workers"},
    {"numa-binding", "--bind"},
    {"out-dir", "--save-dir"},
    {"output-dir", "--save-dir"},
    {"patience", "--early-stop"},
    {"per-device-eval-batch-size", "", "", kEvaluationBatch},
    {"per-device-train-batch-size", "--batch-size-per-device"},
    {"precision", "--amp"},
    {"pretrained", "--init-from"},
    {"print-freq", "--log-every"},
    {"profiler", "--trace"},
    {"random-seed", "--seed"},
    {"rdzv-endpoint", "--init-method tcp://HOST:PORT", "--rdzv-endpoint"},
    {"report-to", "--tensorboard, --metrics or --prometheus"},
    {"resume-from-checkpoint", "--resume"},
    {"save-steps", "--save-every Ns, as --save-every 500s"},
    {"save-total-limit", "--keep-last"},
    {"seed-everything", "--seed"},
    {"strategy", "--sync, whose grad is DDP"},
    {"sync-batchnorm", "--sync-bn"},
    {"test-batch-size", "", "", kEvaluationBatch},
    {"train-batch-size", "--batch-size"},
    {"val-batch-size", "", "", kEvaluationBatch},
    {"val-check-interval", "--eval-every"},
    {"val-freq", "--eval-every"},
    {"validation-split", "--test-share, of --dataset csv: other data sets have a part for it"},
    {"warmup-ratio", "--lr-warmup-steps, a number of steps"},
    {"warmup-steps", "--lr-warmup-steps"},
    {"wd", "--weight-decay"},
    {"workers-per-gpu", "--workers"},
    {"world", "--world-size"}};

}  // namespace

std::span<const ForeignOption> foreign_options() { return kForeign; }

std::string foreign_hint(std::string_view name, const std::vector<std::string>& known) {
  const auto row = std::ranges::find(kForeign, name, &ForeignOption::theirs);
  if (row == std::end(kForeign)) return "";
  const auto has = [&](std::string_view text) {  // true for the option that `text` begins with
    return text.size() > 2 &&
           std::ranges::find(known, text.substr(2, text.find_first_of(" ,") - 2)) != known.end();
  };
  const std::string ours(row->ours), launch(row->launch);
  if (!row->instead.empty()) return ": there is none; " + std::string(row->instead);
  if (has(launch)) return ": here it is " + launch;
  if (ours.empty()) return ": it is an option of engine launch, " + launch;
  if (!has(ours)) return ": here it is " + ours + ", of engine train";
  return ": here it is " + ours + (launch.empty() ? "" : ", or engine launch " + launch);
}

}  // namespace tools

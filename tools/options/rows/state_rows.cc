// Defines the options for saved state, and the start of a run: --save-dir to --map-location.
#include "tools/options/table/option_rows.h"

#include <algorithm>
#include <cmath>

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using enum OptionSpec::Agreement;
using enum OptionSpec::OnResume;
using enum OptionSpec::Arrays;

using When = BestOptions::Keep::When;
using engine::Measure;

std::optional<ValueFault> take_resume(RunConfig& config, const std::string& text) {
  config.keeping.resume = Resume::parse(text);
  return std::nullopt;
}

std::optional<ValueFault> take_early_stop(RunConfig& config, const std::string& text) {
  const std::vector<std::string> parts = base::split_text(text, ':');
  const auto patience = parse_integer(parts[0]);
  const auto delta = parts.size() == 2 ? parse_real(parts[1]) : std::optional(0.0);
  if (parts.size() > 2 || !patience || *patience < 1 || *patience > kMaxCount || !delta ||
      *delta < 0)
    return ValueFault{
        "a number of evaluations, from 1, and perhaps the least improvement, as 5 or 5:0.001"};
  config.best.patience = *patience;
  config.best.min_delta = *delta;
  return std::nullopt;
}

std::optional<ValueFault> take_allowed_changes(RunConfig& config, const std::string& text) {
  std::vector<std::string> known{"data"};
  for (const OptionSpec& option : train_options()) known.push_back(option.name);
  for (const std::string& name : base::split_text(text, ',')) {
    const OptionSpec* option = find_option(name);
    if (option == nullptr && name != "data")
      return ValueFault{"names of options without the --, as optimizer,data",
                        base::did_you_mean(name, known)};
    config.allowed_changes.push_back(option == nullptr ? name : option->name);
    config.keeping.other_coding |= option != nullptr && option->shapes_coding;
    config.keeping.other_optimizer |= name == "optimizer";
  }
  return std::nullopt;
}

std::optional<ValueFault> take_placement(RunConfig& config, const std::string& text) {
  config.keeping.placement = io::DeviceMap::parse(text);
  return std::nullopt;
}

const std::vector<OptionSpec> kStateRows{
    {.name = "save-dir",
     .field = text([](RunConfig& c) { return &c.keeping.directory; }),
     .metavar = "DIR",
     .help = "folder of the run (auto: a new one, runs/MODEL-DATASET-NNN)",
     .example = "--save-dir run",
     .agreement = kPresence,
     .on_resume = kOneStart,
     .names_path = true},
    {.name = "overwrite",
     .field = flag([](RunConfig& c) { return &c.overwrite; }),
     .help = "if --save-dir holds a run, rename that folder and start a new run",
     .example = "--save-dir run --overwrite",
     .on_resume = kOneStart,
     .needs = {given("save-dir")},
     .demands = {{on(),
                  {off("resume")},
                  "that no --resume is given: a run continues, or it moves aside"}}},
    {.name = "save-every",
     .field = interval([](RunConfig& c) { return &c.save; }),
     .metavar = "N[e|s]",
     .initial = "1e",
     .help = "save a checkpoint every N epochs or steps (0: only at the end)",
     .example = "--save-dir run --save-every 500s",
     .needs = {given("save-dir")}},
    {.name = "keep-last",
     .field = integer([](RunConfig& c) { return &c.keeping.keep_last; }, 0, 1'000'000),
     .metavar = "K",
     .help = "number of checkpoints to keep (0: all)",
     .example = "--save-dir run --keep-last 10",
     .agreement = kFree,
     .needs = {given("save-dir")}},
    {.name = "keep-best",
     .field = choice([](RunConfig& c) { return &c.best.keep; },
                     {{"none", {}},
                      {"auto", {When::kWhereItChangesNothing}},
                      {"loss", {When::kAlways, Measure::kLoss}},
                      {"accuracy", {When::kAlways, Measure::kAccuracy}},
                      {"top5", {When::kAlways, Measure::kTop5}},
                      {"perplexity", {When::kAlways, Measure::kPerplexity}},
                      {"r2", {When::kAlways, Measure::kR2}},
                      {"map", {When::kAlways, Measure::kMap}},
                      {"mean-iou", {When::kAlways, Measure::kMeanIou}}}),
     .initial = "auto",
     .help =
         "metric by which the best checkpoint is kept; auto: accuracy, perplexity for text, loss "
         "for a regression, mean average precision for several labels, with a --save-dir and an "
         "evaluation",
     .example = "--save-dir run --keep-best loss",
     .demands = {{is("loss|accuracy|top5|perplexity|r2|map"),
                  {on("eval-every")},
                  "evaluations: --eval-every is 0, which is never"},
                 {is("loss|accuracy|top5|perplexity|r2|map"),
                  {given("save-dir"), given("early-stop")},
                  "--save-dir: that is where the best is kept"}}},
    {.name = "early-stop",
     .field = parsed(take_early_stop),
     .metavar = "N[:DELTA]",
     .help = "stop after N evaluations in a row without an improvement (by DELTA) of "
             "--keep-best's metric",
     .example = "--early-stop 5",
     .excludes = {"average-last"},
     .demands = {{given(), {on("eval-every")}, "evaluations: --eval-every is 0, which is never"}}},
    {.name = "ema",
     .field = real([](RunConfig& c) { return &c.update.ema; },
                   {std::numeric_limits<double>::min(), std::nextafter(1.0, 0.0),
                    "a number above 0 and below 1, as 0.999"}),
     .metavar = "DECAY",
     .help = "keep an exponential moving average of the parameters, e.g. 0.999",
     .example = "--ema 0.999",
     .needs = {is("sync", "grad")},
     .excludes = {"average-last"}},
    {.name = "average-last",
     .field = integer([](RunConfig& c) { return &c.average_last; }, 1, 1'000'000),
     .help = "average the weights at the end of each of the last N epochs (SWA)",
     .example = "--epochs 10 --average-last 3",
     .needs = {is("sync", "grad|params|post-local|slowmo|diloco"), is("reduction-order", "fast")}},
    {.name = "save-rank-models",
     .field = flag([](RunConfig& c) { return &c.save_rank_models; }),
     .help = "also save each rank's final model, for engine verify",
     .example = "--save-dir run --save-rank-models",
     .needs = {given("save-dir")}},
    {.name = "save-async",
     .field = flag([](RunConfig& c) { return &c.keeping.background; }),
     .help = "write checkpoints in the background (needs memory for a copy)",
     .example = "--save-dir run --save-async",
     .needs = {given("save-dir")}},
    {.name = "resume",
     .field = parsed(take_resume),
     .metavar = "auto|PATH|none",
     .initial = "none",
     .help = "continue a run from its folder, or from one checkpoint; auto: the run in "
             "--save-dir, if any",
     .example = "--save-dir run --resume auto",
     .on_resume = kOneStart,
     .demands = {{is("auto"), {given("save-dir")}, "--save-dir: that is where auto looks"}},
     .names_path = true},
    {.name = "allow-change",
     .field = parsed(take_allowed_changes),
     .metavar = "NAME,...",
     .help = "with --resume: options (or data) that may differ from the run's",
     .example = "--save-dir run --resume auto --allow-change lr",
     .on_resume = kOneStart,
     .demands = {{given(),
                  {on("resume")},
                  "--resume: it says what may differ from the run that continues"}}},
    {.name = "init-from",
     .field = text([](RunConfig& c) { return &c.keeping.init_from; }),
     .metavar = "FILE",
     .help = "start from the weights of a run, .ckpt, .safetensors, .npz or .pth",
     .example = "--init-from pretrained.safetensors",
     .on_resume = kOneStart,
     .demands = {{given(),
                  {off("resume"), is("resume", "auto")},
                  "that no --resume PATH is given: a checkpoint brings its own weights"}},
     .names_path = true},
    {.name = "allow-mismatch",
     .field = patterns([](RunConfig& c) { return &c.keeping.allowed_mismatches; }),
     .metavar = "GLOB,...",
     .help = "with --init-from: skip matching weights that do not fit, e.g. fc.*",
     .example = "--init-from resnet18.pth --allow-mismatch 'fc.*'",
     .on_resume = kOneStart,
     .needs = {given("init-from")}},
    {.name = "init-coding",
     .field = choice(
         [](RunConfig& c) { return &c.keeping.init_coding; },
         {{"all", InitCoding::kAll}, {"inputs", InitCoding::kInputs}, {"none", InitCoding::kNone}}),
     .help = "with --init-from: coding of samples taken from the checkpoint",
     .example = "--init-from runs/a --init-coding inputs --allow-mismatch 'fc.*'",
     .on_resume = kOneStart,
     .needs = {given("init-from")}},
    {.name = "map-location",
     .field = parsed(take_placement),
     .metavar = "auto|cpu|SPEC",
     .initial = "auto",
     .help = "device for a checkpoint's arrays: a device or cuda:0=cuda:1,...",
     .example = "--save-dir run --resume auto --map-location cpu",
     .agreement = kFree,
     .on_resume = kOneStart,
     .needs = {on("resume")}}};

}  // namespace

OptionGroup state_rows() { return {"state", kStateRows}; }

}  // namespace tools

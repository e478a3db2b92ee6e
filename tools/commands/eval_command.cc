// Implements `engine eval`: prints loss, accuracy and per-class results of a checkpoint's model, or
// the errors of its predicted numbers, or the scores of its labels.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/train/evaluator.h"
#include "io/base/files/io_error.h"
#include "io/base/formats/json_writer.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/text/escape_text.h"
#include "tools/commands/command.h"
#include "tools/commands/predict/trained_model.h"
#include "tools/folder/output_paths.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/run_group.h"
#include "tools/options/input/command_line.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"
#include "tools/report/text/class_report.h"
#include "tools/run/choices/tokenizer_check.h"
#include "tools/run/data/saved_weights.h"

namespace tools {
namespace {

struct EvalOptions {
  ModelReference model;
  std::string split;  // "": the samples with which training evaluated
  std::string format = "text", confusion;
};

void print_numbers(const engine::EvalReport& report, const io::TargetScale& target,
                   const EvalOptions& o, const std::string& set) {
  const bool model = o.model.weights == engine::AverageKind::kNone;
  if (o.format != "json") {
    std::printf("%s%s on %s (%s), target %s: %s\n", base::escape_text(o.model.path).c_str(),
                model ? "" : (std::string(" ") + weights_name(o.model.weights)).c_str(),
                base::escape_text(set).c_str(), o.split.c_str(),
                base::escape_text(target.name).c_str(), eval_text(report).c_str());
    return;
  }
  base::JsonWriter object;
  object.begin_object().member("schema", 1).member("event", "eval").member("split", o.split);
  if (!model) object.member("weights", weights_name(o.model.weights));
  object.member("loss", report.loss).member("samples", report.samples);
  object.member("target", base::escape_text(target.name)).member("mse", report.errors->mse);
  object.member("mae", report.errors->mae).member("r2", report.errors->r2);
  std::printf("%s\n", object.end_object().text().c_str());
}

void print_labels(const engine::EvalReport& report, const EvalOptions& o, const io::Dataset& set) {
  const bool model = o.model.weights == engine::AverageKind::kNone;
  const std::vector<std::string>& names = set.class_names();
  if (o.format == "csv") {
    print_output(label_csv(*report.labels, names));
    return;
  }
  if (o.format != "json") {
    std::printf("%s%s on %s (%s): %s\n%s", base::escape_text(o.model.path).c_str(),
                model ? "" : (std::string(" ") + weights_name(o.model.weights)).c_str(),
                base::escape_text(set.name).c_str(), o.split.c_str(), eval_text(report).c_str(),
                label_table(*report.labels, names).c_str());
    return;
  }
  base::JsonWriter object;
  object.begin_object().member("schema", 1).member("event", "eval").member("split", o.split);
  if (!model) object.member("weights", weights_name(o.model.weights));
  object.member("loss", report.loss).member("samples", report.samples);
  add_labels(object, *report.labels, names);
  std::printf("%s\n", object.end_object().text().c_str());
}

void print(const engine::EvalReport& report, const engine::Evaluator& evaluator,
           const std::vector<std::string>& names, const EvalOptions& o, const std::string& set) {
  const engine::ClassCounts& counts = *evaluator.class_counts();
  const bool model = o.model.weights == engine::AverageKind::kNone;
  if (o.format == "csv") {
    print_output(class_csv(counts, names));
    return;
  }
  if (o.format != "json") {
    std::printf("%s%s on %s (%s): %s\n%s", base::escape_text(o.model.path).c_str(),
                model ? "" : (std::string(" ") + weights_name(o.model.weights)).c_str(),
                base::escape_text(set).c_str(), o.split.c_str(), eval_text(report).c_str(),
                class_tables(counts, names).c_str());
    return;
  }
  base::JsonWriter object;
  object.begin_object().member("schema", 1).member("event", "eval").member("split", o.split);
  if (!model) object.member("weights", weights_name(o.model.weights));
  object.member("loss", report.loss).member("accuracy", report.accuracy());
  object.member("correct", report.correct).member("samples", report.samples);
  if (report.rows != report.samples) object.member("rows", report.rows);
  if (report.unknown > 0) object.member("unknown", report.unknown);
  if (report.top5) object.member("top5", report.top5_accuracy());
  if (report.text) object.member("perplexity", report.perplexity());
  if (const auto auc = evaluator.roc_auc()) object.member("auc", *auc);
  add_classes(object, counts, names);
  std::printf("%s\n", object.end_object().text().c_str());
}

void print_notices(const RunConfig& config, const ModelReference& reference,
                   const TrainedModel& model) {
  for (const std::string& line : model.data_notices()) print_notice("warning: " + line);
  if (config.data.set.name != "tokens") return;
  const std::string found =
      tokenizer_difference(config.data.set.directory, reference.tokenizer, reference.path);
  if (!found.empty()) print_notice("warning: " + found);
}

int eval_rank(const RunConfig& config, EvalOptions o, backends::Group& group) {
  TrainedModel model(config, o.model, group, DataUse::kSamples);
  o.model.path = model.path();
  if (group.rank() == 0) print_notices(config, o.model, model);
  if (model.data().train.target() != nullptr && (!o.confusion.empty() || o.format == "csv"))
    throw UsageError(std::string(o.confusion.empty() ? "--format csv" : "--confusion") +
                     " is for models of classes; this one predicts a number, " +
                     base::escape_text(model.data().train.target()->name));
  if (model.data().train.find<io::MultiLabels>() != nullptr && !o.confusion.empty())
    throw UsageError("--confusion is for models of classes; this one predicts several labels");
  if (o.split == "train" && model.data().train.size() == 0)
    throw UsageError("--split train: " + base::escape_text(model.data().test.name) +
                     " is a hold-out, which has no training part; leave it out");
  if (o.split.empty()) o.split = model.data().test_part.empty() ? "test" : model.data().test_part;
  const io::Dataset& set = o.split == "train" ? model.data().train : model.data().test;
  engine::Evaluator evaluator(model.control(), model.graph(), model.state(), model.pool(), set,
                              {.normalization = model.normalization(),
                               .dtype = model.compute().storage,
                               .device = model.compute().device,
                               .products = model.compute().products,
                               .by_class = true});
  const base::BoundThread bound(model.compute().own_cpus());
  const engine::EvalReport report = evaluator.run();
  if (!report.is_finite())
    throw io::DataError(o.model.path + ": the model's output on " + set.name +
                        " is not finite (NaN or infinity)");
  if (group.rank() != 0) return kExitOk;
  if (const io::TargetScale* target = set.target()) {
    print_numbers(report, *target, o, set.name);
    return kExitOk;
  }
  if (report.labels) {
    print_labels(report, o, set);
    return kExitOk;
  }
  const engine::ClassCounts& counts = *evaluator.class_counts();
  std::vector<std::string> names = class_names(set);
  names.insert(names.end(), set.unknown_classes().begin(), set.unknown_classes().end());
  if (!o.confusion.empty()) write_confusion(counts, names, o.confusion);
  print(report, evaluator, names, o, set.name);
  return kExitOk;
}

}  // namespace

int eval_command(const Arguments& arguments) {
  CLI::App app("Evaluates a checkpoint's model on every sample once, with any number of ranks.",
               "engine eval");
  ConfigValues values;
  EvalOptions o;
  app.add_option("RUN|CKPT", o.model.path,
                 "run's folder (its best checkpoint, else the newest), .ckpt, or .safetensors, "
                 ".npz or .pth with --model")
      ->required();
  add_weights_option(app, o.model.weights);
  app.add_option("--split", o.split, "part of the data set")
      ->check(CLI::IsMember({"test", "val", "train"}))
      ->default_str("test");
  app.add_option("--format", o.format,
                 "text, json (one object) or csv (precision, recall, F1 per class or label)")
      ->check(CLI::IsMember({"text", "json", "csv"}))
      ->default_str("text");
  app.add_option("--confusion", o.confusion,
                 "write the confusion matrix as CSV: a row per label, a column per prediction")
      ->type_name("FILE");
  add_table_options(app, values, trained_model_options());
  app.footer(
      "Samples are coded as the checkpoint states. Other data than the run's are evaluated as a "
      "whole.");
  if (!parse(app, arguments)) return kExitOk;
  RunConfig config = trained_config(o.model, values, DataUse::kSamples);
  if (o.split != "train") config.data.set.test_part = o.split;
  config.data.set.test_is_optional = o.split == "train";
  if (!o.confusion.empty() && has_rank_zero(config)) {
    check_output_path("confusion", o.confusion, "");
    check_new_file(o.confusion, {o.model.path});
  }
  return run_group(config, [&](backends::Group& group) { return eval_rank(config, o, group); });
}

}  // namespace tools

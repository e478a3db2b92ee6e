// Implements `engine report`: writes a page about runs to a file, or serves it while the runs
// continue.
#include <poll.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

#include "engine/train/evaluator.h"
#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/checkpoint/atomic_file.h"
#include "io/data/images/image_encoder.h"
#include "io/metrics/http_responder.h"
#include "tools/commands/command.h"
#include "tools/commands/predict/trained_model.h"
#include "tools/folder/output_paths.h"
#include "tools/html/report_page.h"
#include "tools/launch/group/run_group.h"
#include "tools/launch/workers/signal_inbox.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/run/data/sample_predictor.h"

namespace tools {
namespace {

constexpr int kRefreshSeconds = 5;
constexpr std::int64_t kBatch = 64;  // same as an evaluation

struct ReportOptions {
  std::vector<std::string> folders;
  std::string output = "report.html";
  bool watch = false, plain = false;
  int port = 0;
  std::int64_t worst = 12;
  ConfigValues values;
};

std::vector<RunHistory> read_runs(const std::vector<std::string>& folders) {
  std::vector<RunHistory> runs;
  runs.reserve(folders.size());
  for (const std::string& folder : folders) runs.push_back(read_run_history(folder));
  return runs;
}

// Predicts every test sample once, and keeps the worst ones.
void predict_test_samples(TrainedModel& model, const io::ClassLabels& classes_of_samples,
                          std::int64_t most, RunPredictions& result) {
  const io::Dataset& set = model.data().test;
  if (set.size() == 0) throw io::DataError("the data set has no test samples");
  SamplePredictor predictor(model.graph(), model.state(), model.pool(), model.compute(), set,
                            model.normalization(), kBatch);
  predictor.load();
  engine::ClassCounts counts(set.classes());
  std::vector<RunPredictions::Sample> samples;
  std::vector<std::int64_t> batch;
  for (std::int64_t first = 0; first < set.size(); first += kBatch) {
    batch.resize(static_cast<std::size_t>(std::min(kBatch, set.size() - first)));
    std::iota(batch.begin(), batch.end(), first);
    const std::vector<double>& logits = predictor.logits(batch);
    const std::span labels =
        std::span(classes_of_samples.ids).subspan(static_cast<std::size_t>(first), batch.size());
    counts.add(logits, labels);
    const std::size_t classes = logits.size() / batch.size();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::span row = std::span(logits).subspan(i * classes, classes);
      const std::int64_t prediction = predicted_class(row);
      samples.push_back({.number = batch[i],
                         .label = labels[i],
                         .prediction = prediction,
                         .probability = probability_of(row, prediction),
                         .label_probability = probability_of(row, labels[i])});
    }
  }
  const auto count = std::min<std::int64_t>(most, std::ssize(samples));
  std::ranges::partial_sort(
      samples, samples.begin() + count, {},
      [](const RunPredictions::Sample& s) { return std::pair(s.label_probability, s.number); });
  samples.resize(static_cast<std::size_t>(count));
  if (has_pictures(set))
    for (RunPredictions::Sample& sample : samples) {
      const Picture picture = picture_of(set, sample.number);
      sample.png = io::encode_png(picture.pixels, picture.height, picture.width, picture.channels);
      sample.height = picture.height;
      sample.width = picture.width;
    }
  result.names = class_names(set);
  result.set = set.name;
  result.counts = std::move(counts);
  result.worst = std::move(samples);
}

// Does the same for a model that predicts a number.
void predict_test_samples(TrainedModel& model, const io::TargetValues& targets, std::int64_t most,
                          RunPredictions& result) {
  const io::Dataset& set = model.data().test;
  if (set.size() == 0) throw io::DataError("the data set has no test samples");
  engine::Evaluator evaluator(model.control(), model.graph(), model.state(), model.pool(), set,
                              {.normalization = model.normalization(),
                               .dtype = model.compute().storage,
                               .device = model.compute().device,
                               .products = model.compute().products});
  const engine::EvalReport report = evaluator.run();
  SamplePredictor predictor(model.graph(), model.state(), model.pool(), model.compute(), set,
                            model.normalization(), kBatch);
  predictor.load();
  std::vector<RunPredictions::Number> numbers;
  std::vector<std::int64_t> batch;
  for (std::int64_t first = 0; first < set.size(); first += kBatch) {
    batch.resize(static_cast<std::size_t>(std::min(kBatch, set.size() - first)));
    std::iota(batch.begin(), batch.end(), first);
    const std::vector<double>& predictions = predictor.logits(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto target = static_cast<double>(targets.values[static_cast<std::size_t>(batch[i])]);
      numbers.push_back(
          {batch[i], targets.scale.in_unit(target), targets.scale.in_unit(predictions[i])});
    }
  }
  const auto count = std::min<std::int64_t>(most, std::ssize(numbers));
  std::ranges::partial_sort(numbers, numbers.begin() + count, {},
                            [](const RunPredictions::Number& n) {
                              return std::pair(-std::abs(n.prediction - n.target), n.number);
                            });
  numbers.resize(static_cast<std::size_t>(count));
  result.set = set.name;
  result.target = targets.scale.name;
  result.samples = report.samples;
  result.errors = report.errors;
  result.farthest = std::move(numbers);
}

// Counts each class of each position.
void predict_test_samples(TrainedModel& model, const io::PositionLabels&, std::int64_t,
                          RunPredictions& result) {
  const io::Dataset& set = model.data().test;
  if (set.size() == 0) throw io::DataError("the data set has no test samples");
  engine::Evaluator evaluator(model.control(), model.graph(), model.state(), model.pool(), set,
                              {.normalization = model.normalization(),
                               .dtype = model.compute().storage,
                               .device = model.compute().device,
                               .products = model.compute().products});
  static_cast<void>(evaluator.run());
  result.names = class_names(set);
  result.set = set.name;
  result.counts = *evaluator.class_counts();
  result.by_position = true;
}

template <class Labels>
void predict_test_samples(TrainedModel& model, const Labels& labels, std::int64_t,
                          RunPredictions&) {
  throw io::DataError("the labels of " + model.data().test.name + " are " + labels.kTraits.labels +
                      ", which the page does not show");
}

// Uses the run's best checkpoint, else its newest. Without one, or without the data, the page shows
// why there are no predictions. Returns none for a model of text.
std::optional<RunPredictions> predicted_run(const ReportOptions& o) {
  RunPredictions result;
  bool is_text = false;
  try {
    ModelReference reference{.path = o.folders.front()};
    ConfigValues values = o.values;
    const RunConfig config = trained_config(reference, values, DataUse::kSamples);
    run_group(config, [&](backends::Group& group) {
      TrainedModel model(config, reference, group, DataUse::kSamples);
      result.checkpoint = model.path();
      is_text = !model.data().train.sample_traits().single;
      if (is_text) return kExitOk;
      if (model.other_data())
        throw io::DataError("the data differ from those of the run: " + model.path() +
                            " was trained on other samples of " + model.data().train.name);
      std::visit([&](const auto& labels) { predict_test_samples(model, labels, o.worst, result); },
                 model.data().test.labels);
      return kExitOk;
    });
  } catch (const io::Error& error) {
    result = {.checkpoint = {}, .set = {}, .left_out = error.what(), .names = {}};
    print_notice("the page has no predictions: " + result.left_out);
  }
  if (is_text) return std::nullopt;
  return result;
}

// Returns 128 random bits: other users of the host can reach the port, but may not read the folder.
std::string new_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(random()));
    token += digits;
  }
  return token;
}

// Serves until a signal asks to stop.
void serve(const ReportOptions& o) {
  SignalInbox signals;                      // created before any other thread
  static_cast<void>(read_runs(o.folders));  // reports unreadable runs now
  const io::HttpResponder server(
      {.port = o.port,
       .path = "/" + new_token() + "/",
       .name = "engine report",
       .secret_path = true,
       .host_check = io::HostCheck::kNameAndPort},
      [&o](std::string_view) {
        const std::vector<RunHistory> runs = read_runs(o.folders);
        const bool goes_on =
            std::ranges::any_of(runs, [](const RunHistory& run) { return !run.exit.has_value(); });
        return io::HttpResponder::Content{
            "text/html; charset=utf-8",
            report_html(runs, {.refresh_seconds = goes_on ? kRefreshSeconds : 0})};
      });
  std::printf("serving %s until it is interrupted (Ctrl-C)\n", server.url().c_str());
  std::fflush(stdout);
  for (;;) {
    pollfd ready{signals.fd(), POLLIN, 0};
    static_cast<void>(::poll(&ready, 1, -1));  // wait until it is needed
    while (const std::optional<int> signal = signals.take())
      if (*signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP) return;
  }
}

}  // namespace

int report_command(const Arguments& arguments) {
  CLI::App app("Writes a web page about one run, or compares several.", "engine report");
  ReportOptions o;
  app.add_option("RUN", o.folders, "folders of runs (--save-dir)")->required();
  CLI::Option* output = app.add_option("-o,--output", o.output, "output file (-: standard output)")
                            ->type_name("FILE.html")
                            ->capture_default_str();
  CLI::Option* watch = app.add_flag(
      "--watch", o.watch, "serve the page at http://127.0.0.1 and update it, without predictions");
  watch->excludes(output);
  app.add_option("--port", o.port, "port for --watch (0: any free port)")
      ->transform(whole_number(0, 65535))
      ->needs(watch)
      ->capture_default_str();
  app.add_flag("--no-predictions", o.plain,
               "leave out the predictions for a single run's test samples");
  app.add_option("--worst", o.worst, "number of worst predictions to show")
      ->type_name("N")
      ->transform(whole_number(0, 1000))
      ->capture_default_str();
  add_table_options(app, o.values, {"data-dir", "annotations", "device", "threads"});
  app.footer("Example:\n  engine report runs/a runs/b -o report.html");
  if (!parse(app, arguments)) return kExitOk;
  if (o.watch) {
    serve(o);
    return kExitOk;
  }
  if (o.output != "-") check_new_file(o.output, {});
  const std::vector<RunHistory> runs = read_runs(o.folders);
  PageOptions page;
  if (runs.size() == 1 && !o.plain) page.predictions = predicted_run(o);
  const std::string text = report_html(runs, page);
  if (o.output == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }
  io::write_file_atomically(o.output, text);
  std::printf("wrote %s\n", base::escape_text(o.output).c_str());
  return kExitOk;
}

}  // namespace tools
